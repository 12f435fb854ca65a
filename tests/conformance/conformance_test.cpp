// Every engine on every problem of the list: it passes within the limits of its type, or refuses
// with a reason. The reference engine is the oracle of the others and is held to the definition
// itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <set>

#include "attention/cpu.h"
#include "base/env.h"
#include "cli/check/compare.h"
#include "cli/check/gradient_check.h"
#include "empty_rows.h"
#include "problems.h"

namespace fovea::conformance {
namespace {

// Finite differences run a forward some eighty times. No line took more than a second with this
// bound on two busy cores; the few lines above it are checked without them.
constexpr double affordable_work = 1e6;
constexpr int coordinates = 3;

cli::Results run(const cli::Workload& workload, const std::string& engine,
                 cli::Threads threads = cli::Threads::Own) {
  cli::CallOptions options;
  options.engine = engine;
  options.threads = threads;
  return cli::run_workload(workload, options);
}

void expect_no_complaints(const cli::Results& results) {
  for (const cli::Pass* pass : {&results.forward, &results.backward}) {
    for (const std::string& complaint : pass->complaints) ADD_FAILURE() << "it " << complaint;
  }
}

void expect_same_bits(const cli::Results& first, const cli::Results& second, const char* between) {
  ASSERT_EQ(first.arrays.size(), second.arrays.size());
  for (std::size_t i = 0; i < first.arrays.size(); ++i) {
    EXPECT_EQ(first.arrays[i].array.bytes, second.arrays[i].array.bytes)
        << first.arrays[i].name << " differs between " << between;
  }
}

void expect_right_gradients(const cli::Workload& workload) {
  if (!workload.backward || cli::forward_work(workload) > affordable_work) return;
  for (const cli::GradientCheck& one : cli::check_gradients(workload, coordinates)) {
    EXPECT_TRUE(one.within) << one.name << ": " << one.complaint << " (error " << one.error << ")";
  }
}

void hold_to_the_definition(const cli::Workload& workload, const cli::Results& results) {
  EXPECT_EQ(check_rows(workload, results), "");
  for (const cli::NamedArray& named : results.arrays) {
    if (!named.gradient) continue;
    EXPECT_EQ(check_finite(named), "");
  }
  expect_same_bits(results, run(workload, "reference"), "two runs");
  expect_right_gradients(workload);
}

// An engine whose own generator is the portable one can be held to the reference also there.
cli::Workload portable(const Case& problem) {
  return cli::make_workload(cli::with_portable_rng(problem.line), 0, problem.data);
}

void hold_to_the_reference(const Case& problem, const cli::Workload& workload,
                           const cli::Results& results) {
  const cli::Workload same = portable(problem);
  for (const cli::Comparison& one : cli::compare_all(same, results, run(same, "reference"))) {
    EXPECT_TRUE(one.within) << one.name << ": " << one.complaint;
  }
  const std::string& engine = results.forward.engine;
  if (engine == "cpu") {  // whoever runs its tasks, asked for or not
    const cli::Results in_turn = run(workload, engine, cli::Threads::OneInTurn);
    expect_no_complaints(in_turn);
    expect_same_bits(results, in_turn, "its own threads and one of the host");
  } else if (workload.config.deterministic != 0) {
    expect_same_bits(results, run(workload, engine), "two runs");
  }
}

// CTest runs the lines of the CPU engine once per instruction set (see tests/CMakeLists.txt).
bool machine_lacks_the_instructions() {
  const std::optional<std::string> asked = env_value(Env::CpuIsa);
  return asked && !std::ranges::count(cpu_isa(), *asked);
}

using Parameter = std::tuple<std::string, Case>;
class Conformance : public testing::TestWithParam<Parameter> {};

TEST_P(Conformance, PassesOrRefusesWithAReason) {
  if (machine_lacks_the_instructions()) GTEST_SKIP() << "not on this machine";
  const auto& [engine, problem] = GetParam();
  constexpr std::uint64_t seed = 0;  // the line's
  const cli::Workload workload = cli::make_workload(problem.line, seed, problem.data);
  if (const std::string code = verdict(engine, problem); code != "pass") {
    EXPECT_NE(code, "no_reason");
    EXPECT_THROW(run(workload, engine), Error) << "refused with " << code << ", but runs";
    return;
  }
  const cli::Results results = run(workload, engine);
  expect_no_complaints(results);
  if (engine == "reference") {
    hold_to_the_definition(workload, results);
  } else {
    hold_to_the_reference(problem, workload, results);
  }
}

std::string test_name(const testing::TestParamInfo<Parameter>& info) {
  char number[16];
  std::snprintf(number, sizeof number, "_line%04d", std::get<1>(info.param).number);
  return std::get<0>(info.param) + number;
}

INSTANTIATE_TEST_SUITE_P(Lines, Conformance,
                         testing::Combine(testing::ValuesIn(host_engines()),
                                          testing::ValuesIn(read_problems())),
                         test_name);

// `engine code line`, without what is said about it behind a #.
std::set<std::string> pinned_refusals() {
  std::ifstream in(FOVEA_SOURCE_DIR "/tests/conformance/refusals.txt");
  EXPECT_TRUE(in.good()) << "tests/conformance/refusals.txt cannot be read";
  std::set<std::string> out;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') out.insert(line);
  }
  return out;
}

// Support can't shrink, or grow, unnoticed.
TEST(Refusals, AreThePinnedOnes) {
  std::set<std::string> refused;
  const std::vector<std::string> engines = host_engines();
  std::size_t width = 0;
  for (const std::string& engine : engines) width = std::max(width, engine.size());
  for (const Case& problem : read_problems()) {
    std::printf("%4d", problem.number);
    for (const std::string& engine : engines) {
      const std::string code = verdict(engine, problem);
      std::printf("  %s %-*s", engine.c_str(), static_cast<int>(width), code.c_str());
      if (code != "pass") {
        refused.insert(engine + " " + code + " " + problem.directives + problem.line);
      }
    }
    std::printf("  %s%s\n", problem.directives.c_str(), problem.line.c_str());
  }
  const std::set<std::string> pinned = pinned_refusals();
  for (const std::string& one : refused) {
    EXPECT_TRUE(pinned.contains(one)) << "refused, but not in refusals.txt: " << one;
  }
  for (const std::string& one : pinned) {
    EXPECT_TRUE(refused.contains(one)) << "in refusals.txt, but no longer refused: " << one;
  }
}

TEST(List, IsLongEnoughAndSaysEverythingOnce) {
  const std::vector<Case> problems = read_problems();
  EXPECT_GE(problems.size(), 250u);
  std::set<std::string> seen;
  for (const Case& problem : problems) {
    EXPECT_TRUE(seen.insert(problem.directives + problem.line).second)
        << "twice: " << problem.line << " (line " << problem.number << ")";
  }
}

}  // namespace
}  // namespace fovea::conformance
