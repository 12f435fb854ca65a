// What benchmarks of the C interface share: calls that must work, and how often one asks for
// memory.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <stdexcept>

#include "fovea/fovea.h"
#include "tests/capi/counted_memory.h"

namespace fovea::bench {

inline void check(fovea_status status) {
  if (status != FOVEA_OK) throw std::runtime_error(fovea_last_error());
}

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
