// Features that finite differences do not show: layouts, offsets, where values come from, dropout,
// and sizes of zero.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/philox.h"
#include "base/error.h"
#include "tests/engines/reference/example.h"
#include "tests/error_of.h"

namespace fovea::test {
namespace {

void run_with(Example& example, Direction direction, Bindings call) {
  std::vector<float> literals;
  const auto plan = example.plan(direction, literals);
  GuardedBytes workspace(plan->workspace_bytes(call.sizes));
  call.literals = literals;
  call.workspace = workspace.data();
  plan->run(call);
  EXPECT_TRUE(workspace.zones_intact());
}

// A shard of heads: formulas, dropout and captured gradients go by the global head.
TEST(Offsets, AShardOfHeadsIsAPartOfTheWhole) {
  const std::string program = R"p(mod="alibi + t[h] * score" tensor="t:f32[H]")p";
  Problem problem = make_problem(small_sizes(3, 4, 4, 4), program);
  problem.dropout = 0.5f;
  Example whole = filled(problem);
  whole.seed = 77;
  whole.forward_and_backward();
  problem.sizes.h = problem.sizes.hkv = 2;
  problem.h_global = 4, problem.h_offset = 2;
  Example shard = filled(problem);
  shard.seed = 77;
  const auto second_half = [](const Array& array) {
    const std::vector<double> numbers = array.numbers();
    return std::vector<double>(numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2),
                               numbers.end());
  };
  shard.q.assign(second_half(whole.q));
  shard.k.assign(second_half(whole.k));
  shard.v.assign(second_half(whole.v));
  shard.grad_o.assign(second_half(whole.grad_o));
  shard.tensor("t").value.assign(whole.tensor("t").value.numbers());
  shard.forward_and_backward();
  EXPECT_EQ(shard.o.numbers(), second_half(whole.o));
  EXPECT_EQ(shard.lse.numbers(), second_half(whole.lse));
  EXPECT_EQ(shard.grad_q.numbers(), second_half(whole.grad_q));
  const std::vector<double> gradient = whole.tensor("t").gradient.numbers();
  EXPECT_EQ(shard.tensor("t").gradient.numbers(),
            (std::vector<double>{0, 0, gradient[2], gradient[3]}));
}

// A decoder's step with its query offset is the last row of the whole.
TEST(Offsets, ADecodersStepIsTheLastRow) {
  Problem problem =
      make_problem(small_sizes(5, 5), R"p(mod="score + 0.1 * (k - q)" mask="causal")p");
  problem.dropout = 0.5f;
  Example whole = filled(problem);
  whole.forward();
  problem.sizes.sq = 1;
  problem.q_offset = 4;
  Example step = filled(problem);
  for (std::int64_t d = 0; d < 3; ++d) step.q.set({0, 0, 0, d}, whole.q.get({0, 0, 4, d}));
  step.k.assign(whole.k.numbers());
  step.v.assign(whole.v.numbers());
  step.forward();
  EXPECT_EQ(step.lse.number(0), whole.lse.number(4));
  EXPECT_EQ(step.o.get({0, 0, 0, 1}), whole.o.get({0, 0, 4, 1}));
}

TEST(PerCallValues, AreReadWhereTheyAre) {
  Problem problem = make_problem(
      small_sizes(3, 4), R"p(mod="c * score + n * (k - q)" scalar="c=0.5" scalar="n:i32=2")p");
  problem.dropout = 0.5f;
  problem.q_offset = 3, problem.k_offset = 1, problem.b_offset = 2, problem.h_offset = 5;
  Example example = filled(problem);
  example.seed = 11, example.offset = 12, example.scale = 0.75f;
  example.forward();
  const std::vector<double> right = example.o.numbers();

  Bindings call = example.bindings();
  const float scale = 0.75f, dropout = 0.5f, c = 0.5f;
  const std::uint64_t seed = 11, offset = 12;
  const std::int32_t b = 2, h = 5, q = 3, k = 1, n = 2;
  call.scale = {9, &scale}, call.dropout = {0.1f, &dropout};
  call.seed = {1, &seed}, call.offset = {1, &offset};
  call.b_offset = {9, &b}, call.h_offset = {9, &h};
  call.q_offset = {9, &q}, call.k_offset = {9, &k};
  std::vector<PerCall<ir::ScalarValue>> scalars(2);
  for (std::size_t slot = 0; slot < 2; ++slot) {
    const bool is_float = problem.program.scalars()[slot].type == ir::Type::F32;
    scalars[slot].device = is_float ? reinterpret_cast<const ir::ScalarValue*>(&c)
                                    : reinterpret_cast<const ir::ScalarValue*>(&n);
  }
  call.scalars = scalars;
  example.o.memory.poison();
  run_with(example, Direction::Forward, call);
  EXPECT_EQ(example.o.numbers(), right);
}

TEST(Dropout, DropsWhatPhiloxSays) {
  Problem problem = make_problem(small_sizes(6, 9, 4, 2));
  problem.sizes.b = 2;
  problem.sizes.dv = 9;
  problem.dropout = 0.3f;
  Example example = filled(problem);
  example.seed = 0x1234567890abcdef;
  example.offset = 42;
  for (std::size_t i = 0; i < example.v.count(); ++i) example.v.put(i, 0);
  for (const std::int64_t b : {0, 1}) {
    for (const std::int64_t g : {0, 1}) {
      for (std::int64_t j = 0; j < 9; ++j) example.v.set({b, g, j, j}, 1);  // O = dropout(p)
    }
  }
  example.forward();
  int dropped = 0;
  for (std::uint32_t at = 0; at < 2 * 4 * 6 * 9; ++at) {
    const std::uint32_t k = at % 9, q = at / 9 % 6, bh = at / 54;
    const Philox4 words = philox(example.seed, {k / 4, q, bh, 42});
    const bool keeps = words[k % 4] >= static_cast<std::uint32_t>(0.3f * 4294967296.0);
    EXPECT_EQ(example.o.get({bh / 4, bh % 4, q, k}) != 0, keeps);
    dropped += !keeps;
  }
  EXPECT_NEAR(dropped, 432 * 0.3, 40);
}

TEST(Dropout, OfEverythingGivesZeros) {
  Problem problem = make_problem(small_sizes(2, 3));
  problem.dropout = 1;
  Example example = filled(problem);
  example.forward_and_backward();
  for (const double number : example.o.numbers()) EXPECT_EQ(number, 0);
  for (const double number : example.grad_v.numbers()) EXPECT_EQ(number, 0);
  EXPECT_TRUE(std::isfinite(example.grad_q.number(0)));
}

TEST(Sizes, OfZeroAreValid) {
  for (std::int64_t Sizes::* field : {&Sizes::b, &Sizes::sq, &Sizes::skv, &Sizes::d, &Sizes::dv}) {
    Problem problem = make_problem(
        small_sizes(2, 3, 2, 1), R"p(mod="score + t[q, k]" mask="causal" tensor="t:f32[Sq,Skv]")p");
    problem.sizes.*field = 0;
    problem.row_max = problem.max_logit = problem.grad_lse = true;
    Example example = filled(problem);
    example.grad_lse.fill(1);
    example.forward_and_backward();
    for (const Array* array : {&example.o, &example.grad_q, &example.grad_k, &example.grad_v,
                               &example.tensors[0].gradient}) {
      for (const double number : array->numbers()) EXPECT_TRUE(std::isfinite(number));
    }
    if (field == &Sizes::skv) {
      for (const double lse : example.lse.numbers()) EXPECT_EQ(lse, -INFINITY);
    }
    if (field == &Sizes::d) {
      EXPECT_EQ(example.lse.number(0), example.tensors[0].value.number(0));
    }
    if (field == &Sizes::b) {
      EXPECT_EQ(example.max_logit.number(0), -INFINITY);
    }
  }
}

TEST(Sizes, NoHeads) {
  Problem problem = make_problem(small_sizes(2, 3, 0, 0));
  Example none = filled(problem);
  none.forward_and_backward();
  problem.sizes.hkv = 2;  // no queries look at these keys: their gradients are zero
  Example keys = filled(problem);
  keys.forward_and_backward();
  for (const double number : keys.grad_k.numbers()) EXPECT_EQ(number, 0);
}

TEST(Wanted, OnlyWhatIsAskedForIsWritten) {
  Problem problem = make_problem(small_sizes(2, 3), R"p(mod="score + t[k]" tensor="t:f32[Skv]")p");
  Example example(problem);
  example.fill(1);
  example.problem.want_q = false, example.problem.want_v = false;
  example.forward();
  Bindings call = example.bindings();
  call.grad_q = call.grad_v = {};
  call.tensor_gradients = {};
  call.scalar_gradients = {};
  call.row_max = call.max_logit = nullptr;
  run_with(example, Direction::Backward, call);
  EXPECT_NE(example.grad_k.number(0), 0);
}

// Element types of tensors and captured tensors, and their gradients' types, strides and extents.

TEST(Types, OutputsAreRoundedOnce) {
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) {
    Problem problem = make_problem(small_sizes(5, 6), "mod=\"softcap(3)\"");
    for (TensorSpec* spec : {&problem.q, &problem.k, &problem.v, &problem.o, &problem.grad_o,
                             &problem.grad_q, &problem.grad_k, &problem.grad_v}) {
      spec->dtype = type;
    }
    Example narrow = filled(problem);
    Example wide = filled(make_problem(small_sizes(5, 6), "mod=\"softcap(3)\""));
    wide.q.assign(narrow.q.numbers());
    wide.k.assign(narrow.k.numbers());
    wide.v.assign(narrow.v.numbers());
    wide.grad_o.assign(narrow.grad_o.numbers());
    narrow.forward();
    wide.forward();
    const auto rounded = [&](const Array& exact) {
      Array out = Array::dense(type, {static_cast<std::int64_t>(exact.count())});
      out.assign(exact.numbers());
      return out.numbers();
    };
    EXPECT_EQ(narrow.o.numbers(), rounded(wide.o)) << dtype_name(type);
    wide.o.assign(narrow.o.numbers());  // the backward starts from what is given
    wide.lse.assign(narrow.lse.numbers());
    narrow.backward();
    wide.backward();
    EXPECT_EQ(narrow.grad_q.numbers(), rounded(wide.grad_q)) << dtype_name(type);
    EXPECT_EQ(narrow.grad_k.numbers(), rounded(wide.grad_k)) << dtype_name(type);
    EXPECT_EQ(narrow.grad_v.numbers(), rounded(wide.grad_v)) << dtype_name(type);
  }
}

// Through float, 1 + 2^-11 + 2^-40 would first become 1 + 2^-11, a tie, and then 1.
TEST(Types, DoublesAreNotRoundedTwice) {
  std::uint16_t bits = 0;
  write_number(&bits, DType::F16, 0, 1 + std::ldexp(1.0, -11) + std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0x3c01);
  write_number(&bits, DType::F16, 0, 1 + 3 * std::ldexp(1.0, -11) - std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0x3c01);
  write_number(&bits, DType::BF16, 0, -1 - std::ldexp(1.0, -8) - std::ldexp(1.0, -40));
  EXPECT_EQ(bits, 0xbf81);
  write_number(&bits, DType::F16, 0, 1e300);
  EXPECT_EQ(bits, 0x7c00);
  write_number(&bits, DType::F16, 0, -1e-300);
  EXPECT_EQ(bits, 0x8000);
  write_number(&bits, DType::BF16, 0, std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(bfloat16_to_float(bits)));
}

TEST(Captured, TensorsOfEveryType) {
  Example example = filled(make_problem(
      small_sizes(1, 1),
      R"p(mod="t0[k] + t1[k] + t2[k] + t3[k] + t4[k] + t5[k] + (t6[k] ? 0.5 : 0.25)" )p"
      R"p(tensor="t0:f32[1]" tensor="t1:f16[1]" tensor="t2:bf16[1]" tensor="t3:i32[1]" )p"
      R"p(tensor="t4:i64[1]" tensor="t5:u8[1]" tensor="t6:bool[1]")p"));
  const char* names[] = {"t0", "t1", "t2", "t3", "t4", "t5", "t6"};
  const double values[] = {1, 20, 304, 4000, 50000, 200, 1};
  for (std::size_t i = 0; i < 7; ++i) example.tensor(names[i]).value.put(0, values[i]);
  example.problem.grad_lse = true;
  example.grad_lse.fill(3);
  example.forward_and_backward();
  EXPECT_EQ(example.lse.number(0), 1 + 20 + 304 + 4000 + 50000 + 200 + 0.5);
  for (const char* name : {"t0", "t1", "t2"}) EXPECT_EQ(example.tensor(name).gradient.number(0), 3);
}

TEST(Captured, GradientsInTheirOwnTypeAndStrides) {
  Problem problem =
      make_problem(small_sizes(3, 4), R"p(mod="score + t[q, k]" tensor="t:f32[Sq,Skv]")p");
  Example dense = filled(problem), other = filled(problem);
  other.tensor("t").gradient = Array(DType::BF16, {3, 4}, {2, 7});
  dense.forward_and_backward();
  other.forward_and_backward();
  Array rounded = Array::dense(DType::BF16, {3, 4});
  rounded.assign(dense.tensor("t").gradient.numbers());
  EXPECT_EQ(other.tensor("t").gradient.numbers(), rounded.numbers());
}

TEST(Captured, ATensorLargerThanDeclaredIsRefusedWhereItsGradientIsWanted) {
  Example example =
      filled(make_problem(small_sizes(2, 3), R"p(mod="score + t[k]" tensor="t:f32[Skv]")p"));
  example.forward();
  example.tensor("t") = {Array::dense(DType::F64, {4}), Array::dense(DType::F64, {4})};
  EXPECT_EQ(error_of<InvalidArgument>([&] { example.backward(); }),
            "tensor 't' is bound with 4 elements, but its declared extents have 3; "
            "if its gradient is wanted, declare it as large as it is");
}

}  // namespace
}  // namespace fovea::test
