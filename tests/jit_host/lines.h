// One problem line through engine jit on the host's GPU, against the reference.
#pragma once

#include <chrono>
#include <string>

#include "tests/conformance/problems.h"

namespace fovea::on_host {

// Seconds for lines, if FOVEA_TEST_SECONDS does not say: under sanitizers other tests take longer.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr int default_seconds = 20;
#else
inline constexpr int default_seconds = 60;
#endif

// Says what is wrong; "" if nothing is, or if the line may be refused. A line with deterministic=1
// runs twice, with its blocks in another order, and must give the same bits.
std::string complaint(const conformance::Case& problem);

// A number from the environment.
double env_number(const char* name, double otherwise);

// FOVEA_TEST_SEED; if it is not set, the time.
std::uint64_t seed_of_this_run();

// Is left until so many seconds have passed; with FOVEA_TEST_ALL=1 for ever.
class Budget {
 public:
  explicit Budget(double seconds);
  bool is_left() const { return for_ever_ || elapsed() < seconds_; }
  double elapsed() const;

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  bool for_ever_;
};

// Makes the host a GPU for engine jit: its kernels are compiled by the host's compiler, and device
// cuda:0 is the driver of tests/host_gpu. Call it before anything looks for a driver or makes a
// plan. Throws std::runtime_error.
void use_host_gpu();

}  // namespace fovea::on_host
