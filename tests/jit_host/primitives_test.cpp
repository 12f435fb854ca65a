// The host's primitives against the definitions of the PTX manual, written as loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#define FOVEA_HOST_PRIMITIVES "tests/jit_host/primitives_host.h"
#include "engines/jit/device/primitives.h"
#include "tests/ir/random.h"
#include "tests/jit_host/launch.h"

namespace fovea::device {
namespace {

template <class Element>
struct Matrices {
  unsigned short a[16][16], b[16][8];
  float c[16][8], result[16][8];
};

template <class Element>
void run_product(void** parameters) {
  auto& m = *static_cast<Matrices<Element>*>(parameters[0]);
  const int row = lane_index() / 4, t = lane_index() % 4 * 2;
  const auto pair = [](unsigned short low, unsigned short high) {
    return static_cast<unsigned>(low) | static_cast<unsigned>(high) << 16;
  };
  const unsigned a[4] = {
      pair(m.a[row][t], m.a[row][t + 1]), pair(m.a[row + 8][t], m.a[row + 8][t + 1]),
      pair(m.a[row][t + 8], m.a[row][t + 9]), pair(m.a[row + 8][t + 8], m.a[row + 8][t + 9])};
  float c[4];
  for (int e = 0; e < 4; ++e) c[e] = m.c[row + e / 2 * 8][t + e % 2];
  multiply_add(Element{}, c, a, pair(m.b[t][row], m.b[t + 1][row]),
               pair(m.b[t + 8][row], m.b[t + 9][row]));
  for (int e = 0; e < 4; ++e) m.result[row + e / 2 * 8][t + e % 2] = c[e];
}

template <class Element>
void check_product(float scale) {
  machine = &on_host::Block::machine();
  test::Random random(test::test_seed());
  Matrices<Element> m{};
  const auto draw = [&] {
    return static_cast<unsigned short>(pack(Element{}, random.normal() * scale, 0));
  };
  for (auto& row : m.a) {
    for (auto& x : row) x = draw();
  }
  for (auto& row : m.b) {
    for (auto& x : row) x = draw();
  }
  for (auto& row : m.c) {
    for (auto& x : row) x = random.normal();
  }
  void* parameters[] = {&m};
  ASSERT_EQ(on_host::launch(&run_product<Element>, parameters, {}), "");
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      double sum = static_cast<double>(m.c[i][j]), size = std::abs(sum);
      for (int k = 0; k < 16; ++k) {
        const double term = static_cast<double>(to_float(Element{}, m.a[i][k])) *
                            static_cast<double>(to_float(Element{}, m.b[k][j]));
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(m.result[i][j], sum, size * 1e-6) << i << ", " << j;
    }
  }
}

TEST(JitHostPrimitives, MatrixProducts) {
  check_product<BF16>(1);
  check_product<F16>(1);
  check_product<F16>(1e-6f);  // subnormal numbers
}

TEST(JitHostPrimitives, InfinitiesAndNansOfMatrixProducts) {
  machine = &on_host::Block::machine();
  Matrices<F16> m{};
  m.a[3][5] = 0x7c00, m.b[5][2] = 0x3c00;  // inf * 1
  m.a[9][1] = 0x7e00;                      // NaN
  void* parameters[] = {&m};
  ASSERT_EQ(on_host::launch(&run_product<F16>, parameters, {}), "");
  EXPECT_EQ(m.result[3][2], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(m.result[3][1]));  // inf * 0
  EXPECT_TRUE(std::isnan(m.result[9][0]));
  EXPECT_EQ(m.result[0][0], 0);
}

unsigned loaded[2][32][4];

TEST(JitHostPrimitives, LoadsOfMatrices) {
  machine = &on_host::Block::machine();
  const auto kernel = [](void**) {
    // Element (r, c) of matrix m is 64 m + 8 r + c; rows lie 48 bytes apart.
    const int lane = lane_index();
    for (int c = 0; c < 8; ++c) {
      store_shared<unsigned short>(48 * lane + 2 * c, static_cast<unsigned short>(8 * lane + c));
    }
    sync_warp();
    load_matrices(loaded[0][lane], 48 * lane);
    load_matrices_transposed(loaded[1][lane], 48 * lane);
  };
  ASSERT_EQ(on_host::launch(kernel, nullptr, {1, 1, 1, 32, 48 * 32}), "");
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned i = lane / 4, j = lane % 4 * 2;
      EXPECT_EQ(loaded[0][lane][m], (64 * m + 8 * i + j) | (64 * m + 8 * i + j + 1) << 16);
      EXPECT_EQ(loaded[1][lane][m], (64 * m + 8 * j + i) | (64 * m + 8 * (j + 1) + i) << 16);
    }
  }
}

int seen[64][6];

TEST(JitHostPrimitives, WarpsAndBlocks) {
  machine = &on_host::Block::machine();
  const auto kernel = [](void**) {
    const int me = thread_index();
    int* const out = seen[me];
    out[0] = static_cast<int>(ballot(me % 3 == 0));
    out[1] = any_in_warp(me == 40) ? 1 : 0;
    out[2] = static_cast<int>(shuffle_xor(static_cast<double>(me), 5));
    out[3] = shuffle(me, me + 1);
    out[4] = any_in_block(me == 63) ? 1 : 0;
    out[5] = any_in_block(false) ? 1 : 0;
  };
  ASSERT_EQ(on_host::launch(kernel, nullptr, {1, 1, 1, 64, 0}), "");
  for (int i = 0; i < 64; ++i) {
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane) {
      if ((i / 32 * 32 + lane) % 3 == 0) votes |= 1u << lane;
    }
    EXPECT_EQ(static_cast<unsigned>(seen[i][0]), votes);
    EXPECT_EQ(seen[i][1], i / 32);
    EXPECT_EQ(seen[i][2], i ^ 5);
    EXPECT_EQ(seen[i][3], i / 32 * 32 + (i + 1) % 32);
    EXPECT_EQ(seen[i][4], 1);
    EXPECT_EQ(seen[i][5], 0);
  }
}

TEST(JitHostPrimitives, EveryBlockRunsOnce) {
  machine = &on_host::Block::machine();
  static std::vector<int> counts;
  counts.assign(3 * 5 * 7, 0);
  const auto kernel = [](void**) {
    if (thread_index() == 0)
      ++counts[static_cast<std::size_t>(block_x() + 3 * (block_y() + 5 * block_z()))];
  };
  ASSERT_EQ(on_host::launch(kernel, nullptr, {3, 5, 7, 32, 0}), "");
  for (const int count : counts) EXPECT_EQ(count, 1);
}

TEST(JitHostPrimitives, RoundingToSixteenBits) {
  // Every f16 and bf16 stays as it is. Ties are rounded to the even one.
  for (unsigned x = 0; x < 0x10000; ++x) {
    const auto bits = static_cast<unsigned short>(x);
    const float f = to_float(F16{}, bits), bf = to_float(BF16{}, bits);
    EXPECT_TRUE(std::isnan(f) || pack(F16{}, f, 0) == x) << x;
    EXPECT_TRUE(std::isnan(bf) || pack(BF16{}, 0, bf) == x << 16) << x;
  }
  EXPECT_EQ(to_float(F16{}, 1), 0x1p-24f);
  EXPECT_EQ(to_float(F16{}, 0x7bff), 65504.0f);
  EXPECT_EQ(pack(F16{}, 65519.0f, 65520.0f), 0x7bffu | 0x7c00u << 16);
  EXPECT_EQ(pack(F16{}, 0x1p-25f, 0x1.8p-25f), 0u | 1u << 16);
  EXPECT_EQ(pack(F16{}, 1 + 0x1p-11f, 1 + 0x3p-11f), 0x3c00u | 0x3c02u << 16);
  EXPECT_EQ(pack(BF16{}, 1 + 0x1p-8f, 1 + 0x3p-8f), 0x3f80u | 0x3f82u << 16);
  EXPECT_EQ(pack(BF16{}, 3.4e38f, -3.4e38f), 0x7f80u | 0xff80u << 16);
  EXPECT_EQ(pack(F16{}, std::nanf(""), std::nanf("")), 0x7fff7fffu);
  EXPECT_EQ(pack(BF16{}, std::nanf(""), std::nanf("")), 0x7fff7fffu);
}

TEST(JitHostPrimitives, TheSpecialFunctionUnit) {
  EXPECT_EQ(exp2_approx(-infinity()), 0.0f);
  EXPECT_EQ(exp2_approx(-127.0f), 0.0f);  // a subnormal number would be more exact
  EXPECT_EQ(exp2_approx(-126.0f), 0x1p-126f);
  EXPECT_EQ(exp2_approx(3.0f), 8.0f);
  EXPECT_EQ(reciprocal_approx(0x1p-127f), infinity());
  EXPECT_EQ(reciprocal_approx(-infinity()), 0.0f);
  EXPECT_EQ(log2_approx(0.0f), -infinity());
  EXPECT_EQ(tanh_approx(-infinity()), -1.0f);
}

}  // namespace
}  // namespace fovea::device

// Sums of device/exact_sum.h: exact, and the same bits in any order.

#define FOVEA_HOST_PRIMITIVES "tests/jit_host/primitives_host.h"
#include "engines/jit/device/exact_sum.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/ir/random.h"

namespace fovea::on_host {
namespace {

using Sum = std::array<unsigned long long, device::exact_words>;

double sum_of(const std::vector<float>& numbers) {
  Sum sum{};
  for (const float x : numbers) device::add_exact(sum.data(), x);
  return device::exact_value(sum.data());
}

TEST(ExactSum, IsExactWhereADoubleHoldsIt) {
  EXPECT_EQ(sum_of({}), 0);
  EXPECT_EQ(sum_of({1.5f, -0.25f}), 1.25);
  EXPECT_EQ(sum_of({-3.0f}), -3);
  EXPECT_EQ(sum_of({-0x1p-149f, -0x1p-149f}), -0x1p-148);
  EXPECT_EQ(sum_of({0x1p-126f, 0x1p127f, -0x1p127f}), 0x1p-126);
  EXPECT_EQ(sum_of({0x1.fffffep127f, 0x1.fffffep127f}), 0x1.fffffep128);
  EXPECT_EQ(sum_of({1e30f, 1.0f, -1e30f, 0x1p-140f, -1.0f}), 0x1p-140);
}

TEST(ExactSum, SaysNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum_of({1, infinity}), infinity);
  EXPECT_EQ(sum_of({-infinity, 2}), -infinity);
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::nanf(""), 1})));
}

TEST(ExactSum, IsTheSameInAnyOrder) {
  const std::uint64_t seed = test::test_seed();
  test::Random random(seed);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<float> numbers;
    for (std::uint32_t i = 1 + random.below(60); i > 0; --i) {
      const std::uint32_t bits = random.bits();
      const float x = std::bit_cast<float>(bits);
      if (std::isfinite(x)) numbers.push_back(x);
    }
    const double forwards = sum_of(numbers);
    EXPECT_EQ(forwards, sum_of({numbers.rbegin(), numbers.rend()})) << "FOVEA_TEST_SEED=" << seed;
    double largest = 0;
    for (const float x : numbers) largest = std::max(largest, std::abs(static_cast<double>(x)));
    long double plain = 0;
    for (const float x : numbers) plain += static_cast<long double>(x);
    EXPECT_LE(std::abs(static_cast<double>(plain - static_cast<long double>(forwards))),
              1e-14 * largest);
  }
}

}  // namespace
}  // namespace fovea::on_host

// A tiled matrix product from its text: compiled by the host's compiler, loaded and launched.

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
