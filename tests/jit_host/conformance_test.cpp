// Engine jit without a GPU: lines of the list through its own kernels, run on the host thread by
// thread, against the reference. As many as FOVEA_TEST_SECONDS allow, 180 unless told; where to
// begin is drawn from FOVEA_TEST_SEED, or from the clock. FOVEA_TEST_ALL=1 runs all of them,
// FOVEA_TEST_LINE=n that line of the file, FOVEA_TEST_FORWARD=1 no backward; FOVEA_TEST_TIMES=1
// says what each line takes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "cli/compare.h"
#include "tests/conformance/problems.h"
#include "tests/ir/random.h"
#include "tests/jit_host/host_gpu.h"

namespace fovea::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* engine = "jit";
constexpr const char* device = "cuda:0";
constexpr int parts = 2;  // processes that share the list

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double number(const char* name, double otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atof(given) : otherwise;
}

cli::Results run(const cli::Workload& workload, const char* by, const char* where) {
  cli::CallOptions options;
  options.engine = by;
  options.device = where;
  const bool forward = number("FOVEA_TEST_FORWARD", 0) != 0;
  return forward ? cli::run_forward(workload, options) : cli::run_workload(workload, options);
}

// What is wrong with it, in words; "" if nothing is.
std::string complaint(const Case& problem) try {
  const std::string code = verdict(engine, problem, device);
  if (code != "pass") return "refused: " + code;
  const cli::Workload workload =
      cli::make_workload(cli::with_portable_rng(problem.line), 0, problem.twists);
  const cli::Results results = run(workload, engine, device);
  for (const cli::Pass* pass : {&results.forward, &results.backward}) {
    if (!pass->complaints.empty()) return "it " + pass->complaints.front();
  }
  for (const cli::Comparison& one :
       cli::compare_all(workload, results, run(workload, "reference", "cpu"))) {
    if (!one.within) return one.name + ": " + one.complaint;
  }
  return "";
} catch (const std::exception& error) {
  return error.what();
}

std::vector<Case> lines_of_part(int part) {
  std::vector<Case> out;
  const int only = static_cast<int>(number("FOVEA_TEST_LINE", 0));
  for (const Case& problem : read_problems()) {
    if (problem.line.find("dtype=f64") != std::string::npos) continue;
    if (only != 0 ? problem.number == only : problem.number % parts == part) out.push_back(problem);
  }
  return out;
}

class JitOnHost : public testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() {
    static const bool once = (on_host::use_host_gpu(), true);
    EXPECT_TRUE(once);
  }
};

TEST_P(JitOnHost, LinesOfTheListMeetTheReference) {
  const std::vector<Case> lines = lines_of_part(GetParam());
  if (lines.empty()) GTEST_SKIP() << "no such line in this part";
  const auto now = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                              std::chrono::seconds(1));
  const std::uint64_t seed = std::getenv("FOVEA_TEST_SEED") != nullptr ? test::test_seed() : now;
  const bool all = number("FOVEA_TEST_ALL", 0) != 0;
  const double seconds = number("FOVEA_TEST_SECONDS", 180);
  const std::size_t first = test::Random(seed).below(static_cast<std::uint32_t>(lines.size()));
  const Clock::time_point start = Clock::now();
  std::size_t count = 0;
  for (; count < lines.size() && (all || seconds_since(start) < seconds); ++count) {
    const Case& problem = lines[(first + count) % lines.size()];
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(complaint(problem), "")
        << problem.directives << problem.line << " (line " << problem.number << ")";
    if (std::getenv("FOVEA_TEST_TIMES") != nullptr) {
      std::printf("%6.2f s  line %d\n", seconds_since(begin), problem.number);
    }
  }
  std::printf("FOVEA_TEST_SEED=%llu: %zu of %zu lines\n", static_cast<unsigned long long>(seed),
              count, lines.size());
}

INSTANTIATE_TEST_SUITE_P(Parts, JitOnHost, testing::Range(0, parts));

}  // namespace
}  // namespace fovea::conformance
