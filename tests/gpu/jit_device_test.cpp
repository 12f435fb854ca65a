// What engine jit's plans promise beyond right numbers, on a GPU: many threads on streams of their
// own, CUDA graphs whose data, lengths and seeds change, plans that are gone before their graphs,
// nothing that is built again for a new size or number.
#include <atomic>
#include <cstring>
#include <thread>

#include "gpu_pair.h"

namespace fovea::gpu_tests {
namespace {

// The whole of a training step, with captured gradients; the same bits whenever it runs.
constexpr const char* step =
    "b=2 h=4 hkv=2 sq=150 skv=200 d=64 dtype=bf16 mod=\"20*tanh(score/20) + t[h]*(k-q)\" "
    "mask=\"q + 50 >= k\" tensor=\"t:f32[H]=uniform(0.01,0.3)\" grads=q,k,v,t deterministic=1 "
    "direction=both";

TEST(JitThreads, EachOnItsOwnStreamGetsItsOwnResult) {
  NEED_STREAMS();
  constexpr int threads = 4, calls = 200;
  const auto right = GpuPair(step).run_once();
  EXPECT_EQ(beyond_limits(cli::make_workload(step, 0), right), "");
  std::atomic<int> wrong = 0, failed = 0;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      try {
        const OnGpu here;
        Stream stream;
        GpuPair pair(step);
        for (int i = 0; i < calls; ++i) {
          if (i % 8 == 0) pair.poison();
          pair.enqueue(stream.get());
          if (i % 8 != 7) continue;
          stream.wait();
          if (!different(pair.outputs(), right).empty()) ++wrong;
        }
        stream.wait();
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++failed;
      }
    });
  }
  for (std::thread& one : all) one.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 0);
}

// Long enough that blocks meet, on tiles of dQ and on the counter that they take tiles from.
TEST(JitRepeats, FiftyRunsBesideOtherWorkHaveTheSameBits) {
  NEED_STREAMS();
  const OnGpu here;
  Stream stream;
  GpuPair other("b=1 h=8 sq=900 d=128 dtype=bf16 mask=causal direction=both");
  for (const char* line :
       {"b=2 h=8 sq=1100 d=128 dtype=bf16 lse=1 direction=forward",
        "b=2 h=8 hkv=2 sq=1100 d=64 dtype=f16 mask=causal lse=1 direction=forward",
        "b=2 h=8 sq=1100 d=128 dtype=bf16 deterministic=1 direction=both",
        "b=2 h=8 hkv=2 sq=1100 d=64 dtype=f16 mask=causal deterministic=1 direction=both",
        "b=2 h=4 sq=700 d=128 dtype=bf16 mod=\"score + t[h] * (k - q)\" mask=causal "
        "tensor=\"t:f32[H]=uniform(0.01,0.3)\" grads=q,k,v,t deterministic=1 direction=both"}) {
    GpuPair pair(line);
    const auto first = pair.run_once();
    for (int i = 0; i < 50; ++i) {
      other.enqueue(stream.get());
      ASSERT_EQ(different(first, pair.run_once()), "") << "run " << i << " of " << line;
    }
    stream.wait();
  }
}

// Plans are made by all threads at once, for formulas that none of them has seen.
TEST(JitThreads, BuildOnceForAll) {
  NEED_STREAMS();
  const std::string line =
      "b=1 h=2 sq=70 d=32 dtype=f16 mod=\"score * 0.7 + sin(f32(q - k))\" deterministic=1 "
      "direction=both";
  std::vector<std::vector<cli::NamedArray>> results(4);
  std::vector<std::thread> all;
  for (auto& result : results) {
    all.emplace_back([&] {
      const OnGpu here;
      result = GpuPair(line).run_once();
    });
  }
  for (std::thread& one : all) one.join();
  for (const auto& result : results) EXPECT_EQ(different(results.front(), result), "");
}

// A graph is captured from a call of the first workload and replayed with the data of each.
void expect_replays(const std::vector<std::string>& lines) {
  const OnGpu here;
  Stream stream;
  GpuPair pair(lines.front());
  const CapturedGraph graph = stream.capture([&] { pair.enqueue(stream.get()); });
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const cli::Workload workload = cli::make_workload(lines[i], 100 + i);
    pair.refill(workload);
    pair.poison();
    graph.launch(stream.get());
    stream.wait();
    const auto replayed = pair.outputs();
    EXPECT_EQ(beyond_limits(workload, replayed), "") << lines[i];
    EXPECT_EQ(different(replayed, pair.run_once()), "") << "replayed and run: " << lines[i];
    for (const std::string& one : pair.complaints()) ADD_FAILURE() << "it " << one;
  }
}

TEST(JitGraph, ReplaysWithNewDataLengthsAndSeeds) {
  NEED_STREAMS();
  const std::string words =
      "b=3 h=4 hkv=2 sq=130 skv=160 d=64 dtype=bf16 mod=\"score + t[h, clamp(q-k, -8, 8) + 8]\" "
      "mask=\"doc[b, q] == doc[b, k]\" tensor=\"t:f32[H,17]\" tensor=\"doc:i32[B,Skv]=docs(3)\" "
      "grads=q,k,v,t dropout=0.3 deterministic=1 capture=1 direction=both ";
  expect_replays({words + "qlens=130,50,9 klens=160,160,64 seed=1",
                  words + "qlens=1,130,0 klens=77,5,160 seed=20",
                  words + "qlens=64,65,130 klens=0,160,33 seed=300000000000"});
}

TEST(JitGraph, ReplaysWithSequencesThatMoved) {
  NEED_STREAMS();
  const std::string words =
      "h=4 d=64 dtype=f16 layout=thd sq=300 skv=300 tq=310 tk=310 mod=softcap(20) mask=causal "
      "deterministic=1 capture=1 direction=both ";
  expect_replays({words + "cu_q=0,100,228,300 cu_k=0,100,228,300",
                  words + "cu_q=0,300,300,310 cu_k=0,300,300,310",
                  words + "cu_q=0,1,2,3 cu_k=0,50,51,200"});
}

TEST(JitGraph, ReplaysADecodeStepWithMoreKeys) {
  NEED_STREAMS();
  const std::string words =
      "b=2 h=8 hkv=2 sq=1 skv=3000 d=128 dtype=bf16 deterministic=1 capture=1 direction=forward "
      "lse=1 mask=\"q - k < 2000\" ";
  expect_replays({words + "klens=1000,3000 q_offset=999,2999",
                  words + "klens=1001,2999 q_offset=1000,2998", words + "klens=1,0 q_offset=0,0"});
}

TEST(JitGraph, OutlivesThePlanAndTheCache) {
  NEED_STREAMS();
  const OnGpu here;
  Stream stream;
  GpuPair pair(step);
  const auto right = pair.run_once();
  const CapturedGraph graph = stream.capture([&] { pair.enqueue(stream.get()); });
  pair.drop_plans();
  ASSERT_EQ(fovea_cache_clear(), FOVEA_OK);
  // Another formula's kernels are loaded where these were, if anything was freed.
  GpuPair("b=1 h=2 sq=64 d=64 dtype=bf16 mod=\"score * 0.25 + cos(f32(k))\" direction=both")
      .run_once();
  pair.poison();
  graph.launch(stream.get());
  stream.wait();
  EXPECT_EQ(different(pair.outputs(), right), "");
}

// How often kernels were compiled while it lives, by what the engine logs.
class BuiltKernels {
 public:
  BuiltKernels() {
    fovea_set_log(
        [](void* count, const char* text) {
          if (std::strstr(text, "jit: compiled") != nullptr) ++*static_cast<int*>(count);
        },
        &count_);
  }
  ~BuiltKernels() { fovea_set_log(nullptr, nullptr); }
  BuiltKernels(const BuiltKernels&) = delete;
  BuiltKernels& operator=(const BuiltKernels&) = delete;
  int count() const { return count_; }

 private:
  int count_ = 0;
};

TEST(JitPlans, NeitherSizesNorNumbersBuildAgain) {
  NEED_JIT();
  const OnGpu here;
  const BuiltKernels kernels;
  const auto run = [](const std::string& words) {
    GpuPair("d=64 dtype=bf16 tensor=\"t:f32[H]\" grads=q,k,v,t direction=both " + words).run_once();
  };
  run("b=2 h=4 sq=256 mod=\"score * 0.9 + t[h] * (k - q)\" mask=\"q - k < 40\"");
  const int first = kernels.count();
  for (const char* words :
       {"b=1 h=4 sq=256 mod=\"score * 0.9 + t[h] * (k - q)\" mask=\"q - k < 40\"",
        "b=5 h=2 sq=256 mod=\"score * 0.3 + t[h] * (k - q)\" mask=\"q - k < 40\"",
        "b=2 h=4 sq=600 skv=500 scale=0.2 mod=\"score * 1.7 + t[h] * (k - q)\" mask=\"q - k < 40\"",
        "b=2 h=4 sq=333 layout=bshd mod=\"score * 0.9 + t[h] * (k - q)\" mask=\"q - k < 40\""}) {
    run(words);
    EXPECT_EQ(kernels.count(), first) << words;
  }
}

}  // namespace
}  // namespace fovea::gpu_tests
