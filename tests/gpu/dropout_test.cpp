// rng=engine on a GPU: cuDNN's own dropout. With V the identity, o is the dropped matrix of
// probabilities itself; with dO the identity, so is dV, transposed: forward and backward must have
// dropped the same scores, as many as asked for, and scaled the rest.
#include "gpu_pair.h"

namespace fovea::gpu_tests {
namespace {

constexpr std::int64_t n = 128;  // queries, keys and features

// p after dropout, by query and key.
struct Dropped {
  std::vector<double> forward, backward;
};

Dropped run(std::uint64_t seed) {
  const OnGpu here;
  cli::Workload workload = cli::make_workload(
      "b=1 h=1 sq=128 d=128 dtype=bf16 scale=0.001 direction=both dropout=0.25 rng=engine", 0);
  workload.seed = seed;
  workload.q = workload.k = cli::zeros("bf16", workload.q.extents);
  workload.v = workload.q;
  for (std::int64_t i = 0; i < n; ++i) workload.v.set(i * n + i, 1);
  workload.grad_o = workload.v;
  const auto outputs = GpuPair(workload, "cudnn").run_once();
  const cli::Array &o = named(outputs, "o"), &grad_v = named(outputs, "dv");
  Dropped dropped;
  for (std::int64_t i = 0; i < n * n; ++i) {
    dropped.forward.push_back(o.get(i));
    dropped.backward.push_back(grad_v.get(i % n * n + i / n));
  }
  return dropped;
}

TEST(Dropout, ForwardAndBackwardDropTheSame) {
  NEED_STREAMS("cudnn");
  const Dropped one = run(7);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < one.forward.size(); ++i) {
    const double p = one.forward[i];
    EXPECT_EQ(p != 0, one.backward[i] != 0) << "at " << i;
    if (p == 0) continue;
    ++kept;
    EXPECT_NEAR(p, 1.0 / n / 0.75, 1e-4);  // all probabilities are 1/n
  }
  EXPECT_NEAR(static_cast<double>(kept) / (n * n), 0.75, 0.02);
}

TEST(Dropout, SeedsGiveTheirOwnMasksAndGiveThemAgain) {
  NEED_STREAMS("cudnn");
  const Dropped one = run(7), again = run(7);
  const Dropped other = run(8);
  EXPECT_EQ(one.forward, again.forward);
  EXPECT_NE(one.forward, other.forward);
}

}  // namespace
}  // namespace fovea::gpu_tests
