// What one cached call costs the host besides its engine, by a plan, by a problem and by an object
// of fovea::Attention: the struct read, names matched, every rule checked, the plan found. The
// engine does nothing, so sizes do not matter, and pointers are numbers.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "bench/capi/idle_engine.h"
#include "bench/cases.h"
#include "fovea/fovea.hpp"

namespace {

using fovea::check;
using fovea::Tensor;
using fovea::bench::Case;
using fovea::bench::CountedAllocations;
using fovea::bench::long_formula;
using fovea::bench::plain_cases;

constexpr std::int64_t b = 4, h = 16, s = 4096, d = 128;

// Addresses that are never read or written, far apart so that nothing overlaps.
float* memory(int i) { return reinterpret_cast<float*>((std::uintptr_t(i) + 1) << 36); }

// Those that all benchmarks of calls have, and a long one.
constexpr Case case_of(std::int64_t i) {
  return i < plain_cases ? fovea::bench::cases[i] : Case{"long", long_formula};
}

fovea::Problem problem_of(const Case& row, bool backward) {
  fovea::bench::add_idle_engine();
  const std::string sizes = "b=4 h=16 sq=4096 d=128 dtype=bf16 direction=both ";
  auto [forward, other] = fovea::Problem::parse(sizes + row.words);
  return backward ? *std::move(other) : std::move(forward);
}

// A problem, its plan and all that a call binds.
class CachedCall {
 public:
  CachedCall(const Case& row, bool backward)
      : problem_(problem_of(row, backward)), plan_(problem_, where_) {
    bindings_.struct_size = sizeof bindings_;
    int next = 0;
    for (fovea_tensor* tensor : {&bindings_.q, &bindings_.k, &bindings_.v, &bindings_.o}) {
      tensor->data = memory(next++);
    }
    if (backward) {
      for (fovea_tensor* tensor :
           {&bindings_.grad_o, &bindings_.grad_q, &bindings_.grad_k, &bindings_.grad_v}) {
        tensor->data = memory(next++);
      }
    }
    bindings_.lse = memory(next++);
    bindings_.workspace = memory(next++);
    bindings_.workspace_bytes = std::size_t{1} << 20;
    const fovea::Program program = problem_.program();
    bindings_.tensors = tensors_;
    bindings_.tensor_count = fovea_program_tensor_count(program.get());
    for (std::size_t i = 0; i < bindings_.tensor_count; ++i) {
      fovea_capture_info info{};
      info.struct_size = sizeof info;
      check(fovea_program_tensor(program.get(), i, &info));
      names_[i] = info.name;
      tensors_[i].name = names_[i].c_str();
      tensors_[i].array.data = memory(next++);
    }
  }
  CachedCall(const CachedCall&) = delete;
  CachedCall& operator=(const CachedCall&) = delete;

  void run_plan() { plan_.run(bindings_); }
  void forward() { check(fovea_forward(problem_.get(), &options_, &bindings_, nullptr)); }
  void backward() { check(fovea_backward(problem_.get(), &options_, &bindings_, nullptr)); }

 private:
  const fovea::Where where_{fovea::bench::idle_engine, ""};
  const fovea_plan_options options_ = where_.options();
  fovea::Problem problem_;
  fovea::Plan plan_;
  std::string names_[4];
  fovea_tensor_binding tensors_[4]{};
  fovea_bindings bindings_{};
};

template <class Call>
void repeat(benchmark::State& state, const Call& call) {
  call();
  const CountedAllocations allocations(state);
  for (auto _ : state) call();
}

template <void (CachedCall::*call)(), bool backward>
void cached(benchmark::State& state) {
  CachedCall made(case_of(state.range(0)), backward);
  state.SetLabel(case_of(state.range(0)).name);
  repeat(state, [&] { (made.*call)(); });
}
constexpr auto& plan_run_forward = cached<&CachedCall::run_plan, false>;
constexpr auto& plan_run_backward = cached<&CachedCall::run_plan, true>;
constexpr auto& whole_forward = cached<&CachedCall::forward, false>;
constexpr auto& whole_backward = cached<&CachedCall::backward, true>;
BENCHMARK(plan_run_forward)->DenseRange(0, plain_cases);
BENCHMARK(plan_run_backward)->DenseRange(0, plain_cases);
BENCHMARK(whole_forward)->DenseRange(0, plain_cases);
BENCHMARK(whole_backward)->DenseRange(0, plain_cases);

// An object that has made its plans.
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
  repeat(state, [&] { attend.forward({.o = view(3), .lse = rows(4)}); });
}
void cpp_backward(benchmark::State& state) {
  fovea::Attention attend = attention(state.range(0) != 0);
  state.SetLabel(state.range(0) != 0 ? "two captured tensors" : "causal");
  const fovea::Incoming in{.o = view(3), .lse = rows(4), .grad_o = view(5)};
  const fovea::Gradients out{.q = view(6), .k = view(7), .v = view(8)};
  repeat(state, [&] { attend.backward(in, out); });
}
BENCHMARK(cpp_forward)->Arg(0)->Arg(1);
BENCHMARK(cpp_backward)->Arg(0)->Arg(1);

}  // namespace
