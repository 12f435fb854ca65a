// Engine cudnn beside cuDNN called directly, in one process on the same tensors, run alternately.
// Run on a GPU by ./dev gpu; prints a table.
//
//   fovea_bench_cudnn                 device times by CUDA events
//   fovea_bench_cudnn --host-times    what a cached call costs the host
//   fovea_bench_cudnn --plan-times    how long plans take to come
//   fovea_bench_cudnn --dropout       whether both drop the same scores
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/gpu/events.h"
#include "bench/gpu/peer.h"
#include "engines/cudnn/handles.h"
#include "fovea/handle.hpp"

namespace fovea::bench {
namespace {

const Where by_cudnn{"cudnn", "cuda:0"};

std::size_t product(std::initializer_list<std::int64_t> extents) {
  std::size_t count = 1;
  for (const std::int64_t x : extents) count *= static_cast<std::size_t>(x);
  return count;
}

// What one attention reads and writes; the slopes are those of ALiBi.
struct Memory {
  explicit Memory(const AttentionShape& s)
      : count(product({s.b, s.h, s.s, s.d})),
        bias(product({s.h, s.s, s.s}), 5),
        lse(product({s.b, s.h, s.s})),
        slopes(product({s.h})) {
    std::vector<float> values;
    for (std::int64_t h = 0; h < s.h; ++h) {
      values.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(s.h)));
    }
    slopes.send(values);
  }
  Tensors tensors() const {
    return {q.data(),      k.data(),      v.data(),   o.data(),    grad_o.data(), grad_q.data(),
            grad_k.data(), grad_v.data(), lse.data(), bias.data(), slopes.data()};
  }

  std::size_t count;
  Device16 q{count, 1}, k{count, 2}, v{count, 3}, grad_o{count, 4}, o{count, 0};
  Device16 grad_q{count, 0}, grad_k{count, 0}, grad_v{count, 0}, bias;
  DeviceF32 lse, slopes;
  DeviceMemory workspace{std::size_t{1} << 30};
};

// One direction of one problem through the C interface, on device memory of a benchmark.
class FoveaCall {
 public:
  FoveaCall(const std::string& line, bool backward, const Memory& memory)
      : plan_(direction_of(line, backward), by_cudnn) {
    const Tensors t = memory.tensors();
    bindings_.struct_size = sizeof bindings_;
    bindings_.q.data = t.q, bindings_.k.data = t.k, bindings_.v.data = t.v, bindings_.o.data = t.o;
    bindings_.lse = t.lse;
    if (backward) {
      bindings_.grad_o.data = t.grad_o, bindings_.grad_q.data = t.grad_q;
      bindings_.grad_k.data = t.grad_k, bindings_.grad_v.data = t.grad_v;
    }
    if (line.find("t[h,q,k]") != std::string::npos) {
      bias_.name = "t";
      bias_.array.data = t.bias;
      bindings_.tensors = &bias_;
      bindings_.tensor_count = 1;
    }
    bindings_.workspace = memory.workspace.data();
    bindings_.workspace_bytes = plan_.workspace();
  }
  FoveaCall(const FoveaCall&) = delete;
  FoveaCall& operator=(const FoveaCall&) = delete;

  void set_random(std::uint64_t seed, std::uint64_t offset) {
    bindings_.seed.value = seed;
    bindings_.offset.value = offset;
  }
  void run() const { plan_.run(bindings_); }

 private:
  static Problem direction_of(const std::string& line, bool backward) {
    const auto [first, second] = Problem::parse(line + " direction=both");
    return backward ? *second : first;
  }
  Plan plan_;
  fovea_bindings bindings_{};
  fovea_tensor_binding bias_{};
};

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

const char* name_of(bool backward) { return backward ? "backward" : "forward"; }

int device_times() {
  const AttentionShape shape;
  const Memory memory(shape);
  const Device16 o(memory.count, 0), grad_q(memory.count, 0);  // the peer's
  void* const handle = cudnn::handle_for(0, nullptr);
  std::printf("%-15s %-9s %9s %9s %6s %9s\n", "case", "direction", "fovea ms", "cudnn ms", "ratio",
              "error");
  for (const Case& row : cases) {
    for (const bool backward : {false, true}) {
      const FoveaCall fovea(std::string("b=4 h=16 sq=4096 d=128 dtype=bf16 ") + row.words, backward,
                            memory);
      const auto run_mine = [&] { fovea.run(); };
      std::unique_ptr<Peer> peer;
      try {
        peer = make_peer(row.name, backward, shape, handle);
      } catch (const std::exception& error) {
        std::printf("%-15s %-9s the peer's graph is refused by cuDNN\n", row.name,
                    name_of(backward));
        std::printf("%-15s %-9s %9.3f\n", row.name, name_of(backward),
                    device_ms(run_mine, run_mine).first);
        continue;
      }
      Tensors theirs = memory.tensors();
      theirs.grad_q = grad_q.data();
      if (!backward) theirs.o = o.data();  // a backward reads it
      peer->bind(theirs);
      const auto run_theirs = [&] { peer->run(handle, memory.workspace.data()); };
      const auto [a, b] = device_ms(run_mine, run_theirs);
      run_mine();
      run_theirs();
      wait();
      const double differ = backward ? difference(memory.grad_q, grad_q) : difference(memory.o, o);
      std::printf("%-15s %-9s %9.3f %9.3f %6.3f %9.2g\n", row.name, name_of(backward), a, b, a / b,
                  differ);
      std::fflush(stdout);
    }
  }
  return 0;
}

// Beside the frontend's own execute.
int host_times() {
  const AttentionShape shape{1, 1, 128, 64};
  const Memory memory(shape);
  void* const handle = cudnn::handle_for(0, nullptr);
  std::printf("%-15s %-9s %9s %9s %9s\n", "case", "direction", "fovea us", "cudnn us", "more");
  for (const Case& row : std::span(cases).first(plain_cases)) {
    for (const bool backward : {false, true}) {
      const FoveaCall fovea(std::string("b=1 h=1 sq=128 d=64 dtype=bf16 ") + row.words, backward,
                            memory);
      const auto peer = make_peer(row.name, backward, shape, handle);
      peer->bind(memory.tensors());
      const std::vector<std::function<void()>> both = {
          [&] { fovea.run(); }, [&] { peer->run(handle, memory.workspace.data()); }};
      host_us(both);
      const std::vector<double> us = host_us(both);
      std::printf("%-15s %-9s %9.2f %9.2f %9.2f\n", row.name, name_of(backward), us[0], us[1],
                  us[0] - us[1]);
    }
  }
  return 0;
}

// From wherever the environment lets plans come: a process each.
int plan_times() {
  const auto create = [](const std::string& line) {
    const Problem problem(line);
    const auto start = std::chrono::steady_clock::now();
    const Plan plan(problem, by_cudnn);
    const auto took = std::chrono::steady_clock::now() - start;
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

// As the values of an attention over as many keys as features, the identity for each sequence and
// head makes o the matrix of probabilities, and as dO it makes dV its transpose.
int compare_dropout_masks() {
  constexpr AttentionShape shape{2, 2, 128, 128};
  constexpr std::uint64_t seed = 7, offset = 3;
  constexpr std::uint16_t one = 0x3f80;  // in bf16
  constexpr auto n = static_cast<std::size_t>(shape.s);
  Memory memory(shape);
  const std::size_t count = memory.count;
  std::vector<std::uint16_t> bits(count, 0);
  memory.q.send(bits);
  memory.k.send(bits);
  for (std::size_t i = 0; i < count / n; ++i) bits[i * n + i % n] = one;
  memory.v.send(bits);
  memory.grad_o.send(bits);

  const Device16 o(count, 0);
  const DeviceF32 dump(count);
  const DeviceWord seeds(seed), offsets(offset);
  Tensors theirs = memory.tensors();
  theirs.o = o.data();
  theirs.seed = seeds.data(), theirs.offset = offsets.data(), theirs.dump = dump.data();
  void* const handle = cudnn::handle_for(0, nullptr);
  const auto peer = make_peer("dropout", false, shape, handle);
  peer->bind(theirs);
  peer->run(handle, memory.workspace.data());
  for (const bool backward : {false, true}) {
    FoveaCall fovea("b=2 h=2 sq=128 d=128 dtype=bf16 scale=0.001 dropout=0.25 rng=engine", backward,
                    memory);
    fovea.set_random(seed, offset);
    fovea.run();
    wait();
  }

  const std::vector<float> kept = dump.fetch(), forward = memory.o.fetch(), peers = o.fetch();
  const std::vector<float> backward = memory.grad_v.fetch();  // transposed
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

int run(const std::string& what) {
  start_device();
  if (what == "--plan-times") return plan_times();
  if (what == "--host-times") return host_times();
  if (what == "--dropout") return compare_dropout_masks();
  return device_times();
}

}  // namespace
}  // namespace fovea::bench

int main(int argc, char** argv) {
  try {
    return fovea::bench::run(argc > 1 ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea_bench_cudnn: %s\n", error.what());
    return 1;
  }
}
