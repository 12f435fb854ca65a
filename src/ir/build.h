// The only way to make expressions. Every node passes through make(), which checks types, folds
// constants with the language's own arithmetic (ir/arith), orders commutative operands and applies
// the identities of ir/simplify; so every expression is canonical.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "ir/expr.h"

namespace fovea::ir {

// As long as one lives, this thread makes expressions with such literals. Then constants are
// folded only if the folded double has the f32 that folding in f32 gives.
class WithLiterals {
 public:
  explicit WithLiterals(Literals kind);
  ~WithLiterals();
  WithLiterals(const WithLiterals&) = delete;
  WithLiterals& operator=(const WithLiterals&) = delete;

 private:
  Literals before_;
};
Expr literal(float f32, double f64);  // a number in both: the one that this thread makes

Expr constant(float value);   // every NaN becomes the one quiet NaN
Expr constant(double value);  // an f32 that knows the double which it stands for
Expr constant(std::int32_t value);
Expr constant(bool value);
Expr leaf(Op op);                                                    // Score, IndexQ, SizeH ...
Expr scalar(Type type, std::uint32_t slot);                          // F32 or I32
Expr load(Type type, std::uint32_t slot, std::span<const Expr> at);  // indices are i32

Expr make(Op op, std::span<const Expr> args);
Expr make(Op op, std::initializer_list<Expr> args);

// The operation of `node`, a load or scalar of the same slot, on other operands.
Expr remake(const Node& node, std::span<const Expr> args);

// i32 and bool to f32; f32 stays.
Expr to_f32(const Expr& x);

// The overload for the operands' type, which must agree. For rules that read like algebra.
Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);  // f32
Expr operator-(const Expr& a);
Expr operator<(const Expr& a, const Expr& b);
Expr operator<=(const Expr& a, const Expr& b);
Expr equal(const Expr& a, const Expr& b);
Expr and_(const Expr& a, const Expr& b);  // named: `!e` and `e && f` ask whether there is one
Expr or_(const Expr& a, const Expr& b);
Expr not_(const Expr& a);
Expr select(const Expr& condition, const Expr& then, const Expr& otherwise);

// `expr` with every load and scalar moved to another slot: new slot = tensors[old], scalars[old].
Expr renumber(const Expr& expr, std::span<const std::uint32_t> tensors,
              std::span<const std::uint32_t> scalars);

}  // namespace fovea::ir
