// The twist poison_masked_kv: what is masked must never be read into a result, so it may be NaN.
#include <limits>

#include "bound_program.h"
#include "workload.h"

namespace fovea::cli {
namespace {

class Poisoner {
 public:
  explicit Poisoner(Workload& workload)
      : workload_(workload),
        config_(workload.config),
        program_(workload.program.get(), workload.captured, seen_sizes(workload.config)) {}

  void run() {
    const fovea_sizes& sizes = config_.sizes;
    for (std::int64_t b = 0; b < sizes.b; ++b) {
      program_.set_lengths(workload_.q_length(b), workload_.k_length(b));
      for (std::int64_t g = 0; g < sizes.hkv; ++g) {
        for (std::int64_t k = 0; k < rows(b); ++k) {
          if (!seen(b, g, k)) fill(b, g, k);
        }
      }
    }
  }

 private:
  // Rows of this sequence in memory: its padding too, unless that is another sequence's.
  std::int64_t rows(std::int64_t b) const {
    const auto i = static_cast<std::size_t>(b);
    return workload_.packed() ? workload_.k_starts[i + 1] - workload_.k_starts[i]
                              : config_.sizes.skv;
  }

  bool seen(std::int64_t b, std::int64_t g, std::int64_t k) const {
    if (k >= workload_.k_length(b)) return false;
    const std::int64_t group = config_.sizes.h / config_.sizes.hkv;
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
      for (std::int64_t q = 0; q < workload_.q_length(b); ++q) {
        if (program_.evaluate(position(b, h, q, k)).keep) return true;
      }
    }
    return false;
  }

  BoundProgram::Position position(std::int64_t b, std::int64_t h, std::int64_t q,
                                  std::int64_t k) const {
    const auto i = static_cast<std::size_t>(b);
    const auto& by_q = workload_.q_offsets;
    const auto& by_k = workload_.k_offsets;
    return {b + config_.b_offset, h + config_.h_offset,
            q + (by_q.empty() ? config_.q_offset : by_q[i]),
            k + (by_k.empty() ? config_.k_offset : by_k[i])};
  }

  void fill(std::int64_t b, std::int64_t g, std::int64_t k) {
    const std::int64_t d = config_.sizes.d, dv = config_.sizes.dv;
    const std::int64_t in_k = key_row(workload_, b, g, k, d),
                       in_v = key_row(workload_, b, g, k, dv);
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t i = 0; i < d; ++i) workload_.k.set(in_k + i, k % 2 == 0 ? nan : -inf);
    for (std::int64_t i = 0; i < dv; ++i) workload_.v.set(in_v + i, k % 3 == 0 ? inf : nan);
  }

  Workload& workload_;
  const fovea_problem_config& config_;
  BoundProgram program_;
};

}  // namespace

void poison_masked(Workload& workload) { Poisoner(workload).run(); }

}  // namespace fovea::cli
