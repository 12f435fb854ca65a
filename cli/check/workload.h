// A problem line made concrete: its problems and the data of every input, all drawn from one seed.
// Knows nothing of engines; call.h runs it.
#pragma once

#include <cstdint>
#include <fovea/handle.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/captured.h"
#include "cli/check/placed.h"

namespace fovea::cli {

struct Workload {
  std::optional<Problem> forward;                    // always there: a backward needs its outputs
  std::optional<Problem> backward;                   // none: not asked for
  bool forward_asked = true;                         // false: direction=backward
  std::optional<Program> program;                    // always there
  fovea_problem_config config{}, backward_config{};  // as described by the problems

  // Dense, in the order of the layout: [B,H,S,D], [B,S,H,D], [S,B,H,D] or [T,H,D].
  Array q = zeros("f32", {0}), k = q, v = q;
  Array grad_o = q, sink = q, grad_lse = q;  // of no elements: has none
  CapturedData captured;
  std::vector<std::int32_t> q_lengths, k_lengths, q_starts, k_starts, q_offsets, k_offsets;
  std::uint64_t seed = 0, offset = 0;  // of dropout
  bool spread_captured = false;

  bool packed() const { return config.layout == FOVEA_THD; }
  bool wants(const std::string& gradient) const;  // "q", "sink", a captured name
  // Of sequence b: its rows in Q and in K.
  std::int64_t q_length(std::int64_t b) const;
  std::int64_t k_length(std::int64_t b) const;
};

// `seed` 0: the line's own, or 1.
Workload make_workload(const std::string& line, std::uint64_t seed, const DataOptions& data = {});

// All but the tensors over positions and features, which may be too large for this machine.
Workload make_values(const std::string& line, std::uint64_t seed);

// A line without `rng=engine`: what the reference engine can run.
std::string with_portable_rng(std::string line);

void describe(const Problem& problem, fovea_problem_config& config);

// The sizes that formulas and captured extents see: H may be global.
fovea_sizes seen_sizes(const fovea_problem_config& config);

// Where one of the eight tensors of a workload lies (q k v o do dq dk dv): extents by layout,
// strides as the problem has them.
Placement placement_of(const Workload& workload, const std::string& name);
// Where a captured tensor lies: dense, or as tensor_strides of the line says.
Placement captured_placement(const Workload& workload, const CapturedTensor& tensor);
// lse and its like: [B,H,Sq], packed [H,T]; f64 if q is.
Placement row_placement(const Workload& workload);
std::string statistics_dtype(const Workload& workload);

// The dense index of feature 0 of a row of K or V.
std::int64_t key_row(const Workload& workload, std::int64_t b, std::int64_t g, std::int64_t k,
                     std::int64_t features);

}  // namespace fovea::cli
