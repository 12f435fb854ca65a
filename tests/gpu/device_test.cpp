// What a plan promises beyond right numbers, on a GPU: many threads on streams of their own, CUDA
// graphs, batches that share graphs, dropout that forward and backward agree on.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cuda/driver.h"
#include "fovea/fovea.hpp"
#include "gpu_call.h"

namespace fovea::gpu_tests {
namespace {

// How many graphs were built while it lives, by what the engine logs.
class BuiltGraphs {
 public:
  BuiltGraphs() {
    fovea_set_log(
        [](void* count, const char* text) {
          if (std::strstr(text, "cudnn: built a graph") != nullptr) ++*static_cast<int*>(count);
        },
        &count_);
  }
  ~BuiltGraphs() { fovea_set_log(nullptr, nullptr); }
  BuiltGraphs(const BuiltGraphs&) = delete;
  BuiltGraphs& operator=(const BuiltGraphs&) = delete;
  int count() const { return count_; }

 private:
  int count_ = 0;
};

TEST(Threads, EachOnItsOwnStreamGetsItsOwnResult) {
  NEED_GPU();
  constexpr int threads = 4, calls = 200;
  const std::string line = "b=2 h=4 sq=256 d=64 dtype=bf16 mod=softcap(20) mask=causal lse=1";
  const GpuCall expected(line, 1);
  const std::vector<std::uint16_t> right = expected.run_once();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      const OnGpu here;
      Stream stream;
      GpuCall call(line, 1);
      for (int i = 0; i < calls; ++i) {
        call.clear_output();
        call.enqueue(stream.get());
        stream.wait();
        if (call.output() != right) ++wrong;
      }
    });
  }
  for (std::thread& one : all) one.join();
  EXPECT_EQ(wrong, 0);
}

// fovea::Attention on device memory, beside the same on the host, with each engine of GPUs.
class Cpp : public testing::TestWithParam<const char*> {};
TEST_P(Cpp, AttentionRunsForwardAndBackward) {
  NEED_GPU();
  const std::string engine = GetParam();
  if (std::string(fovea_engines()).find(engine) == std::string::npos) GTEST_SKIP() << "not built";
  constexpr std::int64_t b = 2, h = 4, s = 128, d = 64, count = b * h * s * d;
  const OnGpu here;
  Stream stream;
  const auto view = [](auto* data) { return Tensor::bhsd<FOVEA_BF16>(data, b, h, s, d); };
  std::vector<std::vector<std::uint16_t>> host(8, std::vector<std::uint16_t>(count));
  std::vector<std::unique_ptr<GpuMemory>> device;
  for (std::size_t i = 0; i < host.size(); ++i) {  // q, k, v, dO; o, dQ, dK, dV
    for (std::size_t j = 0; j < count && i < 4; ++j) {
      const float x = std::sin(static_cast<float>(j * (i + 1) % 997));
      host[i][j] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    }
    device.push_back(std::make_unique<GpuMemory>(count * 2));
    device.back()->send(host[i].data());
  }
  std::vector<float> lse(b * h * s);
  const GpuMemory device_lse(lse.size() * 4);
  const auto at = [&](std::size_t i) { return static_cast<std::uint16_t*>(device[i]->data()); };

  AttentionOptions options{.mod = "softcap(20)", .mask = "causal"};
  Attention on_host(view(host[0].data()), view(host[1].data()), view(host[2].data()), options);
  options.device = "cuda:0";
  options.engine = engine;
  options.stream = stream.get();
  if (engine == "cudnn") {  // whose forward needs a workspace
    Attention refused(view(at(0)), view(at(1)), view(at(2)), options);
    EXPECT_THROW(refused.forward({.o = view(at(4))}), Error);
  }
  options.allocate = [](std::size_t bytes) {
    const auto memory = std::make_shared<GpuMemory>(bytes);
    return std::shared_ptr<void>(memory, memory->data());
  };
  Attention on_device(view(at(0)), view(at(1)), view(at(2)), options);
  const std::span<float> rows(static_cast<float*>(device_lse.data()), lse.size());
  on_host.forward({.o = view(host[4].data()), .lse = lse});
  on_device.forward({.o = view(at(4)), .lse = rows});
  on_host.backward(
      {.o = view(host[4].data()), .lse = lse, .grad_o = view(host[3].data())},
      {.q = view(host[5].data()), .k = view(host[6].data()), .v = view(host[7].data())});
  on_device.backward({.o = view(at(4)), .lse = rows, .grad_o = view(at(3))},
                     {.q = view(at(5)), .k = view(at(6)), .v = view(at(7))});
  stream.wait();
  EXPECT_EQ(on_device.engine(), engine);
  const auto number = [](std::uint16_t bits) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  };
  for (std::size_t i = 4; i < 8; ++i) {
    std::vector<std::uint16_t> got(count);
    device[i]->fetch(got.data());
    double square = 0, error = 0;
    for (std::size_t j = 0; j < count; ++j) {
      square += number(host[i][j]) * number(host[i][j]);
      error += std::pow(number(got[j]) - number(host[i][j]), 2);
    }
    EXPECT_GT(square, 0);
    EXPECT_LT(std::sqrt(error / square), 0.018) << "tensor " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Cpp, testing::Values("cudnn", "jit"));

TEST(CudaGraph, CapturesAndReplaysWithNewData) {
  NEED_GPU();
  const OnGpu here;
  Stream stream;
  GpuCall call("b=2 h=4 sq=256 d=64 dtype=bf16 mod=alibi mask=causal lse=1", 1);
  const CapturedGraph graph = stream.capture([&] { call.enqueue(stream.get()); });
  for (const unsigned seed : {1u, 2u, 3u}) {
    call.fill_inputs(seed);
    call.clear_output();
    graph.launch(stream.get());
    stream.wait();
    const std::vector<std::uint16_t> replayed = call.output();
    EXPECT_EQ(replayed, call.run_once()) << "seed " << seed;
  }
}

TEST(CudaGraph, OutlivesThePlanAndTheCache) {
  NEED_GPU();
  const OnGpu here;
  Stream stream;
  auto call = std::make_unique<GpuCall>("b=1 h=2 sq=192 d=64 dtype=bf16 mod=softcap(7) lse=1", 1);
  const std::vector<std::uint16_t> right = call->run_once();
  const CapturedGraph graph = stream.capture([&] { call->enqueue(stream.get()); });
  call->drop_plan();
  ASSERT_EQ(fovea_cache_clear(), FOVEA_OK);
  call->clear_output();
  graph.launch(stream.get());
  stream.wait();
  EXPECT_EQ(call->output(), right);
}

// Where sequences begin is read on the GPU, at each replay.
TEST(CudaGraph, PackedSequencesMoveBetweenReplays) {
  NEED_GPU();
  const OnGpu here;
  Stream stream;
  GpuCall call(
      "h=4 d=64 dtype=bf16 layout=thd cu_q=0,200,456 cu_k=0,200,456 sq=256 skv=256 "
      "mod=softcap(20) mask=causal lse=1",
      1);
  const CapturedGraph graph = stream.capture([&] { call.enqueue(stream.get()); });
  std::vector<std::vector<std::uint16_t>> seen;
  for (const std::int32_t middle : {200, 256, 230}) {
    call.move_starts({0, middle, 456});
    call.clear_output();
    graph.launch(stream.get());
    stream.wait();
    seen.push_back(call.output());
    EXPECT_EQ(seen.back(), call.run_once()) << "sequences of " << middle << " and the rest";
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(Packed, NeitherRowsNorSequencesBuildAgain) {
  NEED_GPU();
  const OnGpu here;
  const BuiltGraphs graphs;
  for (const std::string words :
       {"cu_q=0,9,80,180,230 cu_k=0,9,80,180,230", "cu_q=0,100,200,300 cu_k=0,100,200,300",
        "cu_q=0,80,80,85 cu_k=0,80,80,85 tq=120 tk=120"}) {
    GpuCall("h=2 d=64 dtype=bf16 layout=thd sq=100 skv=100 lse=1 " + words, 1).run_once();
  }
  EXPECT_EQ(graphs.count(), 1);  // for four sequences
}

TEST(Batches, ShareGraphs) {
  NEED_GPU();
  const OnGpu here;
  std::vector<int> built;
  const BuiltGraphs graphs;
  for (const int batch : {8, 8, 5, 1, 8}) {
    GpuCall call("b=" + std::to_string(batch) +
                     " h=2 sq=160 d=64 dtype=bf16 mod=\"score * 0.9 + 0.01 * (q - k)\" lse=1",
                 1);
    call.run_once();
    built.push_back(graphs.count());
  }
  // 8: one graph; 5 = 4 + 1: two; 1 and 8: none.
  EXPECT_EQ(built, (std::vector<int>{1, 1, 3, 3, 3}));
}

TEST(Values, NeverBuildAgain) {
  NEED_GPU();
  const OnGpu here;
  const BuiltGraphs graphs;
  for (const char* words :
       {"mod=\"score * 0.3\" scale=0.1", "mod=\"score * 0.7\" scale=0.2", "mod=\"score * 12.5\""}) {
    GpuCall("b=2 h=2 sq=224 d=64 dtype=bf16 lse=1 " + std::string(words), 1).run_once();
  }
  EXPECT_LE(graphs.count(), 1);
}

}  // namespace
}  // namespace fovea::gpu_tests
