// Data for what a program captures: arrays for its tensors, values for its scalars, and both as the
// bindings that the C interface takes. Used by every verb that evaluates or runs a formula.
#pragma once

#include <string>
#include <vector>

#include "array.h"
#include "handles.h"

namespace fovea::cli {

struct CapturedTensor {
  std::string name;
  Array values;
};

struct CapturedScalar {
  std::string name;
  double value = 0;
  bool is_float = true;
};

struct Captured {
  std::vector<CapturedTensor> tensors;
  std::vector<CapturedScalar> scalars;
};

// Drawn from the seed and the tensor's name, as its declaration asks for (cli/data). Throws where a
// scalar has no value.
Captured make_captured(fovea_program program, const fovea_sizes& sizes, std::uint64_t seed);

// The smallest extent that values of this tensor are used to index, 8 where they index nothing:
// read off the printed formulas.
std::int64_t index_bound(fovea_program program, const std::string& tensor,
                         const fovea_sizes& sizes);

// "H,129" for these sizes.
std::vector<std::int64_t> extents_of(const std::string& text, const fovea_sizes& sizes);

std::string dtype_name(fovea_dtype dtype);
fovea_dtype dtype_from_name(const std::string& name);

// A seed of its own for each name, so that one tensor's data do not depend on which others there
// are.
std::uint64_t seed_for(std::uint64_t seed, const std::string& name);

}  // namespace fovea::cli
