// The problem line: a Problem as text, the same in logs, test lists, the command line and the C
// interface. Keys in any order, quotes round values with spaces; an unknown key is an error that
// names the nearest. docs/problem_line.md lists the keys.
//
// Defaults: b=1 h=1 hkv=h sq=128 skv=sq d=64 dv=d dtype=f32 layout=bhsd direction=forward
// grads=q,k,v; b is the number of lengths, starts or offsets if those are listed; under thd
// tq and tk are the last starts, sq and skv the longest sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace fovea {

// The values that a line carries beside the Problem, for `run` to bind. Empty if the line does not
// have them, or says that they will be `bound`.
struct LineValues {
  std::vector<std::int32_t> q_lengths, k_lengths, q_starts, k_starts, q_offsets, k_offsets;
  std::uint64_t seed = 1, offset = 0;
};

// direction=both has both; they share a Program.
struct ProblemLine {
  std::optional<Problem> forward, backward;
  LineValues values;
};

// Throws InvalidArgument; what it returns is valid.
ProblemLine parse_problem_line(std::string_view line);

// The canonical line: only what is not default, in a fixed order. A valid Problem reads back equal.
std::string print(const Problem& problem);

// All keys, in canonical order.
const std::vector<std::string>& problem_keys();

}  // namespace fovea
