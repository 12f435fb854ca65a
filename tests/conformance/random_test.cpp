// Random problems on the CPU engine against the reference, within the limits of their types, and
// bit for bit the same whoever runs its tasks. FOVEA_TEST_SEED and FOVEA_TEST_COUNT draw others and
// more:
// `./dev fuzz problems`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/check/compare.h"
#include "random_line.h"

namespace fovea::conformance {
namespace {

constexpr std::uint64_t blocks = 20;  // tests, so that processes can share them

std::uint64_t cases_per_block() {
  const char* const given = std::getenv("FOVEA_TEST_COUNT");
  const std::uint64_t all = given != nullptr ? std::strtoull(given, nullptr, 10) : test::cases(500);
  return all / blocks + (all % blocks != 0 ? 1 : 0);
}

cli::Results run(const cli::Workload& workload, const char* engine, cli::Threads threads) {
  cli::CallOptions options;
  options.engine = engine;
  options.threads = threads;
  return cli::run_workload(workload, options);
}

// What is wrong with it, in words; "" if nothing is.
std::string complaint(const RandomLine& random) {
  const cli::Workload workload = cli::make_workload(random.line, 0, random.data);
  const cli::Results results = run(workload, "cpu", cli::Threads::Own);
  const cli::Results in_turn = run(workload, "cpu", cli::Threads::OneInTurn);
  for (const cli::Pass* pass : {&results.forward, &results.backward, &in_turn.backward}) {
    if (!pass->complaints.empty()) return "it " + pass->complaints.front();
  }
  for (std::size_t i = 0; i < results.arrays.size(); ++i) {
    if (results.arrays[i].array.bytes != in_turn.arrays[i].array.bytes) {
      return results.arrays[i].name + " differs between its own threads and one of the host";
    }
  }
  const cli::Results reference = run(workload, "reference", cli::Threads::Own);
  for (const cli::Comparison& one : cli::compare_all(workload, results, reference)) {
    if (!one.within) return one.name + ": " + one.complaint;
  }
  return "";
}

class Random : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Random, ProblemsMeetTheReference) {
  const std::uint64_t count = cases_per_block(), seed = test::test_seed();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t number = GetParam() * count + i;
    test::Random random(seed, number);
    const RandomLine line = random_line(random);
    std::string what;
    try {
      what = complaint(line);
    } catch (const std::exception& error) {
      what = error.what();
    }
    EXPECT_EQ(what, "") << test::seed_text(seed, number) << "\n" << run_command(line);
  }
}

INSTANTIATE_TEST_SUITE_P(Block, Random, testing::Range<std::uint64_t>(0, blocks));

}  // namespace
}  // namespace fovea::conformance
