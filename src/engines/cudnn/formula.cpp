#include "engines/cudnn/formula.h"

#include <cstdlib>
#include <limits>
#include <optional>

#include "ir/build.h"

namespace fovea::cudnn {

using ir::Depends;
using ir::Expr;
using ir::Op;

Ref FormulaLowering::unsupported(const Expr& e) {
  refuse("operation_not_in_cudnn", "cuDNN's fused attention has no such operation",
         std::string("'") + std::string(info(e->op()).text) + "' in a formula",
         "use engine jit, or write it otherwise");
  return {Ref::Kind::Score, 0};
}

Ref FormulaLowering::value(const Expr& e) {
  if (const auto known = values_.find(e.get()); known != values_.end()) return known->second;
  const Ref ref = make(e);
  values_.emplace(e.get(), ref);
  kept_.push_back(e);
  return ref;
}

Ref FormulaLowering::make(const Expr& e) {
  if (!e->args().empty() && is_uniform(e)) return uniform(e);
  // What depends on the head alone becomes a table, unless computing it is as cheap.
  if (e->type() == ir::Type::F32 && e->depends() == Depends::H && !e->args().empty() &&
      e->op() != Op::FloatOfInt && problem_.h_offset == 0) {
    return table(e);
  }
  return e->type() == ir::Type::I32 ? whole_number(e) : real_number(e);
}

// Floor division by a positive number, in f32: half is added first, so that the quotient is never
// near a whole number and rounding cannot carry it over one.
Ref FormulaLowering::floor_divide(const Expr& e) {
  const ir::IntInterval a = range(e->arg(0)), b = range(e->arg(1));
  const bool truncates = e->op() == Op::TruncDiv || e->op() == Op::TruncRem;
  constexpr std::int64_t exact = std::int64_t{1} << 21;
  if (b.lo < 1 || b.hi >= exact || a.lo <= -exact || a.hi >= exact || (truncates && a.lo < 0)) {
    refuse("division_of_whole_numbers",
           "engine cudnn divides whole numbers below 2^21 by positive ones",
           "a division beyond that", "use engine jit");
  }
  lowered_.costly_steps += 1;
  const Ref x = as_float(value(e->arg(0))), y = as_float(value(e->arg(1)));
  return step(Mode::Floor, {step(Mode::Div, {step(Mode::Add, {x, number(0.5f)}), y})});
}

Ref FormulaLowering::whole_number(const Expr& e) {
  const auto arg = [&](std::size_t i) { return value(e->arg(i)); };
  const auto real = [&](std::size_t i) {
    need_exact(e->arg(i));
    return as_float(arg(i));
  };
  const auto both = [&](Mode mode) {
    const Ref a = arg(0), b = arg(1);
    if (type_of(a) == Type::I32 && type_of(b) == Type::I32) return step(mode, {a, b}, Type::I32);
    need_exact(e);
    return step(mode, {real(0), real(1)});
  };
  switch (e->op()) {
    case Op::IndexB: return index(0);
    case Op::IndexH: return index(1);
    case Op::IndexQ: return index(2);
    case Op::IndexK: return index(3);
    case Op::SizeB: return whole(static_cast<std::int32_t>(problem_.sizes.b));
    case Op::SizeH: return whole(static_cast<std::int32_t>(box_.H.lo));
    case Op::SizeHkv: return whole(static_cast<std::int32_t>(problem_.sizes.hkv));
    case Op::SizeSq:
    case Op::SizeSkv: return size(e->op());
    case Op::ConstI: return whole(e->int_value());
    case Op::ScalarI: return per_call(TensorRole::Scalar, e->slot(), Type::I32);
    case Op::LoadI: return load(e);
    case Op::AddI: return both(Mode::Add);
    case Op::SubI: return both(Mode::Sub);
    case Op::NegI: need_exact(e); return step(Mode::Neg, {real(0)});
    case Op::AbsI: need_exact(e); return step(Mode::Abs, {real(0)});
    case Op::MulI: need_exact(e); return step(Mode::Mul, {real(0), real(1)});
    case Op::MinI: return step(Mode::Min, {real(0), real(1)});
    case Op::MaxI: return step(Mode::Max, {real(0), real(1)});
    case Op::ClampI: return step(Mode::Min, {step(Mode::Max, {real(0), real(1)}), real(2)});
    case Op::FloorDiv:
    case Op::TruncDiv: return floor_divide(e);
    case Op::FloorMod:
    case Op::TruncRem: {
      const Ref quotient = floor_divide(e);
      return step(Mode::Sub, {real(0), step(Mode::Mul, {quotient, real(1)})});
    }
    case Op::SelectI: return select(e->arg(0), real(1), real(2));
    case Op::IntOfBool: return select(e->arg(0), number(1), number(0));
    default: return unsupported(e);
  }
}

Ref FormulaLowering::power(const Expr& e) {
  const Ref x = as_float(value(e->arg(0)));
  if (e->arg(1)->op() == Op::ConstF) {
    const float exponent = e->arg(1)->float_value();
    if (exponent == 2) return step(Mode::Mul, {x, x});
    if (exponent == 0.5f) return step(Mode::Sqrt, {x});
    if (exponent == 1) return x;
  }
  const ir::RealInterval base = ir::bound(e->arg(0), box_).f;
  if (base.lo < 0 || base.nan) {
    refuse("power_of_negative", "cuDNN's pow is right for bases that cannot be negative",
           "a base that may be negative", "multiply, or take abs() first");
  }
  lowered_.costly_steps += 2;
  return step(Mode::Pow, {x, as_float(value(e->arg(1)))});
}

// To the nearest, ties to even: cuDNN has floor only.
Ref FormulaLowering::rounded(const Expr& e) {
  const Ref x = as_float(value(e->arg(0)));
  const Ref below = step(Mode::Floor, {x});
  const Ref above = step(Mode::Add, {below, number(1)});
  const Ref rest = step(Mode::Sub, {x, below});
  const Ref half = step(Mode::Mul, {below, number(0.5f)});
  const Ref odd = step(Mode::NotEqual, {step(Mode::Floor, {half}), half}, Type::Bool);
  const Ref tie = step(Mode::Select, {odd, above, below});
  const Ref is_tie = step(Mode::Equal, {rest, number(0.5f)}, Type::Bool);
  const Ref up = step(Mode::Less, {number(0.5f), rest}, Type::Bool);
  return step(Mode::Select, {is_tie, tie, step(Mode::Select, {up, above, below})});
}

namespace {

// Orders operands: what comes from the incoming gradient first, then from the score, then the rest.
int rank(const Expr& e) {
  return any(e->depends(), Depends::Grad) ? 2 : any(e->depends(), Depends::Score) ? 1 : 0;
}

}  // namespace

// Of two operands, and of two branches, the one that comes from the score, or from the incoming
// gradient, is made and stands first: if cuDNN's backward (9.19, sm_90) met a sum of positions
// before it, gradients were wrong by ten orders of magnitude, as in s * (q - k) + tanh(score).
Ref FormulaLowering::binary(Mode mode, const Expr& e) {
  const Expr &a = e->arg(0), &b = e->arg(1);
  if (rank(b) <= rank(a)) return step(mode, {value(a), value(b)});
  const Ref first = value(b);
  if (mode == Mode::Sub) return step(Mode::Add, {step(Mode::Neg, {as_float(first)}), value(a)});
  if (mode == Mode::Div) {
    return step(Mode::Mul, {step(Mode::Reciprocal, {as_float(first)}), value(a)});
  }
  return step(mode, {first, value(a)});  // add, mul, min, max
}

Ref FormulaLowering::real_number(const Expr& e) {
  const auto arg = [&](std::size_t i) { return as_float(value(e->arg(i))); };
  const auto unary = [&](Mode mode, int cost) {
    lowered_.costly_steps += cost;
    return step(mode, {arg(0)});
  };
  constexpr float ln2 = 0.69314718056f;
  switch (e->op()) {
    case Op::Score: return {Ref::Kind::Score, 0};
    case Op::Grad: return {Ref::Kind::Grad, 0};
    case Op::ConstF: return number(e->float_value());
    case Op::ScalarF: return per_call(TensorRole::Scalar, e->slot(), Type::F32);
    case Op::LoadF: return load(e);
    case Op::AddF: return binary(Mode::Add, e);
    case Op::SubF: return binary(Mode::Sub, e);
    case Op::MulF: return binary(Mode::Mul, e);
    case Op::DivF:
      if (is_uniform(e->arg(1))) {
        return step(Mode::Mul, {value(e->arg(0)), uniform(ir::constant(1.0f) / e->arg(1))});
      }
      lowered_.costly_steps += 1;
      return binary(Mode::Div, e);
    case Op::NegF: return unary(Mode::Neg, 0);
    case Op::AbsF: return unary(Mode::Abs, 0);
    case Op::MinF: return binary(Mode::Min, e);
    case Op::MaxF: return binary(Mode::Max, e);
    case Op::ClampF: return step(Mode::Min, {step(Mode::Max, {arg(0), arg(1)}), arg(2)});
    case Op::SignF: {
      const Ref x = arg(0);
      const Ref positive = step(Mode::Less, {number(0), x}, Type::Bool);
      const Ref negative = step(Mode::Less, {x, number(0)}, Type::Bool);
      return step(Mode::Select,
                  {positive, number(1), step(Mode::Select, {negative, number(-1), number(0)})});
    }
    case Op::Exp: return unary(Mode::Exp, 1);
    case Op::Exp2:
      lowered_.costly_steps += 1;
      return step(Mode::Exp, {step(Mode::Mul, {arg(0), number(ln2)})});
    case Op::Expm1:
      lowered_.costly_steps += 1;
      return step(Mode::Sub, {step(Mode::Exp, {arg(0)}), number(1)});
    case Op::Log: return unary(Mode::Log, 1);
    case Op::Log2:
      lowered_.costly_steps += 1;
      return step(Mode::Mul, {step(Mode::Log, {arg(0)}), number(1 / ln2)});
    case Op::Log1p:
      lowered_.costly_steps += 1;
      return step(Mode::Log, {step(Mode::Add, {arg(0), number(1)})});
    case Op::Sqrt: return unary(Mode::Sqrt, 1);
    case Op::Rsqrt: return unary(Mode::Rsqrt, 1);
    case Op::Pow: return power(e);
    case Op::Tanh: return unary(Mode::Tanh, 1);
    case Op::Sigmoid: return unary(Mode::Sigmoid, 2);
    case Op::Softplus: return unary(Mode::Softplus, 2);
    case Op::Erf: return unary(Mode::Erf, 2);
    case Op::Sin: return unary(Mode::Sin, 1);
    case Op::Cos: return unary(Mode::Cos, 1);
    case Op::Tan: return unary(Mode::Tan, 2);
    case Op::Floor: return unary(Mode::Floor, 0);
    case Op::Ceil: return unary(Mode::Ceil, 0);
    case Op::Round: return rounded(e);
    case Op::SelectF: {
      const bool holds = rank(e->arg(1)) >= rank(e->arg(2));
      const Ref first = arg(holds ? 1 : 2);
      return select(e->arg(0), first, arg(holds ? 2 : 1), holds);
    }
    case Op::FloatOfInt: return value(e->arg(0));  // sums and products take either
    case Op::FloatOfBool: return select(e->arg(0), number(1), number(0));
    default: return unsupported(e);
  }
}

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
  // `select` by an operand of this condition.
  const auto by = [&](std::size_t i, Ref x, Ref y, bool value) {
    return select(c->arg(i), x, y, value);
  };
  Ref result;
  switch (c->op()) {
    case Op::ConstB: result = c->bool_value() == holds ? first : second; break;
    case Op::Not: result = by(0, first, second, !holds); break;
    case Op::And:
    case Op::Or: {
      // Whether all operands must agree (a && b holds, a || b does not), or one is enough.
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

void FormulaLowering::finish() {
  if (const std::string& what = decisions_.inexact(); !what.empty()) {
    refuse("inexact_decision",
           "what decides a mask, a select or a whole number must be exact, and cuDNN's " + what +
               " is not",
           what + " under a comparison", "use engine jit");
  }
}

}  // namespace fovea::cudnn
