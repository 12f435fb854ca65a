// A Program ready to be evaluated in double: mask, modified score, and in the backward the
// derivatives that are wanted. Immutable; every value lives in the caller's cells.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "ir/diff.h"
#include "ir/eval.h"

namespace fovea::reference {

using Point = ir::Point<double>;
using Cells = std::span<ir::Cell<double>>;

using Indices = std::array<std::int32_t, ir::limits::rank>;

// Derivatives at a point: some of the whole formula, then those by each captured thing whose
// gradient is wanted.
class Derivatives {
 public:
  // One load or one scalar: its derivatives are roots from the first one on.
  struct Captured {
    bool is_tensor;
    std::uint32_t slot;
    std::size_t first_root;
    std::size_t first_index, rank;  // the roots that are indices of a load
  };

  Derivatives() = default;
  // Of a captured thing there is one root for each of `by`.
  Derivatives(const Problem& baked, std::vector<ir::Expr> roots, std::span<const ir::Gradients> by);

  explicit operator bool() const { return evaluator_.has_value(); }
  std::size_t cell_count() const { return evaluator_ ? evaluator_->value_count() : 0; }
  // Evaluates everything; the rest reads the cells.
  void run(const Point& point, Cells cells) const { evaluator_->run(point, cells); }
  double root(std::size_t i, Cells cells) const { return evaluator_->value(cells, i).f; }
  std::span<const Captured> captured() const { return captured_; }
  Indices indices(const Captured& load, Cells cells) const;

 private:
  std::optional<ir::Evaluator<double>> evaluator_;
  std::vector<Captured> captured_;
};

class Formulas {
 public:
  explicit Formulas(const Problem& baked);  // its Program, for its direction and wanted gradients

  std::size_t cell_count() const;

  bool keeps(const Point& point, Cells cells) const;
  double modified_score(const Point& point, Cells cells) const;

  // Evaluates gradients() at a point whose score and grad are set. Returns the gradient by the
  // score: the hand-written one if there is one.
  double differentiate(const Point& point, Cells cells) const;
  const Derivatives& gradients() const { return gradients_; }

 private:
  std::optional<ir::Evaluator<double>> mask_, mod_;
  Derivatives gradients_;
};

}  // namespace fovea::reference
