#include "empty_rows.h"

#include <cmath>
#include <limits>

#include "cli/check/bound_program.h"

namespace fovea::conformance {
namespace {

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

}  // namespace

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

}  // namespace fovea::conformance
