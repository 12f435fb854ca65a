// A problem line with its tensors in device memory, at sizes for which drawing every element on the
// host would take minutes: random numbers repeat after a million. Dense or as the line's strides
// say.
#pragma once

#include <fovea/handle.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/gpu/events.h"
#include "cli/check/captured.h"

namespace fovea::bench {

// What one call reads and writes. Several of them are run in turn, so that nothing is left of a
// call in the caches of the GPU when its tensors come again.
struct TensorSet {
  std::unique_ptr<DeviceMemory> q, k, v, o, grad_o, grad_q, grad_k, grad_v, grad_lse;
#define FOVEA_OUTPUT(name, extent, saved) std::unique_ptr<DeviceMemory> name;
#include "fovea/fields.def"
};

class DeviceLine {
 public:
  DeviceLine(const std::string& line, const std::string& engine);  // plans are made: seconds

  bool has_backward() const { return backward_plan_.has_value(); }
  void forward();   // of the next set, on the default stream
  void backward();  // after a forward of every set
  std::size_t sets() const { return sets_.size(); }
  const TensorSet& first() const { return sets_.front(); }

  const std::string& line() const { return line_; }
  const fovea_problem_config& config() const { return config_; }
  fovea_program program() const { return program_->get(); }
  // The captured data on the host; large tensors are missing.
  const cli::CapturedData& captured() const { return captured_; }
  double plan_seconds() const { return plan_seconds_; }
  std::string engine_name() const;
  std::size_t key_value_bytes() const { return key_value_bytes_; }

 private:
  struct Lengths {
    std::unique_ptr<DeviceMemory> q_lengths, k_lengths, q_starts, k_starts, q_offsets, k_offsets;
  };
  void place_captured();
  void place_lengths();
  void make_sets();
  TensorSet make_set(unsigned seed);
  fovea_bindings bindings_of(const TensorSet& set) const;
  bool wants(const std::string& gradient) const;

  std::string line_;
  std::optional<Program> program_;  // always there
  fovea_problem_config config_{}, backward_config_{};
  cli::CapturedData captured_;
  std::vector<fovea_tensor_binding> tensors_, tensors_with_gradients_;
  std::vector<fovea_scalar_binding> scalars_, scalars_with_gradients_;
  std::vector<std::unique_ptr<DeviceMemory>>
      blocks_;  // captured tensors and all gradients of captured things
  std::unique_ptr<DeviceMemory> sink_, grad_sink_, workspace_;
  Lengths lengths_;
  std::vector<TensorSet> sets_;
  std::optional<Plan> forward_plan_, backward_plan_;
  double plan_seconds_ = 0;
  std::size_t next_ = 0, key_value_bytes_ = 0, set_bytes_ = 0;
};

// Are the outputs of a benchmark right? A few rows of o are computed once more on the host, in
// double, from the very tensors that the GPU has.

// ||o - right|| / ||right|| over sampled rows of the first set; NaN if something is not a
// number; negative if it cannot tell: packed tensors, dropout, sinks, captured tensors that are
// too large.
double error_of_sampled_rows(const DeviceLine& line);

// The share of scores that the mask keeps, by tiles of 64 x 64 of head 0: a mixed one counts as
// half.
double kept_share(const DeviceLine& line);

}  // namespace fovea::bench
