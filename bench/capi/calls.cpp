// What one cached call costs the host besides its engine: the struct read, names matched, every
// rule checked, the plan found. The engine does nothing, so sizes do not matter, and pointers are
// numbers.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "attention/engine.h"
#include "bench/capi/counted.h"
#include "bench/cases.h"
#include "fovea/fovea.h"
#include "fovea/fovea.hpp"
#include "ir/lift.h"
#include "planner/planner.h"

namespace fovea::bench {
namespace {

constexpr const char* idle_engine = "idle";

// An engine whose plans do nothing: what is left of a call is Fovea's own work around it.
class IdlePlan : public Plan {
 public:
  std::size_t workspace_bytes(const Sizes&) const override { return 4096; }
  std::size_t memory_bytes() const override { return sizeof *this; }
  void run(const Bindings& bindings) const override { benchmark::DoNotOptimize(&bindings); }
};

class IdleEngine : public Engine {
 public:
  std::string name() const override { return idle_engine; }
  Baking bake(const Problem& problem, const Device&) const override {
    ir::Lifted lifted = ir::lift_literals(problem.program);
    Baked baked{problem};
    baked.problem.program = std::move(lifted.program);
    return {std::move(baked), std::move(lifted.literals)};
  }
  Judged judge(const Baked&, const Device&) const override {
    return {{Answer::Expected, {}, 0, ""}};
  }
  std::unique_ptr<Plan> compile(const Baked&, const Judged&, const Device&) const override {
    return std::make_unique<IdlePlan>();
  }
};

}  // namespace

// Adds it to the process's planner, once.
void add_idle_engine() {
  static std::once_flag once;
  std::call_once(once, [] { planner().add({new IdleEngine, /*only_when_named=*/true}); });
}

}  // namespace fovea::bench

namespace {

using fovea::bench::Case;
using fovea::bench::check;
using fovea::bench::CountedAllocations;
using fovea::bench::long_formula;
using fovea::bench::plain_cases;

// Those that all benchmarks of calls have, and a long one.
constexpr Case case_of(std::int64_t i) {
  return i < plain_cases ? fovea::bench::cases[i] : Case{"long", long_formula};
}

// A problem, its plan and all that a call binds.
class Cached {
 public:
  Cached(const Case& row, bool backward) {
    fovea::bench::add_idle_engine();
    fovea_problem forward = nullptr, other = nullptr;
    const std::string sizes = "b=4 h=16 sq=4096 d=128 dtype=bf16 direction=both ";
    check(fovea_problem_parse((sizes + row.words).c_str(), &forward, &other));
    problem_ = backward ? other : forward;
    fovea_problem_destroy(backward ? forward : other);
    check(fovea_plan_create(problem_, &options_, &plan_));
    bindings_.struct_size = sizeof bindings_;
    for (fovea_tensor* tensor : {&bindings_.q, &bindings_.k, &bindings_.v, &bindings_.o}) {
      tensor->data = memory();
    }
    if (backward) {
      for (fovea_tensor* tensor :
           {&bindings_.grad_o, &bindings_.grad_q, &bindings_.grad_k, &bindings_.grad_v}) {
        tensor->data = memory();
      }
    }
    bindings_.lse = memory();
    bind_captured();
    bindings_.workspace = memory();
    bindings_.workspace_bytes = std::size_t{1} << 20;
  }
  ~Cached() {
    fovea_plan_destroy(plan_);
    fovea_problem_destroy(problem_);
  }
  Cached(const Cached&) = delete;
  Cached& operator=(const Cached&) = delete;

  void run_plan() { check(fovea_plan_run(plan_, &bindings_)); }
  void forward() { check(fovea_forward(problem_, &options_, &bindings_, nullptr)); }
  void backward() { check(fovea_backward(problem_, &options_, &bindings_, nullptr)); }

 private:
  // Never touched: far apart, so that nothing overlaps.
  void* memory() { return reinterpret_cast<void*>(next_ += std::uintptr_t{1} << 36); }

  void bind_captured() {
    fovea_program program = nullptr;
    check(fovea_problem_program(problem_, &program));
    const std::size_t count = fovea_program_tensor_count(program);
    for (std::size_t i = 0; i < count; ++i) {
      fovea_capture_info info{};
      info.struct_size = sizeof info;
      check(fovea_program_tensor(program, i, &info));
      names_[i] = info.name;
      tensors_[i].name = names_[i].c_str();
      tensors_[i].array.data = memory();
    }
    bindings_.tensors = tensors_;
    bindings_.tensor_count = count;
    fovea_program_destroy(program);
  }

  fovea_plan_options options_{sizeof(fovea_plan_options), fovea::bench::idle_engine, nullptr,
                              nullptr};
  fovea_problem problem_ = nullptr;
  fovea_plan plan_ = nullptr;
  std::uintptr_t next_ = 0;
  std::string names_[4];
  fovea_tensor_binding tensors_[4]{};
  fovea_bindings bindings_{};
};

template <class Call>
void measure(benchmark::State& state, bool backward, const Call& call) {
  Cached cached(case_of(state.range(0)), backward);
  state.SetLabel(case_of(state.range(0)).name);
  call(cached);
  const CountedAllocations allocations(state);
  for (auto _ : state) call(cached);
}

void plan_run_forward(benchmark::State& state) {
  measure(state, false, [](Cached& cached) { cached.run_plan(); });
}
void plan_run_backward(benchmark::State& state) {
  measure(state, true, [](Cached& cached) { cached.run_plan(); });
}
void whole_forward(benchmark::State& state) {
  measure(state, false, [](Cached& cached) { cached.forward(); });
}
void whole_backward(benchmark::State& state) {
  measure(state, true, [](Cached& cached) { cached.backward(); });
}
BENCHMARK(plan_run_forward)->DenseRange(0, plain_cases);
BENCHMARK(plan_run_backward)->DenseRange(0, plain_cases);
BENCHMARK(whole_forward)->DenseRange(0, plain_cases);
BENCHMARK(whole_backward)->DenseRange(0, plain_cases);

// The same for fovea::Attention: a call of an object that has made its plan.

using fovea::Tensor;

constexpr std::int64_t b = 4, h = 16, s = 4096, d = 128;

// Never touched: far apart, so that nothing overlaps.
float* memory(int i) { return reinterpret_cast<float*>((std::uintptr_t(i) + 1) << 36); }
fovea::View view(int i) { return Tensor::bhsd(memory(i), b, h, s, d); }
std::span<float> rows(int i) { return {memory(i), static_cast<std::size_t>(b * h * s)}; }

fovea::Attention attention(bool captured) {
  fovea::bench::add_idle_engine();
  fovea::AttentionOptions options;
  options.engine = fovea::bench::idle_engine;
  options.mask = "causal";
  if (captured) {
    const Tensor slopes("slopes", fovea::f32, {fovea::H});
    const Tensor bias("bias", fovea::f32, {fovea::H, fovea::Sq, fovea::Skv});
    options.mod = "score + slopes[h] * (q - k) + bias[h, q, k]";
    options.captured = {fovea::value(slopes, std::span(memory(20), std::size_t{h})),
                        fovea::value(bias, std::span(memory(30), std::size_t{h * s * s}))};
  }
  return {view(0), view(1), view(2), options};
}

void cpp_forward(benchmark::State& state) {
  fovea::Attention attend = attention(state.range(0) != 0);
  state.SetLabel(state.range(0) != 0 ? "two captured tensors" : "causal");
  attend.forward({.o = view(3), .lse = rows(4)});
  const CountedAllocations allocations(state);
  for (auto _ : state) attend.forward({.o = view(3), .lse = rows(4)});
}
void cpp_backward(benchmark::State& state) {
  fovea::Attention attend = attention(state.range(0) != 0);
  state.SetLabel(state.range(0) != 0 ? "two captured tensors" : "causal");
  const fovea::Incoming in{.o = view(3), .lse = rows(4), .grad_o = view(5)};
  const fovea::Gradients out{.q = view(6), .k = view(7), .v = view(8)};
  attend.backward(in, out);
  const CountedAllocations allocations(state);
  for (auto _ : state) attend.backward(in, out);
}
BENCHMARK(cpp_forward)->Arg(0)->Arg(1);
BENCHMARK(cpp_backward)->Arg(0)->Arg(1);

}  // namespace
