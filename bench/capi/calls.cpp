// What one cached call costs the host besides its engine: the struct read, names matched, every
// rule checked, the plan found. The engine does nothing, so sizes do not matter, and pointers are
// numbers.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>

#include "bench/capi/counted.h"
#include "bench/capi/idle_engine.h"
#include "bench/cases.h"
#include "fovea/fovea.h"

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
class CachedCall {
 public:
  CachedCall(const Case& row, bool backward) {
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
  ~CachedCall() {
    fovea_plan_destroy(plan_);
    fovea_problem_destroy(problem_);
  }
  CachedCall(const CachedCall&) = delete;
  CachedCall& operator=(const CachedCall&) = delete;

  void run_plan() { check(fovea_plan_run(plan_, &bindings_)); }
  void forward() { check(fovea_forward(problem_, &options_, &bindings_, nullptr)); }
  void backward() { check(fovea_backward(problem_, &options_, &bindings_, nullptr)); }

 private:
  // Addresses that are never read or written, far apart so that nothing overlaps.
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
  CachedCall cached(case_of(state.range(0)), backward);
  state.SetLabel(case_of(state.range(0)).name);
  call(cached);
  const CountedAllocations allocations(state);
  for (auto _ : state) call(cached);
}

void plan_run_forward(benchmark::State& state) {
  measure(state, false, [](CachedCall& cached) { cached.run_plan(); });
}
void plan_run_backward(benchmark::State& state) {
  measure(state, true, [](CachedCall& cached) { cached.run_plan(); });
}
void whole_forward(benchmark::State& state) {
  measure(state, false, [](CachedCall& cached) { cached.forward(); });
}
void whole_backward(benchmark::State& state) {
  measure(state, true, [](CachedCall& cached) { cached.backward(); });
}
BENCHMARK(plan_run_forward)->DenseRange(0, plain_cases);
BENCHMARK(plan_run_backward)->DenseRange(0, plain_cases);
BENCHMARK(whole_forward)->DenseRange(0, plain_cases);
BENCHMARK(whole_backward)->DenseRange(0, plain_cases);

}  // namespace
