// What a new formula costs before an engine runs: parsing, differentiating, lowering, and
// classifying the tiles of a mask.
#include <benchmark/benchmark.h>

#include "bench/cases.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/range.h"
#include "ir/simplify.h"
#include "ir/tape.h"

namespace {

using namespace fovea::ir;

void parse(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(parse_program(fovea::bench::long_formula));
}
BENCHMARK(parse)->Unit(benchmark::kMicrosecond);

void differentiate_and_simplify(benchmark::State& state) {
  const Program program = parse_program(fovea::bench::long_formula);
  for (auto _ : state) benchmark::DoNotOptimize(simplify(differentiate(program.mod()).score));
}
BENCHMARK(differentiate_and_simplify)->Unit(benchmark::kMicrosecond);

void print_canonical(benchmark::State& state) {
  const Program program = parse_program(fovea::bench::long_formula);
  for (auto _ : state) benchmark::DoNotOptimize(print(program));
}
BENCHMARK(print_canonical)->Unit(benchmark::kMicrosecond);

// All of it: from the text to the tapes of forward and backward.
void parse_differentiate_and_tape(benchmark::State& state) {
  std::size_t nodes = 0;
  for (auto _ : state) {
    const Program program = parse_program(fovea::bench::long_formula);
    const Gradients gradients = differentiate(program.mod());
    std::vector<Expr> roots{program.mod(), gradients.score};
    for (const LoadGradient& load : gradients.loads) roots.push_back(load.gradient);
    for (const ScalarGradient& scalar : gradients.scalars) roots.push_back(scalar.gradient);
    benchmark::DoNotOptimize(lower(roots));
    nodes = node_count(program.mod());
  }
  state.counters["nodes"] = static_cast<double>(nodes);
}
BENCHMARK(parse_differentiate_and_tape)->Unit(benchmark::kMicrosecond);

// 1000 x 1000 tiles of 64 x 64.
void classify_million_tiles(benchmark::State& state, const char* mask) {
  const Ranges ranges(parse_program(mask).mask());
  Ranges::Scratch scratch;
  for (auto _ : state) {
    std::int64_t full = 0;
    Box box;
    box.Sq = box.Skv = IntInterval::of(64000);
    for (std::int64_t q = 0; q < 64000; q += 64) {
      for (std::int64_t k = 0; k < 64000; k += 64) {
        box.q = {q, q + 63};
        box.k = {k, k + 63};
        full += ranges.classify(box, scratch) == TileClass::Full ? 1 : 0;
      }
    }
    benchmark::DoNotOptimize(full);
  }
}
BENCHMARK_CAPTURE(classify_million_tiles, causal, "mask=causal")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(classify_million_tiles, sliding, "mask=sliding(1024)")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(classify_million_tiles, blocks, "mask=\"q // 128 == k // 128 && q >= k\"")
    ->Unit(benchmark::kMillisecond);

}  // namespace
