// What a caller of the C interface pays before an engine starts: a plan that is already cached, the
// question whether a problem is supported, and the binding of a call.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/capi/counted.h"
#include "bench/cases.h"
#include "fovea/fovea.h"

namespace {

using fovea::bench::check;

const std::string line = std::string("b=2 h=8 sq=64 d=8 ") + fovea::bench::long_formula;

fovea_problem parsed(const std::string& text) {
  fovea_problem problem = nullptr;
  check(fovea_problem_parse(text.c_str(), &problem, nullptr));
  return problem;
}

constexpr fovea_plan_options reference{sizeof(fovea_plan_options), "reference", nullptr, nullptr};

void plan_cached(benchmark::State& state) {
  const fovea_problem problem = parsed(line);
  for (auto _ : state) {
    fovea_plan plan = nullptr;
    check(fovea_plan_create(problem, &reference, &plan));
    fovea_plan_destroy(plan);
  }
  fovea_problem_destroy(problem);
}
BENCHMARK(plan_cached)->Unit(benchmark::kNanosecond)->ThreadRange(1, 2);

// The cache is emptied each time: judge, bake, compile, insert.
void plan_built(benchmark::State& state) {
  const fovea_problem problem = parsed(line);
  for (auto _ : state) {
    fovea_plan plan = nullptr;
    check(fovea_cache_clear());
    check(fovea_plan_create(problem, &reference, &plan));
    fovea_plan_destroy(plan);
  }
  fovea_problem_destroy(problem);
}
BENCHMARK(plan_built)->Unit(benchmark::kMicrosecond);

void supported(benchmark::State& state) {
  const fovea_problem problem = parsed(line);
  for (auto _ : state) {
    fovea_answer answer = FOVEA_NO;
    fovea_report report = nullptr;
    check(fovea_supported(problem, &reference, &answer, &report));
    benchmark::DoNotOptimize(answer);
    fovea_report_destroy(report);
  }
  fovea_problem_destroy(problem);
}
BENCHMARK(supported)->Unit(benchmark::kNanosecond);

// Problems that were never asked about: every engine bakes and judges.
void supported_new_problem(benchmark::State& state) {
  std::vector<fovea_problem> problems;
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  const fovea_problem first = parsed(line);
  check(fovea_problem_describe(first, &config));
  constexpr int different = 4096;  // more than the planner remembers
  for (int i = 0; i < different; ++i) {
    config.sizes.sq = i + 1;
    fovea_problem problem = nullptr;
    check(fovea_problem_create(&config, &problem));
    problems.push_back(problem);
  }
  std::size_t i = 0;
  for (auto _ : state) {
    fovea_answer answer = FOVEA_NO;
    check(fovea_supported(problems[i++ % problems.size()], &reference, &answer, nullptr));
    benchmark::DoNotOptimize(answer);
  }
  for (const fovea_problem problem : problems) fovea_problem_destroy(problem);
  fovea_problem_destroy(first);
}
BENCHMARK(supported_new_problem)->Unit(benchmark::kMicrosecond);

void problem_create(benchmark::State& state) {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  const fovea_problem described = parsed(line);
  check(fovea_problem_describe(described, &config));
  for (auto _ : state) {
    fovea_problem problem = nullptr;
    check(fovea_problem_create(&config, &problem));
    fovea_problem_destroy(problem);
  }
  fovea_problem_destroy(described);
}
BENCHMARK(problem_create)->Unit(benchmark::kNanosecond);

void problem_parse(benchmark::State& state) {
  for (auto _ : state) fovea_problem_destroy(parsed(line));
}
BENCHMARK(problem_parse)->Unit(benchmark::kMicrosecond);

// A call without work (no rows): binding, validation and the way into the engine.
void run_nothing(benchmark::State& state) {
  const fovea_problem problem = parsed(line);
  fovea_plan plan = nullptr;
  check(fovea_plan_create(problem, &reference, &plan));
  const fovea_sizes empty{0, 8, 8, 64, 64, 8, 8, 0, 0};
  std::vector<float> data(8 * 129);
  fovea_tensor_binding tensors[3] = {
      {"temperature", {}, {}}, {"slopes", {}, {}}, {"table", {}, {}}};
  for (fovea_tensor_binding& tensor : tensors) tensor.array.data = data.data();
  std::size_t bytes = 0;
  check(fovea_plan_workspace(plan, &empty, &bytes));
  void* const workspace = ::operator new(bytes + 64, std::align_val_t{64});
  fovea_bindings bindings{};
  bindings.struct_size = sizeof bindings;
  bindings.sizes = &empty;
  bindings.tensors = tensors;
  bindings.tensor_count = 3;
  bindings.workspace = workspace;
  bindings.workspace_bytes = bytes;
  for (auto _ : state) check(fovea_plan_run(plan, &bindings));
  ::operator delete(workspace, std::align_val_t{64});
  fovea_plan_destroy(plan);
  fovea_problem_destroy(problem);
}
BENCHMARK(run_nothing)->Unit(benchmark::kNanosecond);

}  // namespace
