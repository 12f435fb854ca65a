// Data for what a program captures: arrays for its tensors, values for its scalars, and both as the
// bindings that the C interface takes.
#pragma once

#include <fovea/fovea.h>
#include <string>
#include <vector>

#include "cli/check/array.h"

namespace fovea::cli {

// What a line cannot say about its data. Directives `#! name` in the list of conformance problems.
struct DataOptions {
  bool poison_masked_kv = false;  // NaN and Inf in keys and values that no query may see
  bool spread_captured = false;   // captured tensors lie with gaps between their elements
};

struct CapturedTensor {
  std::string name;
  Array values;
};

struct CapturedScalar {
  std::string name;
  double value = 0;
  bool is_float = true;
};

struct CapturedData {
  std::vector<CapturedTensor> tensors;
  std::vector<CapturedScalar> scalars;
};

// What a declaration's `=data` asks for: docs(n), blocks(n), uniform(lo,hi), normal(s), FILE.npy,
// or nothing (floats normal, integers uniform below `index_bound`, bools even).
struct DataRequest {
  std::string name, dtype, text;
  std::vector<std::int64_t> extents;
  std::uint64_t seed = 1;
  std::int64_t index_bound = 2;
};
Array make_data(const DataRequest& request);

// Drawn from the seed and the tensor's name, as its declaration asks for. Throws if a
// scalar has no value.
CapturedData make_captured(fovea_program program, const fovea_sizes& sizes, std::uint64_t seed);

// The smallest extent that values of this tensor are used to index, 8 if they index nothing:
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
