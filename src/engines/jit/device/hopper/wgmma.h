// Products of tiles in shared memory, by a warpgroup: d (64 x n) += a (64 x 16) b (16 x n), f32
// sums in registers. Begun by all four warps, done while they go on.
//
// Warp w holds rows 16 w to 16 w + 15 as float[n / 8][4]: with row = lane / 4 and t = lane % 4,
// d[j][e] is in row row + 8 (e / 2) and column 8 j + 2 t + e % 2, as tile.h has it. A left factor
// in registers is four words: pairs (row, 2t), (row + 8, 2t), (row, 2t + 8), (row + 8, 2t + 8).
//
// Tiles in shared memory have rows of 128 bytes, of which the 16-byte pieces are swapped as copies
// with a 128-byte swizzle do it: piece p of row r lies at p ^ (r % 8). They begin at a multiple of
// 1024 bytes. Wider tiles are several such ones, one behind the other.
//
// Tests replace these functions: FOVEA_HOST_HOPPER names the header of theirs.
#pragma once

#if defined(FOVEA_HOST_HOPPER)
#include FOVEA_HOST_HOPPER
#else

#include "../primitives.h"

namespace fovea::device {

FOVEA_DEVICE unsigned shared_address(Shared at) { return shared_base() + at; }

// Registers that are written by other instructions may be used by products that begin after.
FOVEA_DEVICE void fence_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FOVEA_DEVICE void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most so many committed groups are under way. Sums may be read, and factors written, only
// after that; `settle` tells the compiler so.
template <int pending>
FOVEA_DEVICE void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
template <int n>
FOVEA_DEVICE void settle(float (&d)[n][4]) {
  FOVEA_UNROLL for (int i = 0; i < 4 * n; ++i) asm volatile("" : "+f"(d[i / 4][i % 4])::"memory");
}
FOVEA_DEVICE void settle(unsigned (&a)[4]) {
  asm volatile("" : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3])::"memory");
}
template <int n>
FOVEA_DEVICE void settle(unsigned (&a)[n][4]) {
  FOVEA_UNROLL for (int i = 0; i < n; ++i) settle(a[i]);
}

// multiply_tiles<transpose_a, transpose_b>(Element, d, a, b, add), with a tile or registers for a.
// Not transposed: rows of the tile are those of a, or columns of b, and k runs along them.
// Transposed: rows of the tile are k. `add`: d is added to, not overwritten.

#define FOVEA_NAMES_1 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FOVEA_NAMES_2 FOVEA_NAMES_1 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FOVEA_NAMES_3 FOVEA_NAMES_2 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FOVEA_NAMES_4 FOVEA_NAMES_3 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FOVEA_NAMES_5 FOVEA_NAMES_4 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FOVEA_NAMES_6 FOVEA_NAMES_5 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FOVEA_NAMES_7 FOVEA_NAMES_6 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FOVEA_NAMES_8 FOVEA_NAMES_7 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FOVEA_NAMES_9 FOVEA_NAMES_8 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define FOVEA_NAMES_10 FOVEA_NAMES_9 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define FOVEA_NAMES_11 FOVEA_NAMES_10 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define FOVEA_NAMES_12 FOVEA_NAMES_11 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define FOVEA_NAMES_13 FOVEA_NAMES_12 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define FOVEA_NAMES_14 FOVEA_NAMES_13 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define FOVEA_NAMES_15 FOVEA_NAMES_14 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define FOVEA_NAMES_16 FOVEA_NAMES_15 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define FOVEA_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define FOVEA_SUMS_1 FOVEA_SUMS(0), FOVEA_SUMS(1)
#define FOVEA_SUMS_2 FOVEA_SUMS_1, FOVEA_SUMS(2), FOVEA_SUMS(3)
#define FOVEA_SUMS_3 FOVEA_SUMS_2, FOVEA_SUMS(4), FOVEA_SUMS(5)
#define FOVEA_SUMS_4 FOVEA_SUMS_3, FOVEA_SUMS(6), FOVEA_SUMS(7)
#define FOVEA_SUMS_5 FOVEA_SUMS_4, FOVEA_SUMS(8), FOVEA_SUMS(9)
#define FOVEA_SUMS_6 FOVEA_SUMS_5, FOVEA_SUMS(10), FOVEA_SUMS(11)
#define FOVEA_SUMS_7 FOVEA_SUMS_6, FOVEA_SUMS(12), FOVEA_SUMS(13)
#define FOVEA_SUMS_8 FOVEA_SUMS_7, FOVEA_SUMS(14), FOVEA_SUMS(15)
#define FOVEA_SUMS_9 FOVEA_SUMS_8, FOVEA_SUMS(16), FOVEA_SUMS(17)
#define FOVEA_SUMS_10 FOVEA_SUMS_9, FOVEA_SUMS(18), FOVEA_SUMS(19)
#define FOVEA_SUMS_11 FOVEA_SUMS_10, FOVEA_SUMS(20), FOVEA_SUMS(21)
#define FOVEA_SUMS_12 FOVEA_SUMS_11, FOVEA_SUMS(22), FOVEA_SUMS(23)
#define FOVEA_SUMS_13 FOVEA_SUMS_12, FOVEA_SUMS(24), FOVEA_SUMS(25)
#define FOVEA_SUMS_14 FOVEA_SUMS_13, FOVEA_SUMS(26), FOVEA_SUMS(27)
#define FOVEA_SUMS_15 FOVEA_SUMS_14, FOVEA_SUMS(28), FOVEA_SUMS(29)
#define FOVEA_SUMS_16 FOVEA_SUMS_15, FOVEA_SUMS(30), FOVEA_SUMS(31)

// n columns, 8 n16 sums; p0 ...: the numbers of the operands behind those.
#define FOVEA_WGMMA(Type, type, n, n16, p0, p1, p2, p3, p4, p5, p6)                                \
  template <bool transpose_a, bool transpose_b>                                                    \
  FOVEA_DEVICE void multiply_tiles(Type, float(&d)[n / 8][4], unsigned long long a,                \
                                   unsigned long long b, bool add) {                               \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p2 ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
                 "k16.f32." type "." type " {" FOVEA_NAMES_##n16 "}, %" #p0 ", %" #p1              \
                                                                 ", p, 1, 1, %" #p3 ", %" #p4 ";}" \
                 : FOVEA_SUMS_##n16                                                                \
                 : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(transpose_a),                   \
                   "n"(transpose_b));                                                              \
  }                                                                                                \
  template <bool transpose_a, bool transpose_b>                                                    \
  FOVEA_DEVICE void multiply_tiles(Type, float(&d)[n / 8][4], const unsigned(&a)[4],               \
                                   unsigned long long b, bool add) {                               \
    asm volatile("{.reg .pred p; setp.ne.b32 p, %" #p5 ", 0; wgmma.mma_async.sync.aligned.m64n" #n \
                 "k16.f32." type "." type " {" FOVEA_NAMES_##n16                                   \
                 "}, {%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", p, 1, 1, %" #p6 ";}"      \
                 : FOVEA_SUMS_##n16                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)), \
                   "n"(transpose_b));                                                              \
  }
#define FOVEA_WGMMAS(...) \
  FOVEA_WGMMA(F16, "f16", __VA_ARGS__) FOVEA_WGMMA(BF16, "bf16", __VA_ARGS__)
FOVEA_WGMMAS(16, 1, 8, 9, 10, 11, 12, 13, 14)
FOVEA_WGMMAS(32, 2, 16, 17, 18, 19, 20, 21, 22)
FOVEA_WGMMAS(48, 3, 24, 25, 26, 27, 28, 29, 30)
FOVEA_WGMMAS(64, 4, 32, 33, 34, 35, 36, 37, 38)
FOVEA_WGMMAS(80, 5, 40, 41, 42, 43, 44, 45, 46)
FOVEA_WGMMAS(96, 6, 48, 49, 50, 51, 52, 53, 54)
FOVEA_WGMMAS(112, 7, 56, 57, 58, 59, 60, 61, 62)
FOVEA_WGMMAS(128, 8, 64, 65, 66, 67, 68, 69, 70)
FOVEA_WGMMAS(144, 9, 72, 73, 74, 75, 76, 77, 78)
FOVEA_WGMMAS(160, 10, 80, 81, 82, 83, 84, 85, 86)
FOVEA_WGMMAS(176, 11, 88, 89, 90, 91, 92, 93, 94)
FOVEA_WGMMAS(192, 12, 96, 97, 98, 99, 100, 101, 102)
FOVEA_WGMMAS(208, 13, 104, 105, 106, 107, 108, 109, 110)
FOVEA_WGMMAS(224, 14, 112, 113, 114, 115, 116, 117, 118)
FOVEA_WGMMAS(240, 15, 120, 121, 122, 123, 124, 125, 126)
FOVEA_WGMMAS(256, 16, 128, 129, 130, 131, 132, 133, 134)
#undef FOVEA_WGMMAS
#undef FOVEA_WGMMA

}  // namespace fovea::device

#endif

namespace fovea::device {

// What a product is told of a tile: where it begins, how far apart its groups are, the swizzle.
constexpr unsigned long long tile_words(int leading_bytes, int stride_bytes) {
  return static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(stride_bytes >> 4) << 32 | 1ull << 62;
}
FOVEA_DEVICE unsigned long long tile_at(Shared at, unsigned long long words) {
  return (shared_address(at) & 0x3ffffu) >> 4 | words;
}
// A tile with k along its rows: the next 16 steps of k are 32 bytes further, in the next tile after
// 64. Its rows are 128 bytes apart.
FOVEA_DEVICE unsigned long long along_rows(Shared at) { return tile_at(at, tile_words(16, 1024)); }
// A tile whose rows are steps of k: the next 16 are 2048 bytes further. 64 columns to a tile, the
// next ones in the tile `tile_bytes` behind it.
FOVEA_DEVICE unsigned long long across_rows(Shared at, int tile_bytes) {
  return tile_at(at, tile_words(tile_bytes, 1024));
}
// The same tile from so many bytes on.
FOVEA_DEVICE unsigned long long moved_by(unsigned long long tile, int bytes) {
  return tile + static_cast<unsigned long long>(bytes >> 4);
}

}  // namespace fovea::device
