// What a plan promises beyond right numbers, on a GPU: many threads on streams of their own, CUDA
// graphs, batches that share graphs, dropout that forward and backward agree on.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cuda/driver.h"
#include "gpu_call.h"

namespace fovea::gpu_tests {
namespace {

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
  int graphs = 0;
  fovea_set_log(
      [](void* count, const char* text) {
        if (std::strstr(text, "cudnn: built a graph") != nullptr) ++*static_cast<int*>(count);
      },
      &graphs);
  for (const std::string words :
       {"cu_q=0,9,80,180,230 cu_k=0,9,80,180,230", "cu_q=0,100,200,300 cu_k=0,100,200,300",
        "cu_q=0,80,80,85 cu_k=0,80,80,85 tq=120 tk=120"}) {
    GpuCall("h=2 d=64 dtype=bf16 layout=thd sq=100 skv=100 lse=1 " + words, 1).run_once();
  }
  fovea_set_log(nullptr, nullptr);
  EXPECT_EQ(graphs, 1);  // for four sequences
}

TEST(Batches, ShareGraphs) {
  NEED_GPU();
  const OnGpu here;
  std::vector<int> built;
  int graphs = 0;
  fovea_set_log(
      [](void* count, const char* text) {
        if (std::strstr(text, "cudnn: built a graph") != nullptr) ++*static_cast<int*>(count);
      },
      &graphs);
  for (const int batch : {8, 8, 5, 1, 8}) {
    GpuCall call("b=" + std::to_string(batch) +
                     " h=2 sq=160 d=64 dtype=bf16 mod=\"score * 0.9 + 0.01 * (q - k)\" lse=1",
                 1);
    call.run_once();
    built.push_back(graphs);
  }
  fovea_set_log(nullptr, nullptr);
  // 8: one graph; 5 = 4 + 1: two; 1 and 8: none.
  EXPECT_EQ(built, (std::vector<int>{1, 1, 3, 3, 3}));
}

TEST(Values, NeverBuildAgain) {
  NEED_GPU();
  const OnGpu here;
  int graphs = 0;
  fovea_set_log(
      [](void* count, const char* text) {
        if (std::strstr(text, "cudnn: built a graph") != nullptr) ++*static_cast<int*>(count);
      },
      &graphs);
  for (const char* words :
       {"mod=\"score * 0.3\" scale=0.1", "mod=\"score * 0.7\" scale=0.2", "mod=\"score * 12.5\""}) {
    GpuCall("b=2 h=2 sq=224 d=64 dtype=bf16 lse=1 " + std::string(words), 1).run_once();
  }
  fovea_set_log(nullptr, nullptr);
  EXPECT_LE(graphs, 1);
}

}  // namespace
}  // namespace fovea::gpu_tests
