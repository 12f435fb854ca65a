#include "ir/build.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "ir/arith.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

thread_local Literals made_now = Literals::F32;

template <class Real>
Cell<Real> cell_of(const Node& node) {
  switch (node.type()) {
    case Type::F32: return Cell<Real>::real(static_cast<Real>(node.double_value()));
    case Type::I32: return Cell<Real>::integer(node.int_value());
    case Type::Bool: return Cell<Real>::boolean(node.bool_value());
  }
  return {};
}

Expr folded_real(const Cell<float>& value) { return constant(value.f); }

// Null if no literal can be written that is both: then the operation stays.
Expr folded_real(const Cell<double>& value) {
  if (std::isnan(value.f) && std::isnan(value.exact)) return constant(value.exact);
  const auto rounded = static_cast<float>(value.f);
  const bool both = rounded == value.exact && std::signbit(rounded) == std::signbit(value.exact);
  const bool fits = std::isinf(rounded) == std::isinf(value.f) && (rounded != 0 || value.f == 0);
  return both && fits ? constant(value.f) : Expr{};
}

template <class Real>
Expr fold_in(Op op, std::span<const Expr> args) {
  std::array<Cell<Real>, 3> cells;
  for (std::size_t i = 0; i < args.size(); ++i) cells[i] = cell_of<Real>(*args[i]);
  const Cell<Real> value = apply<Real>(op, cells.data());
  switch (info(op).result()) {
    case Type::F32: return folded_real(value);
    case Type::I32: return constant(value.i);
    case Type::Bool: return constant(value.b);
  }
  return {};
}

Expr fold(Op op, std::span<const Expr> args) {
  return made_now == Literals::F32 ? fold_in<float>(op, args) : fold_in<double>(op, args);
}

void check(Op op, std::span<const Expr> args) {
  const OpInfo& row = info(op);
  bool fits = args.size() == row.arity() && row.arity() > 0;
  for (std::size_t i = 0; fits && i < args.size(); ++i) fits = args[i]->type() == row.argument(i);
  if (!fits) throw InternalError("operands of " + std::string(row.name) + " do not fit");
}

// AddF for f32 and AddI for i32: rows of one text and arity, told apart by their first operand.
Expr overloaded(Op f32, Op i32, const Expr& a, const Expr& b) {
  return make(a->type() == Type::F32 ? f32 : i32, {a, b});
}

}  // namespace

WithLiterals::WithLiterals(Literals kind) : before_(std::exchange(made_now, kind)) {}
WithLiterals::~WithLiterals() { made_now = before_; }

Expr constant(float value) {
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  return intern(Op::ConstF, std::bit_cast<std::uint32_t>(value), {});
}
Expr constant(double value) {
  const SplitDouble split = split_double(value);
  if (split.rest == 0) return constant(split.f);
  return intern(Op::ConstF, std::bit_cast<std::uint32_t>(split.f), {}, split.rest);
}
Expr literal(float f32, double f64) {
  return made_now == Literals::F32 ? constant(f32) : constant(f64);
}
Expr constant(std::int32_t value) {
  return intern(Op::ConstI, static_cast<std::uint32_t>(value), {});
}
Expr constant(bool value) { return intern(Op::ConstB, value ? 1 : 0, {}); }

Expr leaf(Op op) {
  if (info(op).form != Form::Leaf) throw InternalError("not a leaf");
  return intern(op, 0, {});
}

Expr scalar(Type type, std::uint32_t slot) {
  return intern(type == Type::F32 ? Op::ScalarF : Op::ScalarI, slot, {});
}

Expr load(Type type, std::uint32_t slot, std::span<const Expr> at) {
  for (const Expr& index : at) {
    if (index->type() != Type::I32) throw InternalError("an index of a load is not i32");
  }
  const Op op = type == Type::F32 ? Op::LoadF : type == Type::I32 ? Op::LoadI : Op::LoadB;
  return intern(op, slot, at);
}

Expr make(Op op, std::span<const Expr> args) {
  check(op, args);
  std::array<Expr, 3> ordered;
  std::copy(args.begin(), args.end(), ordered.begin());
  if (info(op).commutes() && compare(ordered[1], ordered[0]) < 0) {
    std::swap(ordered[0], ordered[1]);
  }
  const std::span<const Expr> canonical(ordered.data(), args.size());
  bool constant_operands = true;
  for (const Expr& arg : canonical) constant_operands = constant_operands && arg->is_const();
  if (constant_operands) {
    if (Expr folded = fold(op, canonical)) return folded;
  }
  if (Expr simpler = apply_identities(op, canonical)) return simpler;
  return intern(op, 0, canonical);
}

Expr make(Op op, std::initializer_list<Expr> args) {
  return make(op, std::span<const Expr>(args.begin(), args.size()));
}

Expr remake(const Node& node, std::span<const Expr> args) {
  if (std::ranges::equal(args, node.args())) return Expr::share(&node);
  return info(node.op()).form == Form::Load ? load(node.type(), node.slot(), args)
                                            : make(node.op(), args);
}

Expr to_f32(const Expr& x) {
  switch (x->type()) {
    case Type::F32: return x;
    case Type::I32: return make(Op::FloatOfInt, {x});
    case Type::Bool: return make(Op::FloatOfBool, {x});
  }
  return x;
}

Expr operator+(const Expr& a, const Expr& b) { return overloaded(Op::AddF, Op::AddI, a, b); }
Expr operator-(const Expr& a, const Expr& b) { return overloaded(Op::SubF, Op::SubI, a, b); }
Expr operator*(const Expr& a, const Expr& b) { return overloaded(Op::MulF, Op::MulI, a, b); }
Expr operator/(const Expr& a, const Expr& b) { return make(Op::DivF, {a, b}); }
Expr operator<(const Expr& a, const Expr& b) { return overloaded(Op::LtF, Op::LtI, a, b); }
Expr operator<=(const Expr& a, const Expr& b) { return overloaded(Op::LeF, Op::LeI, a, b); }
Expr and_(const Expr& a, const Expr& b) { return make(Op::And, {a, b}); }
Expr or_(const Expr& a, const Expr& b) { return make(Op::Or, {a, b}); }
Expr not_(const Expr& a) { return make(Op::Not, {a}); }

Expr operator-(const Expr& a) { return make(a->type() == Type::F32 ? Op::NegF : Op::NegI, {a}); }

Expr equal(const Expr& a, const Expr& b) {
  return a->type() == Type::Bool ? make(Op::EqB, {a, b}) : overloaded(Op::EqF, Op::EqI, a, b);
}

Expr select(const Expr& condition, const Expr& then, const Expr& otherwise) {
  switch (then->type()) {
    case Type::F32: return make(Op::SelectF, {condition, then, otherwise});
    case Type::I32: return make(Op::SelectI, {condition, then, otherwise});
    case Type::Bool: return make(Op::SelectB, {condition, then, otherwise});
  }
  return {};
}

Expr renumber(const Expr& expr, std::span<const std::uint32_t> tensors,
              std::span<const std::uint32_t> scalars) {
  return rebuild(expr, [&](const Node& node, std::span<const Expr> args) {
    switch (info(node.op()).form) {
      case Form::Scalar: return scalar(node.type(), scalars[node.slot()]);
      case Form::Load: return load(node.type(), tensors[node.slot()], args);
      default: return make(node.op(), args);
    }
  });
}

}  // namespace fovea::ir
