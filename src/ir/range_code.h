// The steps that ir/range runs: the nodes of formulas in order, each with the rule for its range.
// Engine jit writes the same steps as CUDA code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/expr.h"

namespace fovea::ir {

// A term of a linear form over numbered unknowns, in unbounded integers. i32 sums are followed so.
struct LinearTerm {
  std::int64_t coefficient = 0;
  std::uint32_t unknown = 0;
};

struct RangeStep {
  enum class Kind : std::uint8_t {
    Leaf,     // read from the box
    Load,     // read from the box, by `load`
    Plain,    // operand ranges alone
    Sum,      // i32 +, -, * by a constant: by its linear form, if nothing wraps
    Compare,  // i32 comparison: by the linear form of left - right, if nothing wraps
    Modulo,   // x % m == y or x % m != y with a constant m > 0
  };
  const Node* node = nullptr;
  Kind kind = Kind::Plain;
  std::uint32_t first_operand = 0, operand_count = 0;  // in RangeCode::operands
  std::uint32_t first_term = 0, term_count = 0;        // Sum, Compare: in RangeCode::terms
  std::int64_t offset = 0;                             // Sum, Compare
  std::uint32_t load = 0;                              // Load: its number
  std::uint32_t x = 0, y = 0;                          // Modulo: steps
  std::int64_t modulus = 0;                            // Modulo
};

struct RangeCode {
  std::vector<RangeStep> steps;
  std::vector<std::uint32_t> operands;  // steps
  std::vector<LinearTerm> terms;        // unknown = a step
  std::vector<std::uint32_t> roots;
  std::vector<Expr> loads;
  std::vector<Expr> kept;  // keeps the nodes alive
};

RangeCode build_range_code(std::span<const Expr> roots);

}  // namespace fovea::ir
