// A Program ready to be evaluated in double: mask, modified score, and in the backward the
// derivatives that are wanted. Immutable; every value lives in the caller's cells.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "ir/eval.h"

namespace fovea::reference {

using Point = ir::Point<double>;
using Cells = std::span<ir::Cell<double>>;

// The gradient of one load: added to element `index` of the tensor in `slot`.
struct LoadTerm {
  std::uint32_t slot = 0;
  double value = 0;
  std::array<std::int32_t, ir::limits::rank> index{};
};

class Formulas {
 public:
  explicit Formulas(const Problem& baked);  // its Program, for its direction and wanted gradients

  std::size_t cell_count() const;

  bool keeps(const Point& point, Cells cells) const;
  double modified_score(const Point& point, Cells cells) const;

  // Evaluates every derivative at a point whose score and grad are set; the rest reads the cells.
  // Returns the gradient by the score: the hand-written one if there is one.
  double differentiate(const Point& point, Cells cells) const;
  std::size_t load_count() const { return loads_.size(); }
  std::size_t scalar_count() const { return scalars_.size(); }
  LoadTerm load_term(std::size_t i, Cells cells) const;
  std::uint32_t scalar_slot(std::size_t i) const { return scalars_[i].slot; }
  double scalar_term(std::size_t i, Cells cells) const;

 private:
  using Evaluator = std::optional<ir::Evaluator<double>>;
  struct Load {
    std::uint32_t slot;
    std::size_t root, first_index, rank;  // roots of gradients_
  };
  struct Scalar {
    std::uint32_t slot;
    std::size_t root;
  };

  void derive(const Problem& baked);

  Evaluator mask_, mod_, gradients_;
  std::vector<Load> loads_;
  std::vector<Scalar> scalars_;
};

}  // namespace fovea::reference
