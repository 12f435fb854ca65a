// Engine cudnn beside cuDNN called directly, in one process on the same tensors, run alternately:
// device times by CUDA events, host times of enqueuing, and how long plans take to come. Run on a
// GPU by ./dev gpu; prints a table.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/gpu/events.h"
#include "bench/gpu/peer.h"
#include "cuda/driver.h"
#include "engines/cudnn/handles.h"
#include "fovea/fovea.h"

namespace fovea::bench {

// One direction of one problem through the C interface, on device memory of a benchmark.

inline void need(fovea_status status) {
  if (status == FOVEA_OK) return;
  std::fprintf(stderr, "fovea: %s\n", fovea_last_error());
  std::exit(1);
}

struct FoveaCall {
  fovea_problem problem = nullptr;
  fovea_plan plan = nullptr;
  std::size_t workspace = 0;
  fovea_bindings bindings{};
  fovea_tensor_binding bias{};

  FoveaCall(const std::string& line, bool backward, const Tensors& t) {
    fovea_problem forward = nullptr, other = nullptr;
    need(fovea_problem_parse((line + " direction=both").c_str(), &forward, &other));
    problem = backward ? other : forward;
    fovea_plan_options options{};
    options.struct_size = sizeof options;
    options.engine = "cudnn";
    options.device = "cuda:0";
    need(fovea_plan_create(problem, &options, &plan));
    need(fovea_plan_workspace(plan, nullptr, &workspace));
    bindings.struct_size = sizeof bindings;
    bindings.q.data = t.q, bindings.k.data = t.k, bindings.v.data = t.v, bindings.o.data = t.o;
    bindings.lse = t.lse;
    if (backward) {
      bindings.grad_o.data = t.grad_o, bindings.grad_q.data = t.grad_q;
      bindings.grad_k.data = t.grad_k, bindings.grad_v.data = t.grad_v;
    }
    if (line.find("t[h,q,k]") != std::string::npos) {
      bias.name = "t";
      bias.array.data = t.bias;
      bindings.tensors = &bias;
      bindings.tensor_count = 1;
    }
  }
  void run(void* space) {
    bindings.workspace = space;
    bindings.workspace_bytes = workspace;
    need(fovea_plan_run(plan, &bindings));
  }
};

namespace {

constexpr AttentionShape shape{2, 2, 128, 128};
constexpr std::uint64_t seed = 7, offset = 3;

// The identity for each sequence and head: as values, they make o the matrix of probabilities.
std::vector<std::uint16_t> identities() {
  constexpr std::uint16_t one = 0x3f80;  // in bf16
  const auto n = static_cast<std::size_t>(shape.s),
             count = static_cast<std::size_t>(shape.b * shape.h);
  std::vector<std::uint16_t> bits(count * n * n, 0);
  for (std::size_t i = 0; i < count * n; ++i) bits[i * n + i % n] = one;
  return bits;
}

}  // namespace

int compare_dropout_masks() {
  start_device();
  const auto count = static_cast<std::size_t>(shape.b * shape.h * shape.s * shape.d);
  Device16 q(count, 0), k(count, 0), v(count, 0), o(count, 0), o2(count, 0), grad_o(count, 0);
  Device16 dq(count, 0), dk(count, 0), dv(count, 0);
  DeviceF32 lse(count), dump(count);
  DeviceWord seeds(seed), offsets(offset);
  v.send(identities());
  grad_o.send(identities());
  Tensors mine{};
  mine.q = q.data(), mine.k = k.data(), mine.v = v.data(), mine.o = o.data();
  mine.grad_o = grad_o.data(), mine.grad_q = dq.data(), mine.grad_k = dk.data();
  mine.grad_v = dv.data(), mine.lse = lse.data();
  Tensors theirs = mine;
  theirs.o = o2.data();
  theirs.seed = seeds.data(), theirs.offset = offsets.data(), theirs.dump = dump.data();

  DeviceMemory workspace(std::size_t{1} << 26);
  void* const handle = cudnn::handle_for(0, nullptr);
  const auto peer = make_peer("dropout", false, shape, handle);
  peer->bind(theirs);
  peer->run(handle, workspace.data());
  const std::string line = "b=2 h=2 sq=128 d=128 dtype=bf16 scale=0.001 dropout=0.25 rng=engine";
  for (const bool backward : {false, true}) {
    FoveaCall fovea(line, backward, mine);
    fovea.bindings.seed.value = seed;
    fovea.bindings.offset.value = offset;
    fovea.run(workspace.data());
    wait();
  }

  const std::vector<float> kept = dump.fetch(), forward = o.fetch(), peers = o2.fetch();
  const std::vector<float> backward = dv.fetch();  // transposed
  const auto n = static_cast<std::size_t>(shape.s);
  std::size_t right = 0, dropped = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t matrix = i / (n * n) * n * n, row = i / n % n, column = i % n;
    const bool keeps = kept[i] != 0;
    dropped += keeps ? 0 : 1;
    right += (forward[i] != 0) == keeps && (backward[matrix + column * n + row] != 0) == keeps &&
                     forward[i] == peers[i]
                 ? 1
                 : 0;
  }
  std::printf(
      "dropout 0.25: %zu of %zu scores kept or dropped as cuDNN's own dump says, forward and "
      "backward; %.4f dropped\n",
      right, count, static_cast<double>(dropped) / static_cast<double>(count));
  return right == count && dropped > 0 && dropped < count ? 0 : 1;
}

}  // namespace fovea::bench

using namespace fovea;
using namespace fovea::bench;

namespace {

double median(std::vector<double> x) {
  std::ranges::sort(x);
  return x[x.size() / 2];
}

// Alternately, so that clocks and neighbours are the same for both.
std::pair<double, double> device_ms(const std::function<void()>& a,
                                    const std::function<void()>& b) {
  for (int i = 0; i < 3; ++i) a(), b();
  std::vector<double> of_a, of_b;
  for (int i = 0; i < 25; ++i) {
    of_a.push_back(time_ms(a));
    of_b.push_back(time_ms(b));
  }
  return {median(of_a), median(of_b)};
}

// Microseconds of the host per call, of both, in turns. Few calls at a time, so that the queue
// never fills up and the host never waits for the GPU.
std::pair<double, double> host_us(const std::function<void()>& a, const std::function<void()>& b) {
  using Clock = std::chrono::steady_clock;
  constexpr int calls = 100, rounds = 60;
  const auto one = [](const std::function<void()>& call) {
    const auto start = Clock::now();
    for (int j = 0; j < calls; ++j) call();
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    wait();
    return took.count() / calls;
  };
  std::vector<double> of_a, of_b;
  for (int i = 0; i < rounds; ++i) {
    of_a.push_back(one(a));
    of_b.push_back(one(b));
  }
  return {median(of_a), median(of_b)};
}

// The largest difference between Fovea's and the peer's outputs, relative to the largest value.
double difference(const Device16& mine, const Device16& theirs) {
  const std::vector<float> a = mine.fetch(), b = theirs.fetch();
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::nan("");
  }
  return worst / largest;
}

// What a cached call costs the host, beside the frontend's own execute.
int host_times() {
  start_device();
  const AttentionShape shape{1, 1, 128, 64};
  const std::size_t count = static_cast<std::size_t>(shape.s * shape.d);
  Device16 q(count, 1), k(count, 2), v(count, 3), o(count, 0), grad_o(count, 4);
  Device16 dq(count, 0), dk(count, 0), dv(count, 0),
      bias(static_cast<std::size_t>(shape.s * shape.s), 5);
  DeviceF32 lse(static_cast<std::size_t>(shape.s)), slopes(1);
  slopes.send({0.5f});
  const Tensors tensors{q.data(),  k.data(),  v.data(),   o.data(),    grad_o.data(), dq.data(),
                        dk.data(), dv.data(), lse.data(), bias.data(), slopes.data()};
  DeviceMemory workspace(std::size_t{1} << 26);
  void* const handle = cudnn::handle_for(0, nullptr);
  std::printf("%-15s %-9s %9s %9s %9s\n", "case", "direction", "fovea us", "cudnn us", "more");
  for (const Case& row : std::span(cases).first(plain_cases)) {
    for (const bool backward : {false, true}) {
      FoveaCall fovea("b=1 h=1 sq=128 d=64 dtype=bf16 " + std::string(row.words), backward,
                      tensors);
      const auto peer = make_peer(row.name, backward, shape, handle);
      peer->bind(tensors);
      const auto mine = [&] { fovea.run(workspace.data()); };
      const auto theirs = [&] { peer->run(handle, workspace.data()); };
      host_us(mine, theirs);
      const auto [a, b] = host_us(mine, theirs);
      std::printf("%-15s %-9s %9.2f %9.2f %9.2f\n", row.name, backward ? "backward" : "forward", a,
                  b, a - b);
    }
  }
  return 0;
}

// How long plans take to come, from wherever the environment lets them: a process each.
int plan_times() {
  start_device();
  const auto create = [](const std::string& line) {
    fovea_problem problem = nullptr;
    need(fovea_problem_parse(line.c_str(), &problem, nullptr));
    fovea_plan_options options{};
    options.struct_size = sizeof options;
    options.engine = "cudnn";
    options.device = "cuda:0";
    fovea_plan plan = nullptr;
    const auto start = std::chrono::steady_clock::now();
    need(fovea_plan_create(problem, &options, &plan));
    const auto took = std::chrono::steady_clock::now() - start;
    fovea_plan_destroy(plan);
    fovea_problem_destroy(problem);
    return std::chrono::duration<double, std::milli>(took).count();
  };
  create("b=1 h=1 sq=64 d=64 dtype=bf16");  // loads cuDNN
  const std::string sizes = "b=4 h=16 sq=4096 d=128 dtype=bf16 ";
  for (const char* words : {"mask=causal lse=1", "mod=softcap(20) mask=causal lse=1",
                            "mod=alibi mask=causal direction=backward"}) {
    std::printf("  %8.1f ms  %s\n", create(sizes + words), words);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--plan-times") return plan_times();
  if (argc > 1 && std::string(argv[1]) == "--host-times") return host_times();
  if (argc > 1 && std::string(argv[1]) == "--dropout") return compare_dropout_masks();
  const AttentionShape shape;
  start_device();
  const std::size_t count = static_cast<std::size_t>(shape.b * shape.h * shape.s * shape.d);
  Device16 q(count, 1), k(count, 2), v(count, 3), grad_o(count, 4), o(count, 0), o2(count, 0);
  Device16 dq(count, 0), dk(count, 0), dv(count, 0), dq2(count, 0);
  Device16 bias(static_cast<std::size_t>(shape.h * shape.s * shape.s), 5);
  DeviceF32 lse(static_cast<std::size_t>(shape.b * shape.h * shape.s)),
      slopes(static_cast<std::size_t>(shape.h));
  std::vector<float> slope_values;
  for (int h = 0; h < shape.h; ++h) {
    slope_values.push_back(
        std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(shape.h)));
  }
  slopes.send(slope_values);
  Tensors mine{q.data(),  k.data(),  v.data(),   o.data(),    grad_o.data(), dq.data(),
               dk.data(), dv.data(), lse.data(), bias.data(), slopes.data()};
  Tensors theirs = mine;
  theirs.o = o2.data(), theirs.grad_q = dq2.data();
  DeviceMemory workspace(std::size_t{1} << 30);
  void* const handle = cudnn::handle_for(0, nullptr);
  const std::string sizes = "b=4 h=16 sq=4096 d=128 dtype=bf16 ";

  std::printf("%-15s %-9s %9s %9s %6s %9s\n", "case", "direction", "fovea ms", "cudnn ms", "ratio",
              "error");
  for (const Case& row : cases) {
    for (const bool backward : {false, true}) {
      FoveaCall fovea(sizes + row.words, backward, mine);
      std::unique_ptr<Peer> peer;
      std::string form = row.name;
      try {
        peer = make_peer(form, backward, shape, handle);
      } catch (const std::exception& error) {
        std::printf("%-15s %-9s the peer's graph is refused by cuDNN\n", row.name,
                    backward ? "backward" : "forward");
      }
      const auto run_mine = [&] { fovea.run(workspace.data()); };
      if (!peer) {
        std::printf("%-15s %-9s %9.3f\n", row.name, backward ? "backward" : "forward",
                    device_ms(run_mine, run_mine).first);
        continue;
      }
      theirs.o = backward ? o.data() : o2.data();  // a backward reads it
      peer->bind(theirs);
      const auto run_theirs = [&] { peer->run(handle, workspace.data()); };
      const auto [a, b] = device_ms(run_mine, run_theirs);
      run_mine();
      run_theirs();
      wait();
      const double differ = backward ? difference(dq, dq2) : difference(o, o2);
      std::printf("%-15s %-9s %9.3f %9.3f %6.3f %9.2g\n", row.name,
                  backward ? "backward" : "forward", a, b, a / b, differ);
      std::fflush(stdout);
    }
  }
}
