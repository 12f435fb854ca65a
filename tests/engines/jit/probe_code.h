// Asks a rendered formula at one point, in the order in which kernels do. Included by the code that
// RenderedCode compiles.
#pragma once

#include "engines/jit/device/primitives.h"

#include "engines/jit/device/arguments.h"
#include "engines/jit/device/captured_range.h"
#include "engines/jit/device/formula.h"
#include "engines/jit/device/math.h"
#include "tests/engines/jit/probe.h"

namespace fovea::device {

using test::Probe;
using test::ProbeAnswer;

inline unsigned bits(float x) { return bits_of(x); }
inline unsigned bits(int x) { return static_cast<unsigned>(x); }
inline unsigned bits(bool x) { return x ? 1u : 0u; }
// Values of a diagonal are the same wherever on it they are computed.
template <class Formula, class Arguments>
void check_diagonal(const Arguments& a, const typename Formula::Uniform& u, int q, int k) {
  constexpr int count = Formula::diagonal_words, step = 37;
  constexpr int far = 2000000000;
  if (q > far || k > far) return;
  unsigned here[count + 1] = {}, there[count + 1] = {};
  Formula::make_diagonal(a, u, q, k, here);
  Formula::make_diagonal(a, u, q + step, k + step, there);
  for (int i = 0; i <= count; ++i) {
    if (here[i] != there[i]) __builtin_trap();
  }
}

// The mask is what all of its parts keep.
template <class Formula, class Arguments, class... Values>
void check_parts(const Arguments& a, const Values&... values) {
  bool keep = Formula::template keep_part<0>(a, values...);
  if constexpr (Formula::mask_parts > 1) keep &= Formula::template keep_part<1>(a, values...);
  if constexpr (Formula::mask_parts > 2) keep &= Formula::template keep_part<2>(a, values...);
  if (keep != Formula::keep(a, values...)) __builtin_trap();
}

template <class Arguments, class Formula, class Extra>
void probe(const Probe& in, ProbeAnswer& out, Extra extra) {
  Arguments a{};
  for (unsigned i = 0; i < sizeof a.words / 8; ++i) a.words[i] = in.words[i];
  const Head head{in.b, in.h, in.B, in.H, in.Hkv, in.Sq, in.Skv};
  const auto u = Formula::uniform(a, head);
  unsigned rows[Formula::row_words + 1], columns[Formula::column_words + 1];
  rows[Formula::row_words] = columns[Formula::column_words] = 0x5eedu;
  Formula::make_row(a, u, in.q, rows);
  Formula::make_column(a, u, in.k, columns);
  if (rows[Formula::row_words] != 0x5eedu || columns[Formula::column_words] != 0x5eedu)
    __builtin_trap();
  const auto r = Formula::row(a, u, in.q, rows);
  auto c = Formula::column(a, u, in.k, columns);
  Formula::fill_pair(a, u, r, c);
  check_diagonal<Formula>(a, u, in.q, in.k);
  out.keep = bits(Formula::keep(a, u, r, c));
  out.score = bits(Formula::score(a, u, r, c, in.s));
  out.gradient = bits(Formula::gradient(a, u, r, c, in.s, in.grad));
  check_parts<Formula>(a, u, r, c);
  const TileClass tile = Formula::classify(
      a, head, {in.box[0], in.box[1], in.box[2], in.box[3], in.box[4], in.box[5]});
  out.tile = tile.mixed;
  extra(a, u, r, c);
}

// Sets as device/interval.h has them, from and to what interval_test hands over.
using test::ValueSet;

inline IntInterval ints_of(const ValueSet& s) { return {s.i_lo, s.i_hi}; }
inline RealInterval reals_of(const ValueSet& s) { return {s.f_lo, s.f_hi, s.nan}; }
inline BoolSet bools_of(const ValueSet& s) { return {s.can_false, s.can_true}; }
inline void put(ValueSet& s, IntInterval x) { s.i_lo = x.lo, s.i_hi = x.hi; }
inline void put(ValueSet& s, RealInterval x) { s.f_lo = x.lo, s.f_hi = x.hi, s.nan = x.nan; }
inline void put(ValueSet& s, BoolSet x) { s.can_false = x.can_false, s.can_true = x.can_true; }

}  // namespace fovea::device
