// The formulas of a StripProgram between tape and steps: one Value per computed thing, named by its
// number, each written once. In this form operations are fused and reordered freely; registers
// come last.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engines/cpu/strips/strip.h"
#include "engines/cpu/strips/strip_code.h"
#include "ir/tape.h"

namespace fovea::cpu {

inline constexpr std::uint32_t no_value = ~std::uint32_t{0};

struct Value {
  StripOp op{};
  ir::Stage stage{};
  bool exact = false;
  std::uint32_t payload = 0;  // constant bits, or a slot
  std::int32_t mode = 0;
  std::vector<std::uint32_t> args;  // no_value: absent
  std::vector<LoadIndex> forms;     // of a load: for each argument how it is read
  std::uint32_t uses = 0;           // as an argument or a root
};

struct ValueGraph {
  std::vector<Value> all;  // arguments first, but for those that were added later
  std::vector<std::uint32_t> roots;
  std::size_t second_phase = 0;

  const Value& operator[](std::uint32_t v) const { return all[v]; }
  Value& operator[](std::uint32_t v) { return all[v]; }
  // A new value of what is known per row or per (b, h).
  std::uint32_t add(StripOp op, std::vector<std::uint32_t> args);
  void count_uses();  // 0 for values that no root needs
};

ValueGraph values_of(const ir::Tape& tape, std::size_t second_phase);

constexpr StripOp strip_op(ir::Op op) { return static_cast<StripOp>(op); }
constexpr bool is_load(StripOp op) {
  return op == StripOp::LoadF || op == StripOp::LoadI || op == StripOp::LoadB;
}
// Whether a row of a strip has one value of it: such an operand is a splat there.
constexpr bool is_splat(ir::Stage stage) {
  return stage == ir::Stage::Uniform || stage == ir::Stage::Row;
}

// How i32 values change along a row, or, if they depend on q alone, down a column.
class IntegerSlopes {
 public:
  explicit IntegerSlopes(ValueGraph& values);

  // By how much `v` changes from one position to the next, if that is always the same (it may
  // wrap) and easy to see.
  std::optional<std::int32_t> slope(std::uint32_t v) const { return slopes_[v]; }
  // What is left of it without slope * k: a value per row or per (b, h); no_value for 0.
  std::uint32_t rest(std::uint32_t v);

 private:
  std::optional<std::int32_t> slope_in(std::uint32_t v, ir::Stage stage) const;
  std::optional<std::int32_t> find(std::uint32_t v) const;

  ValueGraph& values_;
  std::vector<std::optional<std::int32_t>> slopes_;
  std::vector<std::uint32_t> sizes_;  // operations that rest() would add
};

// Decides how each load reads its indices.
void plan_loads(ValueGraph& values, IntegerSlopes& slopes);

}  // namespace fovea::cpu
