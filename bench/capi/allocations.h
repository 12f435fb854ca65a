// How often this program has asked for memory, so that benchmarks can say what one call asks for.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

namespace fovea::bench {

std::int64_t allocation_count();  // of this thread, since it began

// Counts from its making on; adds the column of allocations per iteration when it goes.
class CountedAllocations {
 public:
  explicit CountedAllocations(benchmark::State& state)
      : state_(state), before_(allocation_count()) {}
  ~CountedAllocations() {
    const std::int64_t made = allocation_count() - before_;
    state_.counters["allocations"] =
        static_cast<double>(made) / static_cast<double>(state_.iterations());
  }
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

 private:
  benchmark::State& state_;
  std::int64_t before_;
};

}  // namespace fovea::bench
