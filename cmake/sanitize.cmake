# Sanitizers apply to everything in this build, so that no object is left uninstrumented.
if(FOVEA_SANITIZE)
  set(flags -fsanitize=${FOVEA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${flags})
  add_link_options(${flags})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With sanitizers GCC 12 to 14 take initialised values for uninitialised ones (GCC bug 105616).
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()

if(FOVEA_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "FOVEA_FUZZ=ON needs clang, which has libFuzzer.\n"
      "On Debian 12:  apt-get install clang-19 libclang-rt-19-dev,  then  cmake --preset fuzz\n"
      "Or do without it:  -DFOVEA_FUZZ=OFF")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
