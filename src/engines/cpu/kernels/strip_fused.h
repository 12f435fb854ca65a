// Operations made of several that occur together in common modifiers and their derivatives. Each of
// them saves passes over the strip; what is constant in a row is computed once per row.
#pragma once

#include "engines/cpu/kernels/strip_plain.h"
#include "engines/cpu/kernels/strip_tanh.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

FOVEA_OF3(MulAdd, fma(x, y, z));
FOVEA_OF3(MulSub, fma(x, y, -z));
FOVEA_OF3(NegMulAdd, fma(-x, y, z));

#define FOVEA_OF_SELECT(Name, condition)                                           \
  struct Name {                                                                    \
    FOVEA_INLINE Pack of(Pack p, Pack q, Pack r, Pack s) {                         \
      const auto one = [](vf a, vf b, vf x, vf y) __attribute__((always_inline)) { \
        const vi i = as_int(a), j = as_int(b);                                     \
        return condition ? x : y;                                                  \
      };                                                                           \
      return each(one, p, q, r, s);                                                \
    }                                                                              \
  }
FOVEA_OF3(AndLess, (i < j) & l);
FOVEA_OF3(AndLessEqual, (i <= j) & l);
FOVEA_OF3(AndEqual, (i == j) & l);
FOVEA_OF_SELECT(SelectLess, i < j);
FOVEA_OF_SELECT(SelectLessEqual, i <= j);
FOVEA_OF_SELECT(SelectEqual, i == j);

// Whether multiplying by it is as good as dividing by what it is the inverse of.
FOVEA_INLINE bool is_normal(float x) {
  const float size = __builtin_fabsf(x);
  return size >= 1.17549435e-38f && size <= 3.4028235e+38f;
}

// x / u: times 1 / u if that is an ordinary number.
struct Divisor {
  float u, inverse;
  bool multiply;

  explicit Divisor(float by) : u(by), inverse(1.0f / by), multiply(is_normal(inverse)) {}
  __attribute__((always_inline)) Pack divide(Pack x) const {
    return multiply ? x * inverse : x / all(u);
  }
};

void quotient_by_splat(const StripCall& call) {
  OperandReader<false> x(call, 0);
  OperandReader<true> u(call, 1);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const Divisor by(u.number());
    out.write_row([&](int c) __attribute__((always_inline)) { return by.divide(x.read(c)); });
    x.advance(), u.advance();
  }
}

// tanh(x / u), or tanh(x / u) v.
template <bool scaled>
void plain_tanh_of_quotient(const StripCall& call) {
  OperandReader<false> x(call, 0);
  OperandReader<true> u(call, 1), v(call, scaled ? 2 : 1);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const Divisor by(u.number());
    out.write_row([&](int c) __attribute__((always_inline)) {
      const Pack y = tanh_of(by.divide(x.read(c)));
      return scaled ? y * v.read(c) : y;
    });
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
  OperandReader<false> x(call, 0);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    out.write_row([&](int c) __attribute__((always_inline)) { return tanh_of(x.read(c), table); });
    x.advance();
  }
}
#else
template <bool scaled>
void tanh_of_quotient(const StripCall& call) {
  plain_tanh_of_quotient<scaled>(call);
}
#endif

// (a u) b / v. If u / v is an ordinary number, a b times that.
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
template <class F>
void scaled_product(const StripCall& call) {
  OperandReader<false> a(call, 0), b(call, 1);
  OperandReader<true> u(call, 2), v(call, 3);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const float up = u.number(), down = v.number(), ratio = up / down;
    const bool moderate = is_moderate(up) && is_moderate(down);
    out.write_row([&](int c) __attribute__((always_inline)) {
      const Pack x = a.read(c), y = F::factor(b.read(c));
      return moderate ? x * y * ratio : x * up * y / all(down);
    });
    a.advance(), b.advance(), u.advance(), v.advance();
  }
}

// a // b and a % b if b is one number for the row: a power of two needs no division.
template <class F, bool quotient>
void divide_by_splat(const StripCall& call) {
  OperandReader<false> a(call, 0);
  OperandReader<true> b(call, 1);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const int32_t u = b.integer();
    if (u > 0 && (u & (u - 1)) == 0) {
      const int shift = __builtin_ctz(static_cast<uint32_t>(u));
      const auto one = [&](vf i) __attribute__((always_inline)) {
        return as_float(quotient ? as_int(i) >> shift : as_int(i) & (u - 1));
      };
      out.write_row([&](int c) __attribute__((always_inline)) { return each(one, a.read(c)); });
    } else {
      const Pack by = all(as_float(splat(u)));
      out.write_row([&](int c) __attribute__((always_inline)) { return F::of(a.read(c), by); });
    }
    a.advance(), b.advance();
  }
}

// pow(x, y) if y is one number for the row.
void power_by_splat(const StripCall& call) {
  OperandReader<false> x(call, 0);
  OperandReader<true> y(call, 1);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const float exponent = y.number();
    out.write_row([&](int c) __attribute__((always_inline)) {
      const Pack base = x.read(c);
      return exponent == 2.0f ? base * base : PerLanePow::of(base, all(exponent));
    });
    x.advance(), y.advance();
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
