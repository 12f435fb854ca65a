// Every engine on every problem of the list: it passes within the limits of its type, or refuses
// with a reason. The reference engine is the oracle of the others and is held to the definition
// itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "attention/cpu.h"
#include "base/env.h"
#include "cli/check/captured.h"
#include "cli/check/gradient_check.h"
#include "trial.h"

namespace fovea::conformance {
namespace {

// Finite differences run a forward some eighty times. No line took more than a second with this
// bound on two busy cores; the few lines above it are checked without them.
constexpr double affordable_work = 1e6;
constexpr int coordinates = 3;

void expect_right_gradients(const cli::Workload& workload) {
  if (!workload.backward || cli::forward_work(workload) > affordable_work) return;
  for (const cli::GradientCheck& one : cli::check_gradients(workload, coordinates)) {
    EXPECT_TRUE(one.within) << one.name << ": " << one.complaint << " (error " << one.error << ")";
  }
}

// The definition says without a computation that rows with nothing kept are zero, with an lse of
// -inf or the sink, and that all other numbers are finite. The checks return the first number that
// breaks it, in words, or "".
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

class Rows {
 public:
  Rows(const cli::Workload& workload, const cli::Results& results)
      : workload_(workload),
        config_(workload.config),
        o_(*results.find("o")),
        lse_(results.find("lse")),
        row_max_(results.find("row_max")),
        program_(workload.program->get(), workload.captured, cli::seen_sizes(workload.config)) {}

  std::string check() {
    for (std::int64_t b = 0; b < config_.sizes.b; ++b) {
      program_.set_lengths(workload_.q_length(b), workload_.k_length(b));
      for (std::int64_t h = 0; h < config_.sizes.h; ++h) {
        for (std::int64_t q = 0; q < workload_.q_length(b); ++q) {
          const std::string complaint = check_row(b, h, q);
          if (complaint.empty()) continue;
          return "row b=" + std::to_string(b) + " h=" + std::to_string(h) +
                 " q=" + std::to_string(q) + complaint;
        }
      }
    }
    return "";
  }

 private:
  // A modified score of -inf counts as not kept; no formula of the list makes one of some scores
  // only.
  bool is_empty(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const auto i = static_cast<std::size_t>(b);
    const auto& by_q = workload_.q_offsets;
    const auto& by_k = workload_.k_offsets;
    const std::int64_t q_seen = q + (by_q.empty() ? config_.q_offset : by_q[i]);
    const std::int64_t first = by_k.empty() ? config_.k_offset : by_k[i];
    for (std::int64_t k = 0; k < workload_.k_length(b); ++k) {
      const auto value =
          program_.evaluate({b + config_.b_offset, h + config_.h_offset, q_seen, k + first});
      const bool kept = value.keep && static_cast<double>(value.score) != minus_infinity;
      if (kept) return false;
    }
    return true;
  }

  // Of feature 0 in O, and of the row in lse.
  std::int64_t o_index(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const fovea_sizes& s = config_.sizes;
    switch (config_.layout) {
      case FOVEA_BHSD: return ((b * s.h + h) * s.sq + q) * s.dv;
      case FOVEA_BSHD: return ((b * s.sq + q) * s.h + h) * s.dv;
      case FOVEA_SBHD: return ((q * s.b + b) * s.h + h) * s.dv;
      case FOVEA_THD: break;
    }
    return ((workload_.q_starts[static_cast<std::size_t>(b)] + q) * s.h + h) * s.dv;
  }
  std::int64_t row_index(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const fovea_sizes& s = config_.sizes;
    if (!workload_.packed()) return (b * s.h + h) * s.sq + q;
    return h * s.t_q + workload_.q_starts[static_cast<std::size_t>(b)] + q;
  }

  std::string check_row(std::int64_t b, std::int64_t h, std::int64_t q) const {
    const bool empty = is_empty(b, h, q);
    const std::int64_t first = o_index(b, h, q), row = row_index(b, h, q);
    for (std::int64_t i = 0; i < config_.sizes.dv; ++i) {
      const double x = o_.get(first + i);
      if (empty ? x != 0 : !std::isfinite(x)) {
        return (empty ? " is empty, but o is " : " has o = ") + std::to_string(x);
      }
    }
    const double without = config_.sink != 0 ? workload_.sink.get(h) : minus_infinity;
    if (lse_ != nullptr) {
      const double lse = lse_->get(row);
      if (empty ? std::abs(lse - without) > 1e-6 && lse != without : !std::isfinite(lse)) {
        return std::string(empty ? " is empty, but" : " has") + " lse = " + std::to_string(lse);
      }
    }
    if (row_max_ == nullptr) return "";
    const double largest = row_max_->get(row);
    const bool right = empty ? largest == minus_infinity : std::isfinite(largest);
    return right ? "" : " has row_max = " + std::to_string(largest);
  }

  const cli::Workload& workload_;
  const fovea_problem_config& config_;
  const cli::Array& o_;
  const cli::Array* lse_;
  const cli::Array* row_max_;
  cli::BoundProgram program_;
};

std::string check_rows(const cli::Workload& workload, const cli::Results& results) {
  return Rows(workload, results).check();
}

std::string check_finite(const cli::NamedArray& named) {
  for (std::int64_t i = 0; i < named.array.size(); ++i) {
    if (std::isfinite(named.array.get(i))) continue;
    return named.name + "[" + std::to_string(i) + "] is " + std::to_string(named.array.get(i));
  }
  return "";
}

void hold_to_the_definition(const cli::Workload& workload, const cli::Results& results) {
  for (const cli::Pass* pass : {&results.forward, &results.backward}) {
    EXPECT_EQ(pass->complaints, std::vector<std::string>{});
  }
  EXPECT_EQ(check_rows(workload, results), "");
  for (const cli::NamedArray& named : results.arrays) {
    if (!named.gradient) continue;
    EXPECT_EQ(check_finite(named), "");
  }
  const cli::Results again = run(workload, "reference");
  for (const cli::NamedArray& named : results.arrays) {
    EXPECT_EQ(named.array.bytes, again.find(named.name)->bytes)
        << named.name << " differs between two runs";
  }
  expect_right_gradients(workload);
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
  if (engine == "reference") {
    hold_to_the_definition(workload, run(workload, engine));
  } else {
    EXPECT_EQ(complaints(problem, engine), std::vector<std::string>{});
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

// Support can't shrink, or grow, unnoticed. Pinned are `engine code line`.
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
  EXPECT_EQ(unpinned(refused, "refusals.txt"), std::vector<std::string>{});
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
