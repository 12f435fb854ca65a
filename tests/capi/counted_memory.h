// How often a test or a benchmark has asked for memory, on any thread.
#pragma once

namespace fovea::testing {

bool allocations_are_counted();  // not under sanitizers, which have operators of their own
long allocation_count();

// How many allocations the second of two calls makes: the first may make plans, or start threads.
template <class Call>
long allocations_of(const Call& call) {
  call();
  const long before = allocation_count();
  call();
  return allocation_count() - before;
}

}  // namespace fovea::testing
