# What every target of our own is compiled with. Nothing here reaches those who link to Fovea.
function(fovea_own_code target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    # The language defines each operation as one rounding. GCC contracts a*b+c into one by default if
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

# Sources of one room are compiled several at a time: most of what compiling one takes is reading the headers of C++, which
# they share. Names in anonymous namespaces of a room must therefore differ; the compiler says if they do not.
option(FOVEA_UNITY "Compile several sources of a room at a time" ON)

# fovea_unity(<target> <source>...): groups of one folder each. The caller leaves out sources with flags of their own.
function(fovea_unity target)
  if(NOT FOVEA_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    get_filename_component(folder ${source} DIRECTORY)
    string(REGEX REPLACE "^(engines/[a-z]+).*" "\\1" room "${folder}")  # with the folders inside an engine
    string(MAKE_C_IDENTIFIER "${room}" room)
    math(EXPR ${room}_count "0${${room}_count} + 1")
    set(most 16)
    if(room MATCHES "cpu|jit")  # their sources are the longest
      set(most 8)
    endif()
    math(EXPR group "(${${room}_count} - 1) / ${most}")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${room}_${group})
  endforeach()
endfunction()

# The CPU engine's kernels: one source compiled per instruction set (see engines/cpu/kernels/isa.h).
# Casts between vector types and intrinsics' types read best in C's form.
function(fovea_cpu_kernels folder)
  set(flags -O3 -Wno-old-style-cast -Wno-psabi -Wno-ignored-attributes -fno-math-errno -fno-trapping-math)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang, which fuzzers are built with, knows none of these
    list(APPEND flags
      -Wno-maybe-uninitialized -Wno-uninitialized  # GCC bug 105593, in its own intrinsics
      -Wno-stringop-overflow)  # under sanitizers GCC 12 no longer sees that a tail is shorter than a vector
  endif()
  set_source_files_properties(${folder}/scalar.cpp PROPERTIES COMPILE_OPTIONS "${flags}")
  set(neon "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(neon -fno-schedule-insns)  # loads that come early take registers of sums, which then go to memory
  endif()
  set_source_files_properties(${folder}/neon.cpp PROPERTIES COMPILE_OPTIONS "${flags};${neon}")
  set_source_files_properties(${folder}/avx2.cpp PROPERTIES COMPILE_OPTIONS
    "${flags};-mavx2;-mfma;-mf16c;-mbmi2")
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mfma -mf16c -mbmi2
    -mprefer-vector-width=512)
  if(FOVEA_SANITIZE)
    list(APPEND avx512 -fno-sanitize=all)  # sanitized tests run scalar and avx2: these take minutes each
  endif()
  set_source_files_properties(${folder}/avx512.cpp PROPERTIES COMPILE_OPTIONS "${flags};${avx512}")
  set_source_files_properties(${folder}/avx512_bf16.cpp PROPERTIES COMPILE_OPTIONS
    "${flags};${avx512};-mavx512bf16")
endfunction()
