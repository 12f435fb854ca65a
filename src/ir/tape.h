// The linear form that engines cpu and jit read: instructions in order, registers assigned by
// liveness, and the stage in which each must be computed. Engine cudnn lowers expressions
// themselves.
//
// A value that does not change along the inner loop is computed outside it: the stages below run in
// this order, each once per change of what it depends on. A register belongs to one stage and is
// reused within that stage only, so an engine may keep a Row register as a vector over q, a Column
// register as a vector over k, and an Element register as a tile.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/expr.h"
#include "ir/range.h"
#include "ir/topology.h"

namespace fovea::ir {

enum class Stage : std::uint8_t { Uniform, Row, Column, Element };  // (b, h), q, k, (q, k, score)
inline constexpr std::size_t stage_count = 4;
Stage stage_of(Depends depends);

// By place in `order`: nodes whose value decides something, with all f32 nodes that they are
// computed from. See Instruction::exact.
std::vector<bool> find_exact(const Order& order);

// One index of a load: a register, and whether it is proven to lie within the extent. If it is
// not, the engine clamps it: for safety, not for meaning.
struct TapeIndex {
  std::uint32_t source = 0;
  bool in_bounds = false;
};

struct Instruction {
  Op op = Op::ConstI;
  Stage stage = Stage::Uniform;
  Depends depends = Depends::None;
  // It feeds a decision (a bool, an i32, an index): to be computed in f32, operation by operation,
  // transcendental functions rounded from double, as ir/arith does. Others may use the engine's
  // own arithmetic.
  bool exact = false;
  std::uint32_t target = 0;                    // register
  std::array<std::uint32_t, 3> source{};       // registers, as many as the operation has operands
  std::uint32_t payload = 0;                   // constant bits, or the slot of a scalar or load
  std::uint32_t first_index = 0, indices = 0;  // of a load: in Tape::indices
};

struct Tape {
  std::vector<Instruction> code;                       // stage after stage
  std::array<std::uint32_t, stage_count + 1> stage{};  // stage s is code[stage[s] .. stage[s+1])
  std::vector<TapeIndex> indices;
  std::vector<std::uint32_t> outputs;  // register of each root
  std::vector<Stage> registers;        // the stage that each register belongs to

  std::span<const Instruction> of(Stage s) const {
    const auto i = static_cast<std::size_t>(s);
    return std::span(code).subspan(stage[i], stage[i + 1] - stage[i]);
  }
};

// Everything that is known of the place at which the tape will run; without it every index is
// clamped.
struct TapeBounds {
  Box box;
  // Extents of tensor `slot`, as bound.
  std::function<std::span<const std::int64_t>(std::uint32_t slot)> extents;
};

// Lowers formulas together, so that they share what they have in common.
Tape lower(std::span<const Expr> roots, const TapeBounds* bounds = nullptr);

}  // namespace fovea::ir
