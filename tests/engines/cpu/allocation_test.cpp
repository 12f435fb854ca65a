// A plan allocates nothing when it runs: forward and backward, with formulas, masks, captured
// tensors and their gradients, split keys, dropout, on the caller alone and on the engine's
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engines/cpu/engine.h"
#include "engines/cpu/pool.h"
#include "tests/attention/bound_call.h"

namespace {
std::atomic<long> allocations{0};
}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool counting = false;  // sanitizers have operators of their own
#else
constexpr bool counting = true;
// Not inlined: GCC would see a free() of what it takes for the standard new.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

namespace fovea::test {
namespace {

long allocations_of_a_run(const std::string& line, Executor& executor) {
  BoundCall call(line);
  const Baking baking = cpu_engine().bake(call.problem, cpu_device());
  const std::unique_ptr<Plan> plan = cpu_engine().compile(baking.baked, cpu_device());
  const std::size_t bytes = plan->workspace_bytes(call.problem.sizes);
  const std::unique_ptr<void, void (*)(void*)> workspace(
      std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64), std::free);
  call.bindings.workspace = workspace.get();
  call.bindings.workspace_bytes = bytes;
  call.bindings.literals = baking.literals;
  call.bindings.tensors = call.tensors;
  call.bindings.scalars = call.scalars;
  call.bindings.tensor_gradients = call.tensor_gradients;
  call.bindings.scalar_gradients = call.scalar_gradients;
  call.bindings.executor = &executor;
  plan->run(call.bindings);  // the pool may start its threads now
  const long before = allocations;
  plan->run(call.bindings);
  return allocations - before;
}

TEST(Allocation, APlanAllocatesNothingWhenItRuns) {
  if (!counting) GTEST_SKIP() << "sanitizers count for themselves";
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
  for (const std::string& line : lines) {
    EXPECT_EQ(allocations_of_a_run(line, cpu::serial_executor()), 0) << line;
    EXPECT_EQ(allocations_of_a_run(line, cpu::own_pool()), 0) << line;
  }
}

}  // namespace
}  // namespace fovea::test
