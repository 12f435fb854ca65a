// The rule that decides whether an engine's numbers are right (docs/semantics.md), in one place.
#pragma once

#include <string>
#include <vector>

#include "cli/check/call.h"
#include "cli/check/workload.h"

namespace fovea::cli {

// How far the outputs of an attention move when its intermediate numbers are rounded as every
// engine rounds them: scores to f32, o and lse to their types before a backward reads them. If
// terms cancel (a gradient that is zero by symmetry, a sum over a million scores), this is more
// than any limit relative to the result, and no engine can do better.
struct Rounding {
  double norm = 0;  // of the difference
  double most = 0;  // of one element
};

struct Comparison {
  std::string name;
  double relative = 0;  // ||x - ref|| / ||ref||, of the finite elements
  double worst = 0;     // largest |x - ref| / max |ref|
  double limit = 0;     // of `relative`; about ten times that of `worst`
  bool within = true;
  std::string complaint;  // why not, in words
};

// fp32 2e-6, bf16 6e-3, fp16 8e-4, three times that for gradients; the coarser of the types counts.
double error_limit(const std::string& inputs, const std::string& output, bool gradient);

// Infinities and NaN must lie where the reference has them; a reference of norm zero must be met
// exactly. An error of size `rounding` is allowed on top of the limit, or of what rounding
// probabilities to 16 bits does, if that is more.
Comparison compare(const NamedArray& got, const Array& reference, double limit,
                   const Rounding& rounding = {}, const Rounding& of_p = {});

// Every array of `got` with the one of the same name. One that is beyond its limit is judged again
// with what rounding alone does to it.
std::vector<Comparison> compare_all(const Workload& workload, const Results& got,
                                    const Results& reference);

}  // namespace fovea::cli
