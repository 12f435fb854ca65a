// A program with data for what it captures, to be evaluated position by position and classified
// tile by tile through the C interface.
#pragma once

#include <string>
#include <vector>

#include "cli/check/captured.h"
#include "cli/draw/picture.h"

namespace fovea::cli {

// fovea_array and its like over data that must outlive them.
std::vector<fovea_tensor_binding> bind_tensors(const CapturedData& captured);
std::vector<fovea_scalar_binding> bind_scalars(const CapturedData& captured);

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
