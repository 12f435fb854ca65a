# What every target of our own is compiled with. Nothing here reaches those who link to Fovea.
function(fovea_own_code target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    # The language defines each operation as one rounding. GCC contracts a*b+c into one by default where
    # the machine can. Tests and the program get the flag too: they inline code from src.
    -ffp-contract=off
    -Wall -Wextra -Wpedantic
    -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast -Wextra-semi
    -Wundef -Wvla
    # A new operation must fail to compile wherever its rule is missing, whatever FOVEA_WERROR says.
    -Werror=switch -Werror=return-type
    $<$<BOOL:${FOVEA_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 sees overlapping copies in "text" + std::string (GCC bug 105329). Can go with GCC 12.
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # std::stable_sort of libstdc++ 12 calls a deprecated function, and clang blames the caller. Can go with it.
    target_compile_options(${target} PRIVATE -Wno-deprecated-declarations)
  endif()
endfunction()
