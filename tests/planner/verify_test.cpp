// What FOVEA_VERIFY=first compares: nothing is said of a right result, whatever the layout and the
// features, and a wrong one is named.
#include "planner/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "engines/cpu/engine.h"
#include "engines/reference/engine.h"
#include "tests/attention/bound_call.h"

namespace fovea {
namespace {

using test::BoundCall;

Planner& both_engines() {
  static Planner& planner =
      *new Planner({{&cpu_engine(), false}, {&reference_engine(), /*only_when_named=*/true}});
  return planner;
}

float* numbers(void* data) { return static_cast<float*>(data); }

std::int64_t count(const Sizes& s, std::int64_t heads, std::int64_t rows, std::int64_t features) {
  return (s.t_q > 0 ? 1 : s.b) * heads * rows * features;
}

// A call of the CPU engine on random numbers, run. Its lines are f32.
class CheckedCall {
 public:
  explicit CheckedCall(const std::string& line) : bound(line) {
    EXPECT_EQ(bound.outcome(), "accepted");
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const Sizes& s = bound.problem.sizes;
    const std::int64_t q_rows = s.t_q > 0 ? s.t_q : s.sq, k_rows = s.t_k > 0 ? s.t_k : s.skv;
    const auto fill = [&](void* data, std::int64_t many) {
      for (std::int64_t i = 0; data != nullptr && i < many; ++i) numbers(data)[i] = normal(random);
    };
    fill(bound.bindings.q.data, count(s, s.h, q_rows, s.d));
    fill(bound.bindings.k.data, count(s, s.hkv, k_rows, s.d));
    fill(bound.bindings.v.data, count(s, s.hkv, k_rows, s.dv));
    fill(bound.bindings.grad_o.data, count(s, s.h, q_rows, s.dv));
    fill(const_cast<void*>(bound.bindings.sink), bound.problem.sink ? s.h : 0);
    for (const ir::TensorView& view : bound.tensors) {
      std::int64_t many = 1;
      for (int i = 0; i < view.rank; ++i) many *= view.extent[static_cast<std::size_t>(i)];
      fill(const_cast<void*>(view.data), many);
    }
    run();
  }

  std::string differences() {
    return fovea::differences(both_engines(), {bound.problem, bound.bindings, DeviceKind::Cpu});
  }

  BoundCall bound;

 private:
  void run() {
    const PlannedCall planned = both_engines().make_plan(bound.problem, {cpu_device(), "cpu", {}});
    literals_ = planned.literals;
    bound.bindings.literals = literals_;
    const std::size_t bytes = planned.plan->workspace_bytes(bound.problem.sizes);
    workspace_.resize(bytes + 64);
    void* at = workspace_.data();
    std::size_t space = workspace_.size();
    bound.bindings.workspace = std::align(64, bytes, at, space);
    bound.bindings.workspace_bytes = bytes;
    planned.plan->run(bound.bindings);
  }

  std::vector<float> literals_;
  std::vector<std::byte> workspace_;
};

constexpr const char* right[] = {
    "b=3 h=4 hkv=2 sq=37 skv=41 d=16",
    "b=3 h=4 hkv=2 sq=37 skv=41 d=16 layout=bshd mask=causal lse=1 row_max=1",
    "b=2 h=2 sq=33 d=8 layout=sbhd qlens=20,33 klens=33,9 lse=1",
    "b=2 h=4 hkv=2 sq=33 d=8 q_offset=5 b_offset=2 h_offset=3 h_global=9 mod=alibi dropout=0.3 seed=4",
    "b=2 h=4 sq=33 d=8 sink=1 mod=\"score + t[b, h, q] * c\" tensor=\"t:f32[B,H,Sq]\" scalar=c=0.3",
    "b=1 h=2 hkv=1 sq=1500 skv=1500 d=8 mask=causal lse=1",  // not all rows
    "b=2 h=2 sq=700 skv=1200 d=8 mask=causal_bottom_right",  // of the leaf Sq: all of them
    "layout=thd b=3 h=4 hkv=2 sq=20 skv=20 tq=40 tk=40 cu_q=0,10,30,40 cu_k=0,10,30,40 d=8 lse=1",
};

TEST(Verify, SaysNothingOfARightForward) {
  for (const char* const line : right) EXPECT_EQ(CheckedCall(line).differences(), "") << line;
}

TEST(Verify, NamesAWrongOutput) {
  CheckedCall call("b=3 h=4 hkv=2 sq=37 skv=41 d=16 lse=1");
  const std::int64_t sampled = ((1 * 4 + 2) * 37 + 11) * 16;  // sequence 1 of 3, group 1 of 2
  float& o = numbers(call.bound.bindings.o.data)[sampled];
  const float before = std::exchange(o, o + 1);
  EXPECT_NE(call.differences().find("o differs from the reference by"), std::string::npos);
  o = std::nanf("");
  EXPECT_EQ(call.differences(), "o has 1 NaN and the reference none");
  o = before;
  EXPECT_EQ(call.differences(), "");
  numbers(call.bound.bindings.lse)[(1 * 4 + 2) * 37] += 1;
  EXPECT_NE(call.differences().find("lse differs"), std::string::npos);
}

TEST(Verify, NamesAWrongGradient) {
  // With o = 0 and lse = 0 the backward has a meaning, if not that of a softmax.
  CheckedCall call("direction=backward b=2 h=2 sq=21 skv=19 d=8 mask=causal");
  EXPECT_EQ(call.differences(), "");
  const std::int64_t sampled = (1 * 2 + 1) * 19 * 8;
  numbers(call.bound.bindings.grad_k.data)[sampled] += 10;
  EXPECT_NE(call.differences().find("dk differs"), std::string::npos);
  numbers(call.bound.bindings.grad_q.data)[(1 * 2 + 1) * 21 * 8] = std::nanf("");
  EXPECT_EQ(call.differences(), "dq has 1 NaN and the reference none");
}

TEST(Verify, LeavesAloneWhatCanNotBeSampled) {
  EXPECT_EQ(CheckedCall("b=2 h=2 sq=9 d=8 mod=\"score * B\"").differences(), "");
  EXPECT_EQ(CheckedCall("b=2 h=2 sq=0 d=8").differences(), "");
}

}  // namespace
}  // namespace fovea
