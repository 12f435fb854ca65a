// A problem line made concrete: its problems and the data of every input, all drawn from one seed.
// Knows nothing of engines; cli/call runs it. Used by the verbs, the conformance tests and benches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "captured.h"
#include "placed.h"

namespace fovea::cli {

// What a line cannot say about its data. Directives `#! name` in the list of conformance problems.
struct Twists {
  bool poison_masked_kv = false;  // NaN and Inf in keys and values that no query may see
  bool spread_captured = false;   // captured tensors lie with gaps between their elements
};

struct Workload {
  Problem forward;            // always there: a backward needs its outputs
  Problem backward;           // null: not asked for
  bool forward_asked = true;  // false: direction=backward
  Program program;
  fovea_problem_config config{}, backward_config{};  // as described by the problems

  // Dense, in the order of the layout: [B,H,S,D], [B,S,H,D], [S,B,H,D] or [T,H,D].
  Array q, k, v;
  Array grad_o = zeros("f32", {0}), sink = grad_o, grad_lse = grad_o;  // of no elements: has none
  Captured captured;
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
Workload make_workload(const std::string& line, std::uint64_t seed, const Twists& twists = {});

// A line without `rng=engine`: what the reference engine can run.
std::string with_portable_rng(std::string line);

// The same attention at the same point in double precision, dense, with captured floats in f32: for
// finite differences.
Workload in_double(const Workload& workload);

// The same formulas over captured floats in f32, the widest that there is; with another mod, if
// given.
Program widened_program(fovea_program program, const std::string& mod = "");

// The sizes that formulas and captured extents see: H may be global.
fovea_sizes seen_sizes(const fovea_problem_config& config);

// Where one of the eight tensors lies: q k v o do dq dk dv.
Placement placement_of(const Workload& workload, const std::string& name);
// Where a captured tensor lies: dense, or as tensor_strides of the line says.
Placement captured_placement(const Workload& workload, const CapturedTensor& tensor);
// lse and its like: [B,H,Sq], packed [H,T]; f64 where q is.
Placement row_placement(const Workload& workload);
std::string statistics_dtype(const Workload& workload);

// The dense index of feature 0 of a row of K or V.
std::int64_t key_row(const Workload& workload, std::int64_t b, std::int64_t g, std::int64_t k,
                     std::int64_t features);

// NaN into K and Inf into V where no query of any head of the group may look.
void poison_masked(Workload& workload);

}  // namespace fovea::cli
