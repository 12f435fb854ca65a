// The nodes of formulas by stage, as the renderer writes them: which stage each belongs to, which
// of them decide something, which are expensive enough to be kept in shared memory. The rules are
// those of ir/tape; nodes keep their own names instead of registers, since the device's compiler
// allocates those.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/program.h"
#include "ir/tape.h"
#include "ir/topology.h"

namespace fovea::jit {

class Stages {
 public:
  Stages(std::span<const ir::Expr> roots, const ir::Program& program);

  const std::vector<const ir::Node*>& nodes() const { return order_.nodes; }  // operands first
  std::uint32_t number(const ir::Node* node) const { return order_.number.find(node); }
  static ir::Stage stage(const ir::Node* node) { return ir::stage_of(node->depends()); }
  bool exact(const ir::Node* node) const { return exact_[number(node)]; }

  // Of a Row or Column value: worth a word of shared memory.
  bool costly(const ir::Node* node) const { return costly_[number(node)]; }

  // Element values that kernels stage for each tile; code of the Element stage reads them in
  // Column::pair. Diagonal ones change with k - q alone; the cell is a load t[..., q, ..., k].
  const std::vector<const ir::Node*>& diagonal() const { return diagonal_; }
  const ir::Node* cell() const { return cell_; }
  bool in_pair(const ir::Node* node) const { return in_pair_[number(node)]; }

  // Values of `stage` that later stages or functions of the formula read; constants are not among
  // them.
  std::vector<const ir::Node*> read_later(ir::Stage stage) const;

  // Values of `stage` that these are computed from, these included if they belong to it;
  // operands first. What is staged for the tile is left out, with what only that is computed from.
  std::vector<const ir::Node*> below(std::span<const ir::Node* const> wanted,
                                     ir::Stage stage) const;
  // Of the Element stage, staged ones included.
  std::vector<const ir::Node*> below_staged(std::span<const ir::Node* const> wanted) const;

  // What a value is called where code of stage `here` stands: v7, or u.v7, r.v7, c.v7, c.pair.v7.
  std::string name(const ir::Node* node, ir::Stage here) const;

 private:
  void find_diagonal_values();
  void find_cell(const ir::Program& program);
  template <class Goes>
  std::vector<const ir::Node*> reach(std::span<const ir::Node* const> wanted,
                                     const Goes& goes) const;

  std::vector<ir::Expr> kept_;  // keeps the nodes alive
  ir::Order order_;
  std::vector<bool> exact_, costly_, in_pair_;
  std::vector<const ir::Node*> diagonal_;
  const ir::Node* cell_ = nullptr;
};

// Formulas with x / y written as x * (1 / y) if y changes less often than the quotient and the
// quotient decides nothing: one division instead of many, off by one unit in the last place.
std::vector<ir::Expr> with_reciprocals(std::span<const ir::Expr> roots);

// Two kinds of values change with q and with k but not with the score. Kernels keep them in shared
// memory for each tile rather than compute or load them for each of its elements.
// By place in `order`: whether a value changes with q and k only through their distance, so that
// all elements along a diagonal of a tile have the same. Positions do not wrap: binding refuses
// offsets that would make them.
std::vector<bool> find_diagonal(const ir::Order& order);

// Whether `node` is a load t[..., q, ..., k, ...], in any order, whose other indices are uniform
// and whose elements have 2 or 4 bytes: a tile of it can be copied as it is.
bool is_cell_load(const ir::Node& node, const ir::Program& program);

}  // namespace fovea::jit
