// The contract between engine, plan and bindings: what is baked, what is refused, what a run may
// touch.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/error.h"
#include "tests/capi/counted_memory.h"
#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

Baked baked(const Problem& problem) { return reference_engine().bake(problem, {}).baked; }

std::unique_ptr<Plan> compile(const Problem& problem, const Device& device) {
  const Engine& engine = reference_engine();
  return engine.compile(baked(problem), engine.judge(baked(problem), device), device);
}

Problem backward_problem(const std::string& program = "") {
  Problem problem = make_problem(small_sizes(3, 4), program);
  problem.direction = Direction::Backward;
  return problem;
}

// Of f64 problems literals stay in the formula, as the doubles that they are.
Problem in_f32(Problem problem) {
  for (const NamedTensor& tensor : named_tensors()) (problem.*tensor.spec).dtype = DType::F32;
  return problem;
}

TEST(Bake, WhatBindingsCarrySharesAPlan) {
  const Problem one = in_f32(backward_problem("mod=\"score * 0.3\""));
  Problem other = in_f32(backward_problem("mod=\"score * 0.4\""));
  other.sizes = {5, 6, 2, 77, 88, 64, 32, 9, 9};
  other.scale = 0.7f;
  other.dropout = 0.25f;
  other.q.strides = other.grad_o.strides = Strides{1, 2, 3, 4};
  other.b_offset = other.h_offset = other.q_offset = other.k_offset = 3;
  other.h_global = 12;
  other.deterministic = other.capture = true;
  other.precision = Precision::Strict;
  other.row_max = true;  // an output of forwards only
  other.want_tensors = {};
  EXPECT_NE(one, other);
  EXPECT_EQ(baked(one), baked(other));
  EXPECT_EQ(reference_engine().bake(one, {}).literals, std::vector<float>{0.3f});
  EXPECT_EQ(reference_engine().bake(other, {}).literals, std::vector<float>{0.4f});
}

TEST(Bake, WhatAPlanDependsOnIsInTheKey) {
  const std::string program = R"p(mod="score + t[h] * c" tensor="t:f32[H]" scalar="c=1")p";
  const auto changed = [&](auto change) {
    Problem problem = backward_problem(program);
    change(problem);
    return baked(problem) != baked(backward_problem(program));
  };
  EXPECT_TRUE(changed([](Problem& p) { p.direction = Direction::Forward; }));
  EXPECT_TRUE(changed([](Problem& p) { p.layout = Layout::Thd; }));
  EXPECT_TRUE(changed([](Problem& p) { p.q.dtype = DType::F32; }));
  EXPECT_TRUE(changed([](Problem& p) { p.grad_v.dtype = DType::F16; }));
  EXPECT_TRUE(changed([](Problem& p) { p.sink = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.grad_lse = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.has_q_lengths = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.has_k_lengths = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.has_q_offsets = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.has_k_offsets = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_q = false; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_k = false; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_v = false; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_sink = true; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_tensors = {true}; }));
  EXPECT_TRUE(changed([](Problem& p) { p.want_scalars = {true}; }));
  EXPECT_FALSE(changed([](Problem& p) { p.want_tensors = {false}; }));
  EXPECT_FALSE(changed([](Problem& p) { p.h_global = 8; }));
}

TEST(Bake, TheGlobalHeadCountOnlyWhereAGradientHasThatExtent) {
  Problem problem = backward_problem(R"p(mod="score + t[h]" tensor="t:f32[H]")p");
  problem.want_tensors = {true};
  Problem sharded = problem;
  sharded.h_global = 8;
  EXPECT_NE(baked(problem), baked(sharded));
}

TEST(Judge, RefusesWhatItCannotDoWithReasons) {
  Problem problem = backward_problem();
  Device gpu;
  gpu.kind = DeviceKind::Cuda;
  gpu.name = "NVIDIA H200";
  Verdict verdict = reference_engine().judge(baked(problem), gpu);
  EXPECT_EQ(verdict.answer, Answer::No);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0].code, "device_not_cpu");
  EXPECT_EQ(verdict.reasons[0].got, "device NVIDIA H200");
  EXPECT_THROW(compile(problem, gpu), Unsupported);

  problem.dropout = 0.5f;
  problem.rng = Rng::Engine;
  verdict = reference_engine().prove(baked(problem), {});
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0].code, "rng_engine_unknown");
  EXPECT_THROW(compile(problem, {}), Unsupported);
  EXPECT_EQ(reference_engine().judge(baked(problem), gpu).reasons.size(), 2u);

  problem.rng = Rng::Portable;
  EXPECT_EQ(reference_engine().judge(baked(problem), {}).answer, Answer::Proven);
}

TEST(Run, AllocatesNothing) {
  if (!testing::allocations_are_counted()) GTEST_SKIP() << "sanitizers count for themselves";
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Example example = random_example(seed);
    for (const Direction direction : {Direction::Forward, Direction::Backward}) {
      std::vector<float> literals;
      const auto plan = example.plan(direction, literals);
      Bindings call = example.bindings();
      GuardedBytes workspace(plan->workspace_bytes(example.problem.sizes));
      call.literals = literals;
      call.workspace = workspace.data();
      EXPECT_EQ(testing::allocations_of([&] { plan->run(call); }), 0) << "seed " << seed;
    }
  }
}

std::vector<std::vector<double>> results(Example& example) {
  example.forward_and_backward();
  std::vector<std::vector<double>> out{example.o.numbers(), example.lse.numbers(),
                                       example.grad_q.numbers(), example.grad_k.numbers(),
                                       example.grad_v.numbers()};
  for (const CapturedArrays& tensor : example.tensors) out.push_back(tensor.gradient.numbers());
  return out;
}

// Bit by bit, wherever the workspace lies and whatever was in it.
TEST(Run, IsDeterministic) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Example one = random_example(seed), other = random_example(seed);
    for (std::size_t slot = 0; slot < one.tensors.size(); ++slot) {
      if (!one.problem.want_tensors[slot]) one.tensors[slot].gradient.fill(0);
      if (!one.problem.want_tensors[slot]) other.tensors[slot].gradient.fill(0);
    }
    EXPECT_EQ(results(one), results(other)) << "seed " << seed;
  }
}

TEST(Run, IsSafeFromManyThreads) {
  Example shared = filled(make_problem(
      small_sizes(9, 11, 4, 2), R"p(mod="softcap(2) + t[h]" mask="causal" tensor="t:f32[H]")p"));
  shared.forward();
  std::vector<float> literals;
  const auto plan = shared.plan(Direction::Backward, literals);
  Bindings common = shared.bindings();
  common.literals = literals;
  constexpr std::size_t threads = 8;
  std::vector<Array> dq(threads, shared.grad_q), dk(threads, shared.grad_k),
      dv(threads, shared.grad_v), dt(threads, shared.tensor("t").gradient);
  std::vector<std::thread> running;
  for (std::size_t i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      for (int repeat = 0; repeat < 5; ++repeat) {
        GuardedBytes workspace(plan->workspace_bytes(shared.problem.sizes));
        Bindings call = common;
        call.workspace = workspace.data();
        call.grad_q.data = dq[i].data(), call.grad_k.data = dk[i].data();
        call.grad_v.data = dv[i].data();
        const BoundGradient gradient{dt[i].data(), dt[i].dtype, {1}};
        call.tensor_gradients = {&gradient, 1};
        plan->run(call);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (std::size_t i = 1; i < threads; ++i) {
    EXPECT_EQ(dq[i].numbers(), dq[0].numbers());
    EXPECT_EQ(dk[i].numbers(), dk[0].numbers());
    EXPECT_EQ(dv[i].numbers(), dv[0].numbers());
    EXPECT_EQ(dt[i].numbers(), dt[0].numbers());
  }
}

// Dense bytes of what the plan says it holds at once: one key head, one row, and the sums.
TEST(Workspace, IsReportedForSizes) {
  Problem problem = backward_problem(R"p(mod="score + t[k]" tensor="t:f32[Skv]")p");
  problem.want_tensors = {true};
  const auto plan = compile(problem, {});
  Sizes larger = problem.sizes;
  larger.b = 100;
  EXPECT_EQ(plan->workspace_bytes(larger), plan->workspace_bytes(problem.sizes));
  larger.skv += 8;  // K, dK, V, dV and the tensor's gradient have 8 rows more, in whole lines
  EXPECT_EQ(plan->workspace_bytes(larger) - plan->workspace_bytes(problem.sizes),
            8u * 8u * (3 + 3 + 2 + 2 + 1));
  EXPECT_EQ(plan->workspace_bytes(larger) % 64, 0u);
  larger.skv = std::int64_t{1} << 62;
  EXPECT_THROW(plan->workspace_bytes(larger), InvalidArgument);
}

}  // namespace
}  // namespace fovea::test
