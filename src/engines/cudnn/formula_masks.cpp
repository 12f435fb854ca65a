// Conditions and masks as chains of selects, diagonals in the form that cuDNN's backward knows.
#include <cstdlib>
#include <limits>

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

Ref FormulaLowering::select(const Expr& c, Ref then, Ref otherwise) {
  if (then == otherwise) return then;
  const auto key = std::tuple(c.get(), static_cast<int>(then.kind), then.index,
                              static_cast<int>(otherwise.kind), otherwise.index);
  if (const auto known = selects_.find(key); known != selects_.end()) return known->second;
  kept_.push_back(c);
  const auto choose = [&](Ref condition) {
    return step(Mode::Select, {condition, as_float(then), as_float(otherwise)});
  };
  Ref result;
  switch (c->op()) {
    case Op::ConstB: result = c->bool_value() ? then : otherwise; break;
    case Op::Not: result = select(c->arg(0), otherwise, then); break;
    case Op::And: result = select(c->arg(0), select(c->arg(1), then, otherwise), otherwise); break;
    case Op::Or: result = select(c->arg(0), then, select(c->arg(1), then, otherwise)); break;
    case Op::EqB:
      result =
          select(c->arg(0), select(c->arg(1), then, otherwise), select(c->arg(1), otherwise, then));
      break;
    case Op::NeB:
      result =
          select(c->arg(0), select(c->arg(1), otherwise, then), select(c->arg(1), then, otherwise));
      break;
    case Op::SelectB:
      result =
          select(c->arg(0), select(c->arg(1), then, otherwise), select(c->arg(2), then, otherwise));
      break;
    case Op::LtF:
    case Op::LtI: result = choose(compare(Mode::Less, c)); break;
    case Op::LeF:
    case Op::LeI: result = choose(compare(Mode::LessEqual, c)); break;
    case Op::EqF:
    case Op::EqI: result = choose(compare(Mode::Equal, c)); break;
    case Op::NeF:
    case Op::NeI: result = choose(compare(Mode::NotEqual, c)); break;
    case Op::BoolOfFloat:
    case Op::BoolOfInt:
      result = choose(step(Mode::NotEqual, {as_float(value(c->arg(0))), number(0)}, Type::Bool));
      break;
    default:
      refuse("bool_tensor", "cuDNN's fused attention reads no tensors of bool or u8",
             "a captured tensor of such elements", "make it i32, f16 or bf16");
      result = then;
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
