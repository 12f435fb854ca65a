// A plan allocates nothing when it runs: forward and backward, with formulas, masks, captured
// tensors and their gradients, split keys, dropout, on the caller alone and on the engine's
// threads.
#include <gtest/gtest.h>

#include "attention/pool.h"
#include "engines/cpu/engine.h"
#include "tests/attention/bound_call.h"
#include "tests/capi/counted_memory.h"

namespace fovea::test {
namespace {

long allocations_of_a_run(const std::string& line, Executor& executor) {
  BoundCall call(line);
  const Baking baking = cpu_engine().bake(call.problem, cpu_device());
  const std::unique_ptr<Plan> plan = cpu_engine().compile(
      baking.baked, cpu_engine().judge(baking.baked, cpu_device()), cpu_device());
  call.bind(*plan, baking.literals);
  call.bindings.executor = &executor;
  return testing::allocations_of([&] { plan->run(call.bindings); });
}

TEST(Allocation, APlanAllocatesNothingWhenItRuns) {
  if (!testing::allocations_are_counted()) GTEST_SKIP() << "sanitizers count for themselves";
  const std::string formulas =
      "mod=\"cap * tanh(score / cap) + slope[h] * (k - q) + bias[h,q,k]\""
      " mask=\"q >= k && doc[b,q] == doc[b,k]\" scalar=\"cap=30\" tensor=\"slope:f32[H]\""
      " tensor=\"bias:f32[H,Sq,Skv]\" tensor=\"doc:i32[B,Sq]\" dropout=0.1 sink=1";
  const std::vector<std::string> lines{
      "b=2 h=4 hkv=2 sq=300 d=64 lse=1 row_max=1 max_logit=1",
      "b=2 h=4 hkv=2 sq=300 d=64 " + formulas,
      "b=1 h=4 hkv=2 sq=1 skv=5000 d=32 dtype=bf16 lse=1",
      "b=2 h=4 hkv=2 sq=300 d=64 direction=backward",
      "b=2 h=4 hkv=2 sq=300 d=64 direction=backward grads=q,k,v,slope,cap,bias,sink " + formulas,
  };
  static Pool& one_thread = *new Pool(1);  // never destroyed, as its class asks
  for (const std::string& line : lines) {
    EXPECT_EQ(allocations_of_a_run(line, one_thread), 0) << line;
    EXPECT_EQ(allocations_of_a_run(line, own_pool()), 0) << line;
  }
}

}  // namespace
}  // namespace fovea::test
