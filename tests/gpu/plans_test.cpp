// What a plan promises beyond right numbers, on a GPU: many threads on streams of their own, CUDA
// graphs whose data, lengths and seeds change, plans that are gone before their graphs, nothing
// that is built again for a new size or number.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "fovea/fovea.hpp"
#include "gpu_pair.h"

namespace fovea::gpu_tests {
namespace {

struct TestedEngine {
  const char* name;
  const char* line;  // the same bits whenever it runs
};
const TestedEngine engines[] = {
    // The whole of a training step, with captured gradients.
    {"jit",
     "b=2 h=4 hkv=2 sq=150 skv=200 d=64 dtype=bf16 mod=\"20*tanh(score/20) + t[h]*(k-q)\" "
     "mask=\"q + 50 >= k\" tensor=\"t:f32[H]=uniform(0.01,0.3)\" grads=q,k,v,t deterministic=1 "
     "direction=both"},
    {"cudnn", "b=2 h=4 sq=256 d=64 dtype=bf16 mod=softcap(20) mask=causal lse=1"}};

class Plans : public testing::TestWithParam<TestedEngine> {};
INSTANTIATE_TEST_SUITE_P(Engines, Plans, testing::ValuesIn(engines),
                         [](const auto& one) { return one.param.name; });

TEST_P(Plans, RunOnStreamsOfManyThreads) {
  const auto [engine, line] = GetParam();
  NEED_STREAMS(engine);
  const OnGpu here;
  constexpr int threads = 4, calls = 200;
  const auto right = GpuPair(line, engine).run_once();
  EXPECT_EQ(beyond_limits(cli::make_workload(line, 0), right), "");
  std::atomic<int> wrong = 0, failed = 0;
  const auto work = [&, name = engine, words = line] {
    try {
      const OnGpu also_here;
      Stream stream;
      GpuPair pair(words, name);
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
  };
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back(work);
  for (std::thread& one : all) one.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(failed, 0);
}

TEST_P(Plans, GraphsOutliveThemAndTheCache) {
  const auto [engine, line] = GetParam();
  NEED_STREAMS(engine);
  const OnGpu here;
  Stream stream;
  GpuPair pair(line, engine);
  const auto right = pair.run_once();
  const CapturedGraph graph = stream.capture([&] { pair.enqueue(stream.get()); });
  pair.drop_plans();
  ASSERT_EQ(fovea_cache_clear(), FOVEA_OK);
  // Another formula's kernels are loaded where these were, if anything was freed.
  GpuPair("b=1 h=2 sq=64 d=64 dtype=bf16 mod=\"score * 0.25 + cos(f32(k))\" direction=both", "jit")
      .run_once();
  pair.poison();
  graph.launch(stream.get());
  stream.wait();
  EXPECT_EQ(different(pair.outputs(), right), "");
}

// Long enough that blocks meet, on tiles of dQ and on the counter that they take tiles from.
TEST(JitRepeats, FiftyRunsBesideOtherWorkHaveTheSameBits) {
  NEED_STREAMS(tested_engine());
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
  NEED_STREAMS(tested_engine());
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

// A graph is captured from a call of the first line and replayed with the data of each.
struct Replays {
  const char *name, *engine;
  std::string words;
  std::vector<std::string> lines;  // what they have beside the words
};
const Replays replays[] = {
    {"jit",
     "jit",
     "b=3 h=4 hkv=2 sq=130 skv=160 d=64 dtype=bf16 mod=\"score + t[h, clamp(q-k, -8, 8) + 8]\" "
     "mask=\"doc[b, q] == doc[b, k]\" tensor=\"t:f32[H,17]\" tensor=\"doc:i32[B,Skv]=docs(3)\" "
     "grads=q,k,v,t dropout=0.3 deterministic=1 capture=1 direction=both ",
     {"qlens=130,50,9 klens=160,160,64 seed=1", "qlens=1,130,0 klens=77,5,160 seed=20",
      "qlens=64,65,130 klens=0,160,33 seed=300000000000"}},
    {"packed_jit",
     "jit",
     "h=4 d=64 dtype=f16 layout=thd sq=300 skv=300 tq=310 tk=310 mod=softcap(20) mask=causal "
     "deterministic=1 capture=1 direction=both ",
     {"cu_q=0,100,228,300 cu_k=0,100,228,300", "cu_q=0,300,300,310 cu_k=0,300,300,310",
      "cu_q=0,1,2,3 cu_k=0,50,51,200"}},
    {"decoding_jit",
     "jit",
     "b=2 h=8 hkv=2 sq=1 skv=3000 d=128 dtype=bf16 deterministic=1 capture=1 direction=forward "
     "lse=1 mask=\"q - k < 2000\" ",
     {"klens=1000,3000 q_offset=999,2999", "klens=1001,2999 q_offset=1000,2998",
      "klens=1,0 q_offset=0,0"}},
    {"cudnn",
     "cudnn",
     "b=2 h=4 sq=256 d=64 dtype=bf16 mod=alibi mask=causal lse=1 ",
     {"seed=1", "seed=2", "seed=3"}},
    {"packed_cudnn",
     "cudnn",
     "h=4 d=64 dtype=bf16 layout=thd sq=256 skv=256 mod=softcap(20) mask=causal lse=1 ",
     {"cu_q=0,200,456 cu_k=0,200,456", "cu_q=0,256,456 cu_k=0,256,456",
      "cu_q=0,230,456 cu_k=0,230,456"}},
};

class Graphs : public testing::TestWithParam<Replays> {};
INSTANTIATE_TEST_SUITE_P(Of, Graphs, testing::ValuesIn(replays),
                         [](const auto& one) { return one.param.name; });

TEST_P(Graphs, ReplayWithNewDataLengthsStartsAndSeeds) {
  const Replays& given = GetParam();
  NEED_STREAMS(given.engine);
  const OnGpu here;
  Stream stream;
  GpuPair pair(given.words + given.lines.front(), given.engine);
  const CapturedGraph graph = stream.capture([&] { pair.enqueue(stream.get()); });
  for (std::size_t i = 0; i < given.lines.size(); ++i) {
    const std::string line = given.words + given.lines[i];
    const cli::Workload workload = cli::make_workload(line, 100 + i);
    pair.refill(workload);
    pair.poison();
    graph.launch(stream.get());
    stream.wait();
    const auto replayed = pair.outputs();
    EXPECT_EQ(beyond_limits(workload, replayed), "") << line;
    EXPECT_EQ(different(replayed, pair.run_once()), "") << "replayed and run: " << line;
    for (const std::string& one : pair.complaints()) ADD_FAILURE() << "it " << one;
  }
}

// How often the engine built something while it lives, by what it logs.
class Builds {
 public:
  explicit Builds(const std::string& engine)
      : text_(engine == "jit" ? "jit: compiled" : "cudnn: built a graph") {
    fovea_set_log(
        [](void* self, const char* line) {
          auto& builds = *static_cast<Builds*>(self);
          if (std::strstr(line, builds.text_) != nullptr) ++builds.count_;
        },
        this);
  }
  ~Builds() { fovea_set_log(nullptr, nullptr); }
  Builds(const Builds&) = delete;
  Builds& operator=(const Builds&) = delete;
  int count() const { return count_; }

 private:
  const char* text_;
  int count_ = 0;
};

struct SharedBuilds {
  const char *name, *engine;
  std::string words;
  std::vector<std::pair<const char*, int>> lines;  // how many builds each of them adds
};
const SharedBuilds shared_builds[] = {
    {"sizes_and_numbers_jit",
     "jit",
     "d=64 dtype=bf16 tensor=\"t:f32[H]\" grads=q,k,v,t direction=both mask=\"q - k < 40\" ",
     {{"b=2 h=4 sq=256 mod=\"score * 0.9 + t[h] * (k - q)\"", -1},
      {"b=1 h=4 sq=256 mod=\"score * 0.9 + t[h] * (k - q)\"", 0},
      {"b=5 h=2 sq=256 mod=\"score * 0.3 + t[h] * (k - q)\"", 0},
      {"b=2 h=4 sq=600 skv=500 scale=0.2 mod=\"score * 1.7 + t[h] * (k - q)\"", 0},
      {"b=2 h=4 sq=333 layout=bshd mod=\"score * 0.9 + t[h] * (k - q)\"", 0}}},
    {"rows_and_sequences_cudnn",  // one graph, for four sequences
     "cudnn",
     "h=2 d=64 dtype=bf16 layout=thd sq=100 skv=100 lse=1 ",
     {{"cu_q=0,9,80,180,230 cu_k=0,9,80,180,230", 1},
      {"cu_q=0,100,200,300 cu_k=0,100,200,300", 0},
      {"cu_q=0,80,80,85 cu_k=0,80,80,85 tq=120 tk=120", 0}}},
    {"batches_cudnn",  // 5 = 4 + 1: two graphs
     "cudnn",
     "h=2 sq=160 d=64 dtype=bf16 mod=\"score * 0.9 + 0.01 * (q - k)\" lse=1 ",
     {{"b=8", 1}, {"b=8", 0}, {"b=5", 2}, {"b=1", 0}, {"b=8", 0}}},
    {"numbers_cudnn",
     "cudnn",
     "b=2 h=2 sq=224 d=64 dtype=bf16 lse=1 ",
     {{"mod=\"score * 0.3\" scale=0.1", -1},
      {"mod=\"score * 0.7\" scale=0.2", 0},
      {"mod=\"score * 12.5\"", 0}}},
};

class BuiltOnce : public testing::TestWithParam<SharedBuilds> {};
INSTANTIATE_TEST_SUITE_P(For, BuiltOnce, testing::ValuesIn(shared_builds),
                         [](const auto& one) { return one.param.name; });

TEST_P(BuiltOnce, AndSharedBySizesAndNumbers) {
  const SharedBuilds& given = GetParam();
  NEED_STREAMS(given.engine);
  const OnGpu here;
  const Builds builds(given.engine);
  for (const auto& [words, wanted] : given.lines) {
    const int before = builds.count();
    GpuPair(given.words + words, given.engine).run_once();
    if (wanted < 0) continue;  // as many as it takes
    EXPECT_EQ(builds.count() - before, wanted) << words;
  }
}

// fovea::Attention on device memory, beside the same on the host.
TEST_P(Plans, AttentionInCppRunsForwardAndBackward) {
  const std::string engine = GetParam().name;
  NEED_STREAMS(engine);
  constexpr std::int64_t b = 2, h = 4, s = 128, d = 64, count = b * h * s * d;
  const OnGpu here;
  Stream stream;
  cli::Gpu& gpu = *cli::Gpu::find(tested_device());
  const auto view = [](auto* data) { return Tensor::bhsd<FOVEA_BF16>(data, b, h, s, d); };
  std::vector<std::vector<std::uint16_t>> host(8, std::vector<std::uint16_t>(count));
  std::vector<cli::Gpu::Block> device;
  for (std::size_t i = 0; i < host.size(); ++i) {  // q, k, v, dO; o, dQ, dK, dV
    for (std::size_t j = 0; j < count && i < 4; ++j) {
      const float x = std::sin(static_cast<float>(j * (i + 1) % 997));
      host[i][j] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    }
    device.push_back(gpu.allocate(count * 2));
    gpu.send(device.back().get(), host[i].data(), count * 2);
  }
  std::vector<float> lse(b * h * s);
  const cli::Gpu::Block device_lse = gpu.allocate(lse.size() * 4);
  const auto at = [&](std::size_t i) { return static_cast<std::uint16_t*>(device[i].get()); };

  AttentionOptions options{.mod = "softcap(20)", .mask = "causal"};
  Attention on_host(view(host[0].data()), view(host[1].data()), view(host[2].data()), options);
  options.device = tested_device();
  options.engine = engine;
  options.stream = stream.get();
  if (engine == "cudnn") {  // whose forward needs a workspace
    Attention refused(view(at(0)), view(at(1)), view(at(2)), options);
    EXPECT_THROW(refused.forward({.o = view(at(4))}), Error);
  }
  options.allocate = [&](std::size_t bytes) { return gpu.allocate(bytes); };
  Attention on_device(view(at(0)), view(at(1)), view(at(2)), options);
  const std::span<float> rows(static_cast<float*>(device_lse.get()), lse.size());
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
    gpu.fetch(got.data(), at(i), count * 2);
    double square = 0, error = 0;
    for (std::size_t j = 0; j < count; ++j) {
      square += number(host[i][j]) * number(host[i][j]);
      error += std::pow(number(got[j]) - number(host[i][j]), 2);
    }
    EXPECT_GT(square, 0);
    EXPECT_LT(std::sqrt(error / square), 0.018) << "tensor " << i;
  }
}

}  // namespace
}  // namespace fovea::gpu_tests
