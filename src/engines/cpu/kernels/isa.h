// Which instruction set this translation unit is compiled for. avx512_bf16.cpp, avx512.cpp,
// avx2.cpp, neon.cpp and scalar.cpp define FOVEA_ISA (the namespace) and FOVEA_ISA_LEVEL, and then
// include every kernel source; CMake gives each file its flags. Their objects have one global
// symbol, the KernelTable, and no weak ones (tests/repo checks this).
//
// The level counts what x86 has beyond plain vectors: 1 AVX2, 2 AVX-512, 3 AVX-512 with pairs of
// bf16. NEON is at level 0; it differs from plain vectors in vec_neon.h and in the few places that
// test FOVEA_NEON.
#pragma once

#if !defined(FOVEA_ISA) || !defined(FOVEA_ISA_LEVEL)
#error "include this from avx512_bf16.cpp, avx512.cpp, avx2.cpp, neon.cpp or scalar.cpp only"
#endif
#ifndef FOVEA_NEON
#define FOVEA_NEON 0
#endif
#define FOVEA_HAS_FMA (FOVEA_ISA_LEVEL > 0 || FOVEA_NEON)  // fma() rounds once

namespace fovea::cpu::FOVEA_ISA {

constexpr int panel_width = 64;                // columns of a panel
constexpr int strip_rows = 512 / panel_width;  // a strip of scores is 2 KiB

#if FOVEA_ISA_LEVEL >= 2
constexpr int W = 16;              // floats in a vector
constexpr int group_rows = 6;      // rows and columns of sums that a micro-kernel holds:
constexpr int group_columns = 64;  // 6 x 4 vectors, beside 4 of B and 1 of A
constexpr bool fetches = true;     // what Product::fetch asks for
#elif FOVEA_ISA_LEVEL == 1
constexpr int W = 8;
constexpr int group_rows = 6;
constexpr int group_columns = 16;  // 6 x 2 vectors, beside 2 of B and 1 of A
constexpr bool fetches = false;    // it slows Zen 3 down: 1 % at d = 64, 2 % at 128
#elif FOVEA_NEON
constexpr int W = 4;
constexpr int group_rows = 6;
constexpr int group_columns = 16;  // 6 x 4 vectors, beside 4 of B and 1 of A
constexpr bool fetches = false;    // measured nowhere
#else
constexpr int W = 4;
constexpr int group_rows = 2;
constexpr int group_columns = 16;  // 2 x 4 vectors
constexpr bool fetches = false;
#endif

}  // namespace fovea::cpu::FOVEA_ISA
