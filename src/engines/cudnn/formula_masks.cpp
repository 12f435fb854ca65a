// Conditions and masks as chains of selects, diagonals in the form that cuDNN's backward knows.
#include <cstdlib>
#include <limits>
#include <optional>

#include "engines/cudnn/formula.h"

namespace fovea::cudnn {

using ir::Expr;
using ir::Op;

Ref FormulaLowering::compare(Mode mode, const Expr& e) {
  Ref a = value(e->arg(0)), b = value(e->arg(1));
  if (type_of(a) != type_of(b)) {
    a = as_float(a);
    b = as_float(b);
  }
  if (avoid_.row_comparisons && e->arg(0)->type() == ir::Type::I32 && is_full(a) && is_full(b) &&
      std::abs(range(e->arg(0)).lo) < exact_in_f32 &&
      std::abs(range(e->arg(0)).hi) < exact_in_f32 &&
      std::abs(range(e->arg(1)).lo) < exact_in_f32 &&
      std::abs(range(e->arg(1)).hi) < exact_in_f32) {
    const Type type = type_of(a);
    return step(mode, {step(Mode::Sub, {a, b}, type), type == Type::I32 ? whole(0) : number(0)},
                Type::Bool);
  }
  return step(mode, {a, b}, Type::Bool);
}

namespace {

// The comparison that holds exactly if `mode` does not.
std::optional<Mode> complement(Mode mode, bool whole_numbers) {
  switch (mode) {
    case Mode::Equal: return Mode::NotEqual;
    case Mode::NotEqual: return Mode::Equal;
    case Mode::Less: return whole_numbers ? std::optional(Mode::GreaterEqual) : std::nullopt;
    case Mode::LessEqual: return whole_numbers ? std::optional(Mode::Greater) : std::nullopt;
    default: return std::nullopt;
  }
}

}  // namespace

// The complement of a comparison; a NaN makes neither a < b nor b <= a.
Ref FormulaLowering::compare_not(Mode mode, const Expr& e) {
  const bool whole_numbers = e->arg(0)->type() == ir::Type::I32;
  if (const auto other = complement(mode, whole_numbers)) return compare(*other, e);
  const Ref held = step(Mode::Select, {compare(mode, e), number(1), number(0)});
  return step(Mode::Equal, {held, number(0)}, Type::Bool);
}

Ref FormulaLowering::select(const Expr& c, Ref first, Ref second, bool holds) {
  if (first == second) return first;
  const auto key = std::tuple(c.get(), static_cast<int>(first.kind), first.index,
                              static_cast<int>(second.kind), second.index, holds);
  if (const auto known = selects_.find(key); known != selects_.end()) return known->second;
  kept_.push_back(c);
  const auto choose = [&](Mode mode) {
    const Ref condition = holds ? compare(mode, c) : compare_not(mode, c);
    return step(Mode::Select, {condition, as_float(first), as_float(second)});
  };
  // The same for an operand of this condition.
  const auto by = [&](std::size_t i, Ref x, Ref y, bool value) {
    return select(c->arg(i), x, y, value);
  };
  Ref result;
  switch (c->op()) {
    case Op::ConstB: result = c->bool_value() == holds ? first : second; break;
    case Op::Not: result = by(0, first, second, !holds); break;
    case Op::And:
    case Op::Or: {
      // All operands must be as wanted (a && b holds, a || b does not), or one of them.
      const bool all = (c->op() == Op::And) == holds;
      const Ref rest = by(1, first, second, holds);
      result = all ? by(0, rest, second, holds) : by(0, first, rest, holds);
      break;
    }
    case Op::EqB:
    case Op::NeB: {
      const bool alike = (c->op() == Op::EqB) == holds;
      result = by(0, by(1, first, second, alike), by(1, first, second, !alike), true);
      break;
    }
    case Op::SelectB:
      result = by(0, by(1, first, second, holds), by(2, first, second, holds), true);
      break;
    case Op::LtF:
    case Op::LtI: result = choose(Mode::Less); break;
    case Op::LeF:
    case Op::LeI: result = choose(Mode::LessEqual); break;
    case Op::EqF:
    case Op::EqI: result = choose(Mode::Equal); break;
    case Op::NeF:
    case Op::NeI: result = choose(Mode::NotEqual); break;
    case Op::BoolOfFloat:
    case Op::BoolOfInt: {
      const Mode mode = holds ? Mode::NotEqual : Mode::Equal;
      const Ref condition = step(mode, {as_float(value(c->arg(0))), number(0)}, Type::Bool);
      result = step(Mode::Select, {condition, as_float(first), as_float(second)});
      break;
    }
    default:
      refuse("bool_tensor", "cuDNN's fused attention reads no tensors of bool or u8",
             "a captured tensor of such elements", "use engine jit, or make it i32, f16 or bf16");
      result = first;
  }
  selects_.emplace(key, result);
  return result;
}

Ref FormulaLowering::mask(Ref score, std::span<const Expr> conditions) {
  if (conditions.empty()) return score;
  const Ref nothing = number(-std::numeric_limits<float>::infinity());
  for (const Expr& condition : conditions) score = select(condition, score, nothing);
  return score;
}

// Beyond the last row and key of a tile scores may be anything, and 0 times it a NaN.
Ref FormulaLowering::within_sequences(Ref inner, float outer) {
  constexpr std::int64_t tile = 128;
  const Sizes& s = problem_.sizes;
  if (!spec_.padding && s.sq % tile == 0 && s.skv % tile == 0) return inner;
  const Ref nothing = number(outer);
  for (const auto& [axis, length] : {std::pair(2, Op::SizeSq), std::pair(3, Op::SizeSkv)}) {
    const Ref inside = step(Mode::Less, {plain_index(axis), size(length)}, Type::Bool);
    inner = step(Mode::Select, {inside, inner, nothing});
  }
  return inner;
}

Ref FormulaLowering::same(Ref score) { return step(Mode::Mul, {score, number(1)}); }

// In the form that cuDNN's backward recognises: positions generated from the very tensor that is
// masked, rows compared with columns, the main diagonal last.
Ref FormulaLowering::band(Ref score, const Band& band) {
  if (!band.any()) return score;
  const Ref nothing = number(-std::numeric_limits<float>::infinity());
  const auto position = [&](int axis) {
    const Ref made = step(Mode::Index, {score}, Type::I32);
    if (made.kind == Ref::Kind::Step) spec_.steps[made.index].axis = axis;
    return made;
  };
  Ref q = position(2);
  const Ref k = position(3);
  if (band.bottom_right) {
    q = step(Mode::Add, {q, size(Op::SizeSkv)}, Type::I32);
    q = step(Mode::Sub, {q, size(Op::SizeSq)}, Type::I32);
  }
  if (band.left) {
    const Ref end = step(Mode::Add, {k, whole(static_cast<std::int32_t>(*band.left))}, Type::I32);
    score = step(Mode::Select, {step(Mode::Greater, {end, q}, Type::Bool), score, nothing});
  }
  if (band.right) {
    if (*band.right != 0) {
      q = step(Mode::Add, {q, whole(static_cast<std::int32_t>(*band.right))}, Type::I32);
    }
    score = step(Mode::Select, {step(Mode::GreaterEqual, {q, k}, Type::Bool), score, nothing});
  }
  return score;
}

}  // namespace fovea::cudnn
