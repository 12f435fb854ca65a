// Operations made of several: what usual modifiers and their derivatives come down to. Each of
// them saves passes over the strip; what a row has in common is computed once per row.
#pragma once

#include "engines/cpu/kernels/strip_plain.h"
#include "engines/cpu/kernels/strip_tanh.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

FOVEA_OF3(MulAdd, fma(x, y, z));
FOVEA_OF3(MulSub, fma(x, y, -z));
FOVEA_OF3(NegMulAdd, fma(-x, y, z));

#define FOVEA_OF_SELECT(Name, condition)                                                 \
  struct Name {                                                                          \
    FOVEA_INLINE vf one(vf a, vf b, vf x, vf y) {                                        \
      const vi i = as_int(a), j = as_int(b);                                             \
      return condition ? x : y;                                                          \
    }                                                                                    \
    FOVEA_INLINE Pack of(Pack a, Pack b, Pack x, Pack y) {                               \
      return {one(a.a, b.a, x.a, y.a), one(a.b, b.b, x.b, y.b), one(a.c, b.c, x.c, y.c), \
              one(a.d, b.d, x.d, y.d)};                                                  \
    }                                                                                    \
  }
FOVEA_OF3(AndLess, (i < j) & l);
FOVEA_OF3(AndLessEqual, (i <= j) & l);
FOVEA_OF3(AndEqual, (i == j) & l);
FOVEA_OF_SELECT(SelectLess, i < j);
FOVEA_OF_SELECT(SelectLessEqual, i <= j);
FOVEA_OF_SELECT(SelectEqual, i == j);

// A splat, one value for each row of a pack, to compute with before it is spread out.
template <class T>
struct Numbers {
  T first, second;
};
FOVEA_INLINE int32_t as_integer(float cell) {
  int32_t out;
  memcpy(&out, &cell, sizeof out);
  return out;
}
FOVEA_INLINE Numbers<float> floats(const Reader<true>& from, bool two) {
  return {*from.p, *from.other(two)};
}
FOVEA_INLINE Numbers<int32_t> integers(const Reader<true>& from, bool two) {
  return {as_integer(*from.p), as_integer(*from.other(two))};
}
FOVEA_INLINE Pack spread(Numbers<float> x) {
  const vf first = splat(x.first);
  if constexpr (pack_rows == 1) return {first, first, first, first};
  const vf second = splat(x.second);
  return {first, first, second, second};
}
FOVEA_INLINE Pack spread(Numbers<int32_t> x) {
  const vf first = as_float(splat(x.first));
  if constexpr (pack_rows == 1) return {first, first, first, first};
  const vf second = as_float(splat(x.second));
  return {first, first, second, second};
}

// Whether multiplying by it is as good as dividing by what it is the inverse of.
FOVEA_INLINE bool is_normal(float x) {
  const float size = __builtin_fabsf(x);
  return size >= 1.17549435e-38f && size <= 3.4028235e+38f;
}

// x / u: times 1 / u where that is an ordinary number.
FOVEA_INLINE Pack divide(Pack x, Numbers<float> u) {
  const Numbers<float> inverse = {1.0f / u.first, 1.0f / u.second};
  const bool multiply = is_normal(inverse.first) && is_normal(inverse.second);
  return multiply ? x * spread(inverse) : x / spread(u);
}

void quotient_by_splat(const StripCall& call) {
  Reader<false> x(call, 0);
  Reader<true> u(call, 1);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    out.write(left > 1, divide(x.read(left > 1), floats(u, left > 1)));
    x.advance(), u.advance();
  }
}

// tanh(x), tanh(x / u) or tanh(x / u) v.
void tanh_strip(const StripCall& call) {
  Reader<false> x(call, 0);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    out.write(left > 1, tanh_of(x.read(left > 1)));
    x.advance();
  }
}
template <bool scaled>
void plain_tanh_of_quotient(const StripCall& call) {
  Reader<false> x(call, 0);
  Reader<true> u(call, 1), v(call, scaled ? 2 : 1);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const bool two = left > 1;
    const Pack y = tanh_of(divide(x.read(two), floats(u, two)));
    out.write(two, scaled ? y * v.read(two) : y);
    x.advance(), u.advance(), v.advance();
  }
}

#if FOVEA_ISA_LEVEL >= 2
// Through a table scaled for u and v, as long as those stay the same.
template <bool scaled>
void tanh_of_quotient(const StripCall& call) {
  const float u = *cells(call.in[1]), v = scaled ? *cells(call.in[2]) : 1.0f;
  const float factor = u < 0.0f ? -v : v;
  const bool same = call.step[1] == 0 && (!scaled || call.step[2] == 0);
  if (!same || !fits_tanh_table(__builtin_fabsf(u), v)) return plain_tanh_of_quotient<scaled>(call);
  const TanhTable table = load_tanh_table(__builtin_fabsf(u), factor);
  Reader<false> x(call, 0);
  Writer out(call);
  for (int left = call.rows; left > 0; --left) {
    out.write(false, tanh_of(x.read(false), table));
    x.advance();
  }
}
#else
template <bool scaled>
void tanh_of_quotient(const StripCall& call) {
  plain_tanh_of_quotient<scaled>(call);
}
#endif

// (a u) b / v. Where u / v is an ordinary number, a b times that.
struct PlainProduct {
  FOVEA_INLINE Pack factor(Pack b) { return b; }
};
struct TanhSlopeProduct {
  FOVEA_INLINE Pack factor(Pack t) {
    const vf one = splat(1.0f);
    return {fma(-t.a, t.a, one), fma(-t.b, t.b, one), fma(-t.c, t.c, one), fma(-t.d, t.d, one)};
  }
};
FOVEA_INLINE bool is_moderate(float x) {
  const float size = __builtin_fabsf(x);
  return size > 1e-9f && size < 1e9f;
}
FOVEA_INLINE bool is_moderate(Numbers<float> x) {
  return is_moderate(x.first) && is_moderate(x.second);
}
template <class F>
void scaled_product(const StripCall& call) {
  Reader<false> a(call, 0), b(call, 1);
  Reader<true> u(call, 2), v(call, 3);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const bool two = left > 1;
    const Numbers<float> up = floats(u, two), down = floats(v, two);
    const Pack x = a.read(two), y = F::factor(b.read(two));
    const Numbers<float> ratio = {up.first / down.first, up.second / down.second};
    const bool moderate = is_moderate(up) && is_moderate(down);
    out.write(two, moderate ? x * y * spread(ratio) : x * spread(up) * y / spread(down));
    a.advance(), b.advance(), u.advance(), v.advance();
  }
}

// a // b and a % b where b is one number for the row: a power of two needs no division.
template <class F, bool quotient>
void divide_by_splat(const StripCall& call) {
  Reader<false> a(call, 0);
  Reader<true> b(call, 1);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const Numbers<int32_t> u = integers(b, left > 1);
    const Pack x = a.read(left > 1);
    if (u.first > 0 && (u.first & (u.first - 1)) == 0 && u.first == u.second) {
      const int shift = __builtin_ctz(static_cast<uint32_t>(u.first));
      const auto one = [&](vf i) {
        return as_float(quotient ? as_int(i) >> shift : as_int(i) & (u.first - 1));
      };
      out.write(left > 1, {one(x.a), one(x.b), one(x.c), one(x.d)});
    } else {
      out.write(left > 1, F::of(x, spread(u)));
    }
    a.advance(), b.advance();
  }
}

// pow(x, y) where y is one number for the row.
void power_by_splat(const StripCall& call) {
  Reader<false> x(call, 0);
  Reader<true> y(call, 1);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const Numbers<float> exponent = floats(y, left > 1);
    const Pack base = x.read(left > 1);
    const bool square = exponent.first == 2.0f && exponent.second == 2.0f;
    out.write(left > 1, square ? base * base : PerLanePow::of(base, spread(exponent)));
    x.advance(), y.advance();
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
