#include "ir/build.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ir/arith.h"
#include "ir/identities.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

Cell<float> cell_of(const Node& node) {
  switch (node.type()) {
    case Type::F32: return Cell<float>::real(node.float_value());
    case Type::I32: return Cell<float>::integer(node.int_value());
    case Type::Bool: return Cell<float>::boolean(node.bool_value());
  }
  return {};
}

Expr fold(Op op, std::span<const Expr> args) {
  std::array<Cell<float>, 3> cells;
  for (std::size_t i = 0; i < args.size(); ++i) cells[i] = cell_of(*args[i]);
  const Cell<float> value = apply<float>(op, cells.data());
  switch (info(op).result()) {
    case Type::F32: return constant(value.f);
    case Type::I32: return constant(value.i);
    case Type::Bool: return constant(value.b);
  }
  return {};
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

Expr constant(float value) {
  if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  return intern(Op::ConstF, std::bit_cast<std::uint32_t>(value), {});
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
  if (constant_operands) return fold(op, canonical);
  if (Expr simpler = apply_identities(op, canonical)) return simpler;
  return intern(op, 0, canonical);
}

Expr make(Op op, std::initializer_list<Expr> args) {
  return make(op, std::span<const Expr>(args.begin(), args.size()));
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
