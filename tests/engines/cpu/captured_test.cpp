// Gradients of captured tensors and scalars against sums in double, in every form, type and lane.
#include "engines/cpu/captured/captured.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "ir/print.h"
#include "tests/engines/cpu/captured_case.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

double tolerance(DType type) {
  switch (type) {
    case DType::F16: return 6e-4;
    case DType::BF16: return 5e-3;
    default: return 0;
  }
}

// 1e-6 besides: if tanh is near 1, 1 - tanh^2 has lost so many digits.
void expect_near(const WrittenGradient& gradient, DType type, const std::string& what) {
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    const double expected = gradient.expected[i];
    ASSERT_NEAR(gradient.values[i], expected,
                1e-6 + 2e-6 * gradient.magnitude[i] +
                    (6e-6 + tolerance(type)) * std::fabs(expected) +
                    (type == DType::F16 ? 1e-7 : 0))
        << what << ", element " << i;
  }
}

// Also checks that the order of lanes changes no bit.
void check(CapturedCase& test, const std::string& what) {
  test.run();
  EXPECT_EQ(test.failure, "") << what;
  test.expect();
  const auto& declared = test.problem.program.tensors();
  for (std::size_t i = 0; i < test.tensors.size(); ++i) {
    expect_near(test.tensors[i], test.bindings.tensor_gradients[i].dtype,
                what + ": " + declared[i].name);
  }
  for (const WrittenGradient& scalar : test.scalars) expect_near(scalar, DType::F32, what);
  const std::vector<WrittenGradient> tensors = test.tensors, scalars = test.scalars;
  Random order(test_seed());
  test.run(&order);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(tensors[i].values == test.tensors[i].values) << what;
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    EXPECT_TRUE(scalars[i].values == test.scalars[i].values) << what;
  }
}

const std::vector<std::string>& programs() {
  static const std::vector<std::string> all{
      "mod=\"score * slope[h] + c\" tensor=slope:f32[H] scalar=c",
      "mod=\"cap * tanh(score / cap)\" scalar=cap",
      "mod=\"score * one[] * c\" tensor=one:f32[] scalar=c",
      "mod=\"score * qbias[h, q]\" tensor=qbias:f32[H,Sq]",
      "mod=\"score + kbias[b, k] * score\" tensor=kbias:f32[B,Skv]",
      "mod=\"score + tanh(bias[b, h, q, k] * score)\" tensor=bias:f32[B,H,Sq,Skv]",
      "mod=\"score * bias[k, q]\" tensor=bias:f32[Skv,Sq]",
      "mod=\"score + bias[q, k]\" tensor=bias:f32[Sq,Skv]",
      "mod=\"score * rel[h, q - k + 64]\" tensor=rel:f32[H,256]",
      "mod=\"score * rel[k - q + 20]\" tensor=rel:f32[64]",
      "mod=\"score * rel[h, clamp(q - k, -8, 8) + 8]\" tensor=rel:f32[H,17]",
      "mod=\"score * table[doc[k], doc[q]]\" tensor=table:f32[4,7] tensor=doc:i32[Sq]",
      "mod=\"score * table[h, (q * 7 + k * 3) % 11]\" tensor=table:f32[H,11]",
      "mod=\"score * t[q] * t[k]\" tensor=t:f32[Skv]",
      "mod=\"score + t[b, q] * t[b, k - 5] * u[h // 2]\" tensor=t:f32[B,64] tensor=u:f32[H]",
      "mod=\"score * t[k // 8]\" tensor=t:f32[12]",
      "mod=\"score * t[k, k, h]\" tensor=t:f32[Skv,9,H]",
      "mod=\"q > k ? score * t[q] : score\" tensor=t:f32[Sq]",
      "mod=\"score * t[i32(score * 4.0)]\" tensor=t:f32[8]",
      "mod=\"score * c\" mask=\"u[k] > 0.6\" tensor=u:f32[Skv] scalar=c scalar=unused",
      "mod=\"score + f32(n) * c\" scalar=n:i32 scalar=c"};
  return all;
}

TEST(Captured, EveryFormOfIndices) {
  std::uint64_t seed = test_seed();
  for (const std::string& program : programs()) {
    for (const std::int64_t chunks : {1, 3}) {
      CapturedCase test(program, {.b = 2, .h = 4, .hkv = 2, .sq = 37, .skv = 83}, ++seed,
                        {.chunks = chunks, .dead_percent = chunks == 1 ? 0u : 30u});
      check(test, program);
    }
  }
}

// Loads at every kind of index. The limit is wide, since this does not test what formulas compute.
TEST(Captured, RandomPrograms) {
  const std::uint64_t seed = test_seed();
  int compared = 0;
  for (std::uint64_t i = 0; i < cases(600); ++i) {
    Random random(seed, i);
    const ir::Expr mod = build(draw(random, {.size = 4 + random.below(12), .smooth = true}));
    const ir::Program program(random_declarations(), mod, {}, {});
    CapturedCase test(ir::print(program), {.b = 2, .h = 4, .hkv = 2, .sq = 9, .skv = 70}, seed + i,
                      {.chunks = 2, .dead_percent = random.chance(50) ? 0u : 30u});
    test.run();
    ASSERT_EQ(test.failure, "") << seed_text(seed, i);
    test.expect();
    for (const auto* list : {&test.tensors, &test.scalars}) {
      for (const WrittenGradient& gradient : *list) {
        for (std::size_t j = 0; j < gradient.values.size(); ++j) {
          if (!(gradient.magnitude[j] < 1e4)) continue;  // near a pole
          ASSERT_NEAR(gradient.values[j], gradient.expected[j], 1e-2 * gradient.magnitude[j] + 1e-3)
              << ir::print(program) << '\n'
              << seed_text(seed, i);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Captured, TypesAndStrides) {
  const std::vector<DType> types{DType::F32, DType::F16, DType::BF16, DType::F64};
  std::uint64_t seed = test_seed();
  for (const char* declared : {"f32", "f16", "bf16"}) {
    for (const DType type : types) {
      const std::string of = declared;
      const std::string program = "mod=\"score * t[h, q] + u[k, h] * v[]\" tensor=t:" + of +
                                  "[H,Sq] tensor=u:" + of + "[Skv,H] tensor=v:" + of + "[]";
      CapturedCase test(program, {.b = 1, .h = 3, .hkv = 1, .sq = 19, .skv = 45}, ++seed,
                        {.gaps = true, .gradient_types = {type, type, type}});
      check(test, program);
    }
  }
}

// Tensors too large for copies: elements belong to lanes.
struct LargeCase {
  const char* program;
  Sizes sizes;
  std::int64_t lanes;  // with 3 chunks
  DType gradient = DType::F32;
};

TEST(Captured, LargeTensorsAreSummedInPlace) {
  const Sizes square{.b = 2, .h = 4, .hkv = 2, .sq = 110, .skv = 251};
  const Sizes flat{.b = 2, .h = 2, .hkv = 2, .sq = 25, .skv = 70};
  const Sizes one{.b = 1, .h = 2, .hkv = 2, .sq = 130, .skv = 270};
  const std::vector<LargeCase> all{
      {"mod=\"score * t[b, h, q, k]\" tensor=t:f32[B,H,Sq,Skv]", square, 12},
      {"mod=\"score * t[b, h, q, k] * c\" tensor=t:f32[B,H,Sq,Skv] scalar=c", square, 12},
      {"mod=\"score * t[b, h, q, k]\" tensor=t:bf16[B,H,Sq,Skv]", square, 12, DType::BF16},
      {"mod=\"score * t[b, h, q, k]\" tensor=t:f16[B,H,Sq,Skv]", square, 12},
      {"mod=\"score * t[b, h, q, k]\" tensor=t:f32[B,H,Sq,Skv]", square, 12, DType::F64},
      {"mod=\"score * t[b, h, q, k]\" tensor=t:f32[B,H,Sq,Skv]", square, 12, DType::F16},
      {"mod=\"score * t[q, k]\" tensor=t:f32[Sq,Skv]", one, 3},
      {"mod=\"score * t[h, k]\" tensor=t:f32[H,9000]", flat, 6},
      {"mod=\"score * t[b, q - k]\" tensor=t:f32[B,9000]", flat, 2},
      {"mod=\"score * t[q - k + 9]\" tensor=t:f32[9000000]", flat, 1},
      {"mod=\"score * t[q - k + 9]\" tensor=t:f32[9000]", flat, 1},
      {"mod=\"score * t[q - k + 9]\" tensor=t:f32[9000]", square, 6},
      {"mod=\"score * t[q - k + 9]\" tensor=t:f32[20000]", square, 2},
      {"mod=\"score * t[h, k] + t[h, k + 1]\" tensor=t:f32[H,9000]", flat, 2},
      {"mod=\"score * t[h, k + 1] + t[h, k]\" tensor=t:f32[H,9000]", flat, 2},
      {"mod=\"score * t[h, k] * t[h, q]\" tensor=t:f32[H,9000]", flat, 2},
      {"mod=\"score * t[h, k] + u[b, q, k]\" tensor=t:f32[H,9000] tensor=u:f32[B,100,100]", flat,
       3}};
  std::uint64_t seed = test_seed();
  for (const LargeCase& large : all) {
    CapturedCase test(large.program, large.sizes, ++seed,
                      {.chunks = 3,
                       .gaps = seed % 2 == 0,
                       .gradient_types = {large.gradient, large.gradient},
                       .dead_percent = 20});
    check(test, large.program);
    EXPECT_EQ(test.lanes, large.lanes) << large.program;
  }
}

// Offsets move positions out of the tensors, where several chunks meet at the clamped end; and
// chunks of sequences of other lengths are other keys. Lanes get fewer, results stay.
TEST(Captured, ClampedIndicesAreNobodysOwn) {
  const Sizes sizes{.b = 2, .h = 4, .hkv = 2, .sq = 30, .skv = 61};
  const auto large = [&](const std::string& index, const std::string& extents) {
    return "mod=\"score * t[" + index + "]\" tensor=t:f32[" + extents + "]";
  };
  const std::string by_batch = large("b, q - k", "B,9000");
  const std::string by_head = large("h, k", "H,9000");
  const std::string by_key = large("k, b - h", "9000,2");
  std::uint64_t seed = test_seed();
  const auto run = [&](const std::string& program, const auto& change, std::int64_t lanes) {
    CapturedCase test(program, sizes, ++seed, {.chunks = 3});
    change(test);
    check(test, program);
    EXPECT_EQ(test.lanes, lanes) << program;
  };
  run(by_batch, [](CapturedCase&) {}, 2);
  run(by_batch, [](CapturedCase& test) { test.bindings.b_offset.value = 1; }, 1);
  run(by_head, [](CapturedCase&) {}, 6);
  run(by_head, [](CapturedCase& test) { test.bindings.h_offset.value = 2; }, 3);
  run(by_head, [](CapturedCase& test) { test.bindings.h_offset.value = -1; }, 3);
  run(by_head, [](CapturedCase& test) { test.bindings.k_offset.value = -9; }, 2);
  run(by_key, [](CapturedCase&) {}, 3);
  run(by_key, [](CapturedCase& test) { test.bindings.k_offset.value = 8960; }, 1);
  run(by_key, [](CapturedCase& test) { test.k_lengths = {61, 40}; }, 1);
  run(by_key, [](CapturedCase& test) { test.k_offsets = {5, 25}; }, 1);
  run(by_key, [](CapturedCase& test) { test.k_offsets = {7, 7}; }, 3);
}

TEST(Captured, ManyTermsThatCancel) {
  CapturedCase test("mod=\"score + c + t[h] + u[k % 4]\" tensor=t:f32[H] tensor=u:f32[4] scalar=c",
                    {.b = 1, .h = 1, .hkv = 1, .sq = 1000, .skv = 1000}, test_seed(),
                    {.chunks = 4, .dead_percent = 0});
  test.run();
  test.expect();
  const auto error = [](const WrittenGradient& x, std::size_t i) {
    return std::fabs(x.values[i] - x.expected[i]) / std::fabs(x.expected[i]);
  };
  EXPECT_GE(test.scalars[0].magnitude[0], 300 * std::fabs(test.scalars[0].expected[0]));
  double worst = error(test.scalars[0], 0);
  for (const WrittenGradient& tensor : test.tensors) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i)
      worst = std::max(worst, error(tensor, i));
  }
  std::cout << "relative error " << worst << '\n';
  EXPECT_LE(worst, 6e-6);
}

TEST(Captured, NothingToAdd) {
  for (const Sizes& sizes : {Sizes{.b = 0, .h = 2, .hkv = 1, .sq = 4, .skv = 4},
                             Sizes{.b = 1, .h = 2, .hkv = 1, .sq = 0, .skv = 4},
                             Sizes{.b = 1, .h = 2, .hkv = 1, .sq = 4, .skv = 0},
                             Sizes{.b = 1, .h = 0, .hkv = 0, .sq = 4, .skv = 4}}) {
    CapturedCase test(
        "mod=\"score * t[h] * c + u[q, k]\" tensor=t:f32[H] tensor=u:f32[Sq,Skv] scalar=c", sizes,
        1, {.chunks = sizes.skv == 0 ? 0 : 2});
    check(test, "empty");
    for (const double x : test.tensors[0].values) EXPECT_EQ(x, 0);
    EXPECT_EQ(test.scalars[0].values[0], 0);
  }
  CapturedCase unused("mod=\"score * 2.0\" mask=\"t[k] > 0.7\" tensor=t:f32[Skv] scalar=c",
                      {.sq = 3, .skv = 9}, 1, {});
  check(unused, "unused");
  for (const double x : unused.tensors[0].values) EXPECT_EQ(x, 0);
}

TEST(Captured, AForwardWantsNothing) {
  Problem problem;
  EXPECT_FALSE(cpu::CapturedGradients(problem).any());
  EXPECT_EQ(cpu::CapturedGradients(problem).workspace_bytes({}, {1, 1, 1}), 0u);
}

}  // namespace
}  // namespace fovea::test
