// rng=engine on a GPU: cuDNN's own dropout. With V the identity, o is the dropped matrix of
// probabilities itself; with dO the identity, so is dV, transposed: forward and backward must have
// dropped the same scores, as many as asked for, and scaled the rest.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "gpu_call.h"

namespace fovea::gpu_tests {
namespace {

constexpr std::size_t n = 128;  // queries, keys and features

float number(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::vector<std::uint16_t> identity() {
  std::vector<std::uint16_t> bits(n * n, 0);
  for (std::size_t i = 0; i < n; ++i) bits[i * n + i] = 0x3f80;
  return bits;
}

struct Pair {
  fovea_problem forward = nullptr, backward = nullptr;
  fovea_plan plans[2] = {nullptr, nullptr};
  explicit Pair(const std::string& line) {
    EXPECT_EQ(fovea_problem_parse(line.c_str(), &forward, &backward), FOVEA_OK);
    fovea_plan_options options{};
    options.struct_size = sizeof options;
    options.engine = "cudnn";
    options.device = "cuda:0";
    EXPECT_EQ(fovea_plan_create(forward, &options, &plans[0]), FOVEA_OK) << fovea_last_error();
    EXPECT_EQ(fovea_plan_create(backward, &options, &plans[1]), FOVEA_OK) << fovea_last_error();
  }
  ~Pair() {
    for (const fovea_plan plan : plans) fovea_plan_destroy(plan);
    fovea_problem_destroy(forward);
    fovea_problem_destroy(backward);
  }
};

struct Dropped {
  std::vector<std::uint16_t> forward, backward;  // p after dropout, by query and key; bits
};

Dropped run(const std::string& words, std::uint64_t seed) {
  const OnGpu here;
  Pair pair("b=1 h=1 sq=128 d=128 dtype=bf16 scale=0.001 direction=both " + words);
  GpuMemory q(n * n * 2), k(n * n * 2), v(n * n * 2), o(n * n * 2), grad_o(n * n * 2);
  GpuMemory dq(n * n * 2), dk(n * n * 2), dv(n * n * 2), lse(n * 4), workspace(64 << 20);
  const std::vector<std::uint16_t> ones = identity(), zeros(n * n, 0);
  q.send(zeros.data());
  k.send(zeros.data());
  v.send(ones.data());
  grad_o.send(ones.data());
  fovea_bindings b{};
  b.struct_size = sizeof b;
  b.q.data = q.data(), b.k.data = k.data(), b.v.data = v.data(), b.o.data = o.data();
  b.lse = lse.data();
  b.seed.value = seed;
  b.workspace = workspace.data(), b.workspace_bytes = workspace.bytes();
  EXPECT_EQ(fovea_plan_run(pair.plans[0], &b), FOVEA_OK) << fovea_last_error();
  b.grad_o.data = grad_o.data();
  b.grad_q.data = dq.data(), b.grad_k.data = dk.data(), b.grad_v.data = dv.data();
  EXPECT_EQ(fovea_plan_run(pair.plans[1], &b), FOVEA_OK) << fovea_last_error();
  Dropped dropped;
  dropped.forward.resize(n * n);
  o.fetch(dropped.forward.data());  // waits
  std::vector<std::uint16_t> transposed(n * n);
  dv.fetch(transposed.data());
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) dropped.backward.push_back(transposed[j * n + i]);
  }
  return dropped;
}

TEST(Dropout, ForwardAndBackwardDropTheSame) {
  NEED_GPU();
  const Dropped one = run("dropout=0.25 rng=engine", 7);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n * n; ++i) {
    const float p = number(one.forward[i]);
    EXPECT_EQ(p != 0, number(one.backward[i]) != 0) << "at " << i;
    if (p == 0) continue;
    ++kept;
    EXPECT_NEAR(p, 1.0f / n / 0.75f, 1e-4f);  // all probabilities are 1/n
  }
  EXPECT_NEAR(static_cast<double>(kept) / (n * n), 0.75, 0.02);
}

TEST(Dropout, SeedsGiveTheirOwnMasksAndGiveThemAgain) {
  NEED_GPU();
  const Dropped one = run("dropout=0.25 rng=engine", 7), again = run("dropout=0.25 rng=engine", 7);
  const Dropped other = run("dropout=0.25 rng=engine", 8);
  EXPECT_EQ(one.forward, again.forward);
  EXPECT_NE(one.forward, other.forward);
}

}  // namespace
}  // namespace fovea::gpu_tests
