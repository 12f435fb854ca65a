// With deterministic=1 the bits of every gradient are the same in whatever order blocks and threads
// run: the host draws another one for each launch.
#include <gtest/gtest.h>

#include "cli/call.h"
#include "tests/jit_host/host_gpu.h"

namespace fovea::on_host {
namespace {

constexpr const char* lines[] = {
    "b=2 h=4 hkv=2 sq=70 skv=150 d=32 mask=causal_bottom_right",
    "b=3 h=2 sq=40 d=16 dtype=bf16 mod=\"score + t[h]\" tensor=\"t:f32[H]\" grads=q,k,v,t",
    "b=2 h=2 sq=40 d=16 mod=\"score + t[q] * u[k]\" tensor=\"t:f32[Sq]\" tensor=\"u:f32[Skv]\" "
    "grads=q,k,v,t,u",
    "b=3 h=2 sq=30 d=16 mod=\"score + t[h, q, k]\" tensor=\"t:bf16[H,Sq,Skv]\" grads=q,k,v,t",
    "b=2 h=2 sq=50 d=16 mod=\"score + t[h, clamp(q - k, -9, 9) + 9]\" tensor=\"t:f32[H,19]\" "
    "grads=q,k,v,t",
    "b=2 h=2 sq=50 d=16 mod=\"c * tanh(score / c)\" scalar=\"c=2\" sink=1 grads=q,k,v,c,sink",
    // The kernels for sm_90: several tiles of keys and of queries, some of which add nothing to dQ.
    "b=1 h=4 hkv=2 sq=200 skv=400 d=64 dtype=bf16 mask=sliding(90)",
    "b=1 h=2 sq=200 skv=300 d=128 dtype=bf16 mod=\"score + t[h] + u[q] + w[k]\" "
    "tensor=\"t:f32[H]\" tensor=\"u:f32[Sq]\" tensor=\"w:f32[Skv]\" grads=q,k,v,t,u,w",
};

cli::Results run(const std::string& line) {
  cli::CallOptions options;
  options.engine = "jit";
  options.device = "cuda:0";
  return cli::run_workload(cli::make_workload(line, 0), options);
}

TEST(DeterministicOnHost, BitsDoNotDependOnTheOrderOfBlocksAndThreads) {
  use_host_gpu();
  for (const std::string line : lines) {
    const std::string whole = line + " direction=both deterministic=1";
    const cli::Results first = run(whole), second = run(whole);
    ASSERT_EQ(first.arrays.size(), second.arrays.size());
    for (const cli::NamedArray& array : first.arrays) {
      const cli::Array* const again = second.find(array.name);
      ASSERT_NE(again, nullptr);
      EXPECT_EQ(array.array.bytes, again->bytes) << array.name << " of " << whole;
    }
  }
}

}  // namespace
}  // namespace fovea::on_host
