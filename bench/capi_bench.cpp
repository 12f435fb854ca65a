// What a caller of the C interface pays before a call: making a problem, asking whether it is
// supported, and getting its plan. capi/ has the calls themselves.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "bench/cases.h"
#include "fovea/handle.hpp"

namespace {

using fovea::check;

const std::string line = std::string("b=2 h=8 sq=64 d=8 ") + fovea::bench::long_formula;
const fovea::Where reference{"reference", ""};

void plan_cached(benchmark::State& state) {
  const fovea::Problem problem(line);
  for (auto _ : state) fovea::Plan(problem, reference);
}
BENCHMARK(plan_cached)->Unit(benchmark::kNanosecond)->ThreadRange(1, 2);

// The cache is emptied each time: judge, bake, compile, insert.
void plan_built(benchmark::State& state) {
  const fovea::Problem problem(line);
  for (auto _ : state) {
    check(fovea_cache_clear());
    fovea::Plan(problem, reference);
  }
}
BENCHMARK(plan_built)->Unit(benchmark::kMicrosecond);

void supported(benchmark::State& state) {
  const fovea::Problem problem(line);
  for (auto _ : state) benchmark::DoNotOptimize(fovea::supported(problem, reference).answer);
}
BENCHMARK(supported)->Unit(benchmark::kNanosecond);

fovea_problem_config described(const fovea::Problem& problem) {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  check(fovea_problem_describe(problem.get(), &config));
  return config;
}

// Problems that were never asked about: every engine bakes and judges.
void supported_new_problem(benchmark::State& state) {
  const fovea::Problem first(line);
  fovea_problem_config config = described(first);
  const fovea_plan_options options = reference.options();
  std::vector<fovea::Problem> problems;
  constexpr int different = 4096;  // more than the planner remembers
  for (int i = 0; i < different; ++i) {
    config.sizes.sq = i + 1;
    problems.emplace_back(config);
  }
  std::size_t i = 0;
  for (auto _ : state) {
    fovea_answer answer = FOVEA_NO;
    check(fovea_supported(problems[i++ % problems.size()].get(), &options, &answer, nullptr));
    benchmark::DoNotOptimize(answer);
  }
}
BENCHMARK(supported_new_problem)->Unit(benchmark::kMicrosecond);

void problem_create(benchmark::State& state) {
  const fovea::Problem problem(line);
  const fovea_problem_config config = described(problem);
  for (auto _ : state) benchmark::DoNotOptimize(fovea::Problem(config));
}
BENCHMARK(problem_create)->Unit(benchmark::kNanosecond);

void problem_parse(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(fovea::Problem(line));
}
BENCHMARK(problem_parse)->Unit(benchmark::kMicrosecond);

}  // namespace
