// Random problems on the CPU engine against the reference, within the limits of their types, and
// bit for bit the same whoever runs its tasks. FOVEA_TEST_SEED and FOVEA_TEST_COUNT draw others and
// more:
// `./dev fuzz problems`.
#include <gtest/gtest.h>

#include <cstdlib>

#include "random_line.h"
#include "trial.h"

namespace fovea::conformance {
namespace {

constexpr std::uint64_t blocks = 20;  // tests, so that processes can share them

std::uint64_t cases_per_block() {
  const char* const given = std::getenv("FOVEA_TEST_COUNT");
  const std::uint64_t all = given != nullptr ? std::strtoull(given, nullptr, 10) : test::cases(500);
  return all / blocks + (all % blocks != 0 ? 1 : 0);
}

class Random : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Random, ProblemsMeetTheReference) {
  const std::uint64_t count = cases_per_block(), seed = test::test_seed();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t number = GetParam() * count + i;
    test::Random random(seed, number);
    const RandomLine line = random_line(random);
    std::vector<std::string> wrong;
    try {
      wrong = complaints({0, line.line, line.data, ""}, "cpu");
    } catch (const std::exception& error) {
      wrong.emplace_back(error.what());
    }
    EXPECT_EQ(wrong, std::vector<std::string>{}) << test::seed_text(seed, number) << "\n"
                                                 << run_command(line);
  }
}

INSTANTIATE_TEST_SUITE_P(Block, Random, testing::Range<std::uint64_t>(0, blocks));

}  // namespace
}  // namespace fovea::conformance
