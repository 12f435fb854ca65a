// Data for captured tensors and scalars: arrays and values, both as the bindings that the C
// interface takes, and the program with them bound.
#pragma once

#include <fovea/fovea.h>
#include <string>
#include <vector>

#include "cli/check/array.h"
#include "cli/draw/picture.h"

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

// A seed of its own for each name, so that one tensor's data do not depend on which others there
// are.
std::uint64_t seed_for(std::uint64_t seed, const std::string& name);

// fovea_array and its like over data that must outlive them.
std::vector<fovea_tensor_binding> bind_tensors(const CapturedData& captured);
std::vector<fovea_scalar_binding> bind_scalars(const CapturedData& captured);

// A program with data for what it captures, to be evaluated position by position and classified
// tile by tile through the C interface.
class BoundProgram {
 public:
  // Keeps no handle of its own: program and captured must outlive it.
  BoundProgram(fovea_program program, const CapturedData& captured, const fovea_sizes& sizes);

  bool has_mask() const { return !mask_text_.empty(); }
  bool has_mod() const { return !mod_text_.empty(); }
  const std::string& mask_text() const { return mask_text_; }
  const std::string& mod_text() const { return mod_text_; }
  // Whether the modifier only adds to the score, so that it can be shown for a score of 0.
  bool is_additive() const;

  // Sets the leaves Sq and Skv, if sequences have lengths of their own.
  void set_lengths(std::int64_t sq, std::int64_t skv);

  struct Position {
    std::int64_t b = 0, h = 0, q = 0, k = 0;
  };
  struct Value {
    bool keep = true;
    float score = 0;  // as modified
  };
  Value evaluate(const Position& at, float score = 0) const;

  // Rows q0 <= q < q1, columns k0 <= k < k1.
  struct Tile {
    std::int64_t b = 0, h = 0, q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  };
  TileClass classify(const Tile& tile) const;

 private:
  fovea_program program_;
  std::vector<fovea_tensor_binding> tensors_;
  std::vector<fovea_scalar_binding> scalars_;
  std::string mod_text_, mask_text_;
  fovea_point point_{};
};

}  // namespace fovea::cli
