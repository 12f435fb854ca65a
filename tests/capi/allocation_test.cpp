// A call whose plan is cached allocates nothing: not in C, whether it brings the plan or not, and
// not in C++.
#include <gtest/gtest.h>

#include <vector>

#include "fovea/fovea.hpp"
#include "tests/capi/c_call.h"
#include "tests/capi/counted_memory.h"

namespace {

using namespace fovea::testing;

const char* const lines[] = {
    "h=2 sq=8 d=4 lse=1",
    "h=2 sq=8 d=4 layout=bshd mask=causal mod=softcap(20) row_max=1 max_logit=1 sink=1",
    "b=2 h=2 sq=8 d=4 qlens=3,8 klens=5,0 mask=\"q >= k\"",
    "b=2 h=2 sq=8 d=4 layout=thd tq=12 tk=12 cu_q=0,4,12 cu_k=0,8,12",
    "h=2 sq=8 d=4 mod=\"scale_of_a_long_name * score + a_table_with_a_long_name[h, q, k]\" "
    "tensor=a_table_with_a_long_name:f32[H,Sq,Skv] scalar=scale_of_a_long_name=2",
    "direction=backward h=2 sq=8 d=4 mask=causal",
    "direction=backward h=2 sq=8 d=4 mod=\"scale_of_a_long_name * score + slopes[h]\" "
    "tensor=slopes:f32[H] scalar=scale_of_a_long_name=2 grads=q,k,v,slopes,scale_of_a_long_name",
};

TEST(Allocation, ACachedCallInCAllocatesNothing) {
  if (!allocations_are_counted()) GTEST_SKIP() << "sanitizers count for themselves";
  const fovea_plan_options options = reference_options();
  for (const char* line : lines) {
    CCall call(line);
    const auto whole = call.config.direction == FOVEA_FORWARD ? fovea_forward : fovea_backward;
    fovea_status status = FOVEA_OK;
    EXPECT_EQ(allocations_of([&] { status = call.run(); }), 0) << line;
    EXPECT_EQ(status, FOVEA_OK) << line << "\n" << fovea_last_error();
    const auto run_whole = [&] {
      status = whole(call.problem.get(), &options, &call.bindings, nullptr);
    };
    EXPECT_EQ(allocations_of(run_whole), 0) << line;
    EXPECT_EQ(status, FOVEA_OK) << line << "\n" << fovea_last_error();
  }
}

TEST(Allocation, AnAttentionThatWasCalledAllocatesNothing) {
  if (!allocations_are_counted()) GTEST_SKIP() << "sanitizers count for themselves";
  using fovea::Tensor;
  constexpr std::int64_t h = 2, s = 8, d = 4;
  std::vector<float> data[8], lse(h * s), slopes(h, 0.5f), grad_slopes(h);
  std::vector<fovea::View> views;
  for (std::vector<float>& one : data) {
    one.resize(h * s * d, 0.25f);
    views.push_back(Tensor::bhsd(one, 1, h, s, d));
  }
  const Tensor declared("a_tensor_with_a_long_name", fovea::f32, {fovea::H});
  fovea::AttentionOptions options;
  options.mod = "score + a_tensor_with_a_long_name[h] * (q - k)";
  options.mask = "causal";
  options.captured = {fovea::value(declared, slopes)};
  options.engine = "reference";
  fovea::Attention attend(views[0], views[1], views[2], options);
  EXPECT_EQ(allocations_of([&] { attend.forward({.o = views[3], .lse = lse}); }), 0);
  const fovea::Incoming in{.o = views[3], .lse = lse, .grad_o = views[4]};
  const fovea::Gradients out{.q = views[5],
                             .k = views[6],
                             .v = views[7],
                             .captured = {fovea::gradient(declared, grad_slopes)}};
  EXPECT_EQ(allocations_of([&] { attend.backward(in, out); }), 0);
}

}  // namespace
