#include "engines/cudnn/match.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>

#include "base/error.h"
#include "ir/build.h"
#include "ir/eval.h"

namespace fovea::cudnn {
namespace {

using ir::Expr;
using ir::Op;

// cq * q + ck * k + cs * (Skv - Sq) + constant, in exact integers.
struct Diagonal {
  std::int64_t cq = 0, ck = 0, csq = 0, cskv = 0, constant = 0;
};
constexpr std::int64_t largest = std::int64_t{1} << 24;

// No part of a formula comes near 2^31, where i32 wraps and is no longer linear: positions and
// sizes are at most 2^22 (judge).
bool small(const Diagonal& d) {
  constexpr std::int64_t most_of_each = 64;
  for (const std::int64_t x : {d.cq, d.ck, d.csq, d.cskv}) {
    if (std::abs(x) > most_of_each) return false;
  }
  return std::abs(d.constant) <= largest;
}

Diagonal combine(std::int64_t ca, const Diagonal& a, std::int64_t cb, const Diagonal& b) {
  return {ca * a.cq + cb * b.cq, ca * a.ck + cb * b.ck, ca * a.csq + cb * b.csq,
          ca * a.cskv + cb * b.cskv, ca * a.constant + cb * b.constant};
}

std::optional<Diagonal> linear(const Expr& e, int depth = 0);

std::optional<Diagonal> sum(const Expr& e, std::int64_t sign, int depth) {
  const auto a = linear(e->arg(0), depth), b = linear(e->arg(1), depth);
  if (!a || !b) return std::nullopt;
  return combine(1, *a, sign, *b);
}

std::optional<Diagonal> linear(const Expr& e, int depth) {
  if (depth > 32) return std::nullopt;
  std::optional<Diagonal> result;
  switch (e->op()) {  // a few operations of many: the rest is not linear
    case Op::IndexQ: result = Diagonal{1, 0, 0, 0, 0}; break;
    case Op::IndexK: result = Diagonal{0, 1, 0, 0, 0}; break;
    case Op::SizeSq: result = Diagonal{0, 0, 1, 0, 0}; break;
    case Op::SizeSkv: result = Diagonal{0, 0, 0, 1, 0}; break;
    case Op::ConstI: result = Diagonal{0, 0, 0, 0, e->int_value()}; break;
    case Op::AddI: result = sum(e, 1, depth + 1); break;
    case Op::SubI: result = sum(e, -1, depth + 1); break;
    case Op::NegI:
      if (const auto a = linear(e->arg(0), depth + 1)) result = combine(-1, *a, 0, *a);
      break;
    default: break;
  }
  return result && small(*result) ? result : std::nullopt;
}

// The diagonal d for which the condition is d >= 0.
std::optional<Diagonal> as_diagonal(const Expr& condition) {
  bool holds = true;
  Expr e = condition;
  if (e->op() == Op::Not) {
    holds = false;
    e = e->arg(0);
  }
  if (e->op() != Op::LtI && e->op() != Op::LeI) return std::nullopt;
  const bool strict = e->op() == Op::LtI;
  const auto a = linear(e->arg(0)), b = linear(e->arg(1));
  if (!a || !b) return std::nullopt;
  // a <= b: b - a >= 0; not a <= b: a - b - 1 >= 0.
  Diagonal d = holds ? combine(1, *b, -1, *a) : combine(1, *a, -1, *b);
  if (strict == holds) d.constant -= 1;
  return d;
}

bool take(const Diagonal& given, const MaskSizes& sizes, Band& band) {
  Diagonal d = given;
  if (!sizes.lengths) {
    d.constant += d.csq * sizes.sq + d.cskv * sizes.skv;
    d.csq = d.cskv = 0;
  }
  const bool right = d.cq == 1 && d.ck == -1, left = d.cq == -1 && d.ck == 1;
  if (!right && !left) return false;
  const std::int64_t shift = right ? d.cskv : -d.cskv;
  if (d.csq + d.cskv != 0 || (shift != 0 && shift != 1)) return false;
  const bool bottom_right = shift == 1;
  if (band.any() && band.bottom_right != bottom_right) return false;
  std::optional<std::int64_t>& bound = right ? band.right : band.left;
  const std::int64_t value = right ? d.constant : d.constant + 1;
  // cuDNN wants right >= 0 and left > 0, and windows that do not start beyond the last key.
  if (bound || value < (right ? 0 : 1) || value > largest) return false;
  if (left && !sizes.lengths && sizes.sq > sizes.skv) return false;
  bound = value;
  band.bottom_right = bottom_right;
  return true;
}

#ifndef NDEBUG
// Compares both forms at random points, in debug builds.
void check_match(const Expr& mask, const MaskSizes& sizes, const MatchedMask& matched) {
  Expr again = formula_of(matched.band);
  for (const Expr& one : matched.rest) again = ir::and_(again, one);
  if (any(mask->depends(), ir::Depends::Load | ir::Depends::Scalar)) return;  // not known here
  std::minstd_rand random(1);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int32_t>(random() %
                                     static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1)));
  };
  for (int i = 0; i < 64; ++i) {
    ir::Point<float> at;
    at.Sq = static_cast<std::int32_t>(sizes.sq) - (sizes.lengths ? below(sizes.sq) : 0);
    at.Skv = static_cast<std::int32_t>(sizes.skv) - (sizes.lengths ? below(sizes.skv) : 0);
    at.q = below(at.Sq);
    at.k = below(at.Skv);
    if (ir::evaluate(mask, at).b == ir::evaluate(again, at).b) continue;
    throw InternalError("engine cudnn takes a mask for a diagonal that it is not");
  }
}
#endif

}  // namespace

MatchedMask match_mask(const Expr& mask, const MaskSizes& sizes) {
  MatchedMask matched;
  std::vector<Expr> open{mask};
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    if (e->op() == Op::And) {
      open.push_back(e->arg(1));
      open.push_back(e->arg(0));
      continue;
    }
    const auto diagonal = as_diagonal(e);
    if (!diagonal || !take(*diagonal, sizes, matched.band)) matched.rest.push_back(e);
  }
#ifndef NDEBUG
  check_match(mask, sizes, matched);
#endif
  return matched;
}

Expr formula_of(const Band& band) {
  const Expr q = ir::leaf(Op::IndexQ), k = ir::leaf(Op::IndexK);
  const Expr shifted = band.bottom_right ? q + (ir::leaf(Op::SizeSkv) - ir::leaf(Op::SizeSq)) : q;
  Expr keep = ir::constant(true);
  if (band.right) {
    keep = ir::and_(keep, k <= shifted + ir::constant(static_cast<std::int32_t>(*band.right)));
  }
  if (band.left) {
    keep = ir::and_(keep, shifted - k < ir::constant(static_cast<std::int32_t>(*band.left)));
  }
  return keep;
}

}  // namespace fovea::cudnn
