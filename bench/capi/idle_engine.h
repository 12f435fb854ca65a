// What benchmarks of single calls share: an engine whose plans do nothing, so that what is left of
// a call is Fovea's own work around it, and a count of how often a call asks for memory.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>

#include "tests/capi/counted_memory.h"

namespace fovea::bench {

inline constexpr const char* idle_engine = "idle";

// Adds it to the process's planner, once.
void add_idle_engine();

// Counts while it lives; its destructor adds the column of allocations per iteration.
class CountedAllocations {
 public:
  explicit CountedAllocations(benchmark::State& state)
      : state_(state), before_(testing::allocation_count()) {}
  ~CountedAllocations() {
    const std::int64_t made = testing::allocation_count() - before_;
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
