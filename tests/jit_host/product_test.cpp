// A tiled matrix product from its text: compiled by the host's compiler, loaded and launched.
#include <gtest/gtest.h>

#include <vector>

#include "tests/ir/random.h"
#include "tests/jit_host/compile.h"
#include "tests/jit_host/launch.h"

namespace fovea::on_host {
namespace {

// c = a b of [rows, depth] and [depth, columns] in bf16; a block makes 64 x 64 with four warps,
// tiles of 32 steps come by asynchronous copies, two under way at a time.
constexpr const char* source = R"(
#include "tile.h"
namespace fovea::device {
struct Product {
  const unsigned short *a, *b;
  float* c;
  int depth, columns;
};
using Tile = SharedTile<BF16, 32>;
using Wide = SharedTile<BF16, 64>;
FOVEA_DEVICE void fetch(const Product& p, int k, int stage) {
  const Tile a{static_cast<Shared>(stage * 9728)};
  const Wide b{a.base + 64 * Tile::stride};
  const Rows left{p.a + block_y() * 64LL * p.depth + k, p.depth, 1, 64, p.depth - k, 16};
  const Rows right{p.b + k * static_cast<long long>(p.columns) + block_x() * 64, p.columns, 1,
                   p.depth - k, 64, 16};
  copy_tile<BF16, 64, 128>(a, left, thread_index());
  copy_tile<BF16, 32, 128>(b, right, thread_index());
  commit_copies();
}
FOVEA_DEVICE void product(const Product& p) {
  float sum[1][8][4];
  clear(sum);
  const int warp = thread_index() / 32, lane = lane_index();
  fetch(p, 0, 0);
  for (int k = 0; k < p.depth; k += 32) {
    const int stage = k / 32 % 2;
    fetch(p, k + 32 < p.depth ? k + 32 : p.depth, 1 - stage);
    wait_copies<1>();
    sync_block();
    const Tile a{static_cast<Shared>(stage * 9728)};
    const Wide b{a.base + 64 * Tile::stride};
    multiply<false, true, 32>(sum, a, {16 * warp, 0}, b, {0, 0});
    sync_block();
  }
  for (int j = 0; j < 8; ++j) {
    for (int e = 0; e < 4; ++e) {
      const int row = block_y() * 64 + 16 * warp + lane / 4 + e / 2 * 8;
      p.c[row * p.columns + block_x() * 64 + 8 * j + lane % 4 * 2 + e % 2] = sum[0][j][e];
    }
  }
}
}  // namespace fovea::device
extern "C" __global__ void __launch_bounds__(128, 2) product(const __grid_constant__ fovea::device::Product p) {
  fovea::device::product(p);
}
)";

float of_bf16(unsigned short x) { return std::bit_cast<float>(static_cast<unsigned>(x) << 16); }

TEST(JitHost, ATiledProductFromItsText) {
  constexpr int rows = 128, columns = 192, depth = 80;
  test::Random random(test::test_seed());
  std::vector<unsigned short> a(rows * depth), b(depth * columns);
  for (auto* const matrix : {&a, &b}) {
    for (unsigned short& x : *matrix) {
      x = static_cast<unsigned short>(std::bit_cast<unsigned>(random.normal()) >> 16);
    }
  }
  std::vector<float> c(rows * columns);
  struct {
    const unsigned short *a, *b;
    float* c;
    int depth, columns;
  } product{a.data(), b.data(), c.data(), depth, columns};
  const Module module(compile_on_host(source));
  const Kernel kernel = module.find("product");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(module.find("another"), nullptr);
  void* parameters[] = {&product};
  ASSERT_EQ(launch(kernel, parameters, {columns / 64, rows / 64, 1, 128, 2 * 9728}), "");
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      float sum = 0;
      for (int k = 0; k < depth; ++k) {
        sum += of_bf16(a[static_cast<std::size_t>(i * depth + k)]) *
               of_bf16(b[static_cast<std::size_t>(k * columns + j)]);
      }
      ASSERT_NEAR(c[static_cast<std::size_t>(i * columns + j)], sum, 1e-4) << i << ", " << j;
    }
  }
}

TEST(JitHost, WhatDoesNotCompileIsSaid) {
  EXPECT_THROW(compile_on_host("#include \"primitives.h\"\nthis is no kernel"), std::runtime_error);
}

}  // namespace
}  // namespace fovea::on_host
