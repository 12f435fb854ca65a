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
