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
FOVEA_OF_SELECT(SelectLess, i < j);
FOVEA_OF_SELECT(SelectLessEqual, i <= j);
FOVEA_OF_SELECT(SelectEqual, i == j);

FOVEA_INLINE float splat_at(const StripCall& call, int i, int row) {
  return cells(call.in[i])[row * call.step[i]];
}
FOVEA_INLINE int32_t splat_int(const StripCall& call, int i, int row) {
  return static_cast<const int32_t*>(call.in[i])[row * call.step[i]];
}
// Whether multiplying by it is as good as dividing by what it is the inverse of.
FOVEA_INLINE bool is_normal(float x) {
  const float size = __builtin_fabsf(x);
  return size >= 1.17549435e-38f && size <= 3.4028235e+38f;
}

// One value for each row of a pack.
FOVEA_INLINE Pack by_row(float first, float second) {
  const vf x = splat(first);
  if constexpr (pack_rows == 1) return {x, x, x, x};
  const vf y = splat(second);
  return {x, x, y, y};
}
FOVEA_INLINE Pack by_row(int32_t first, int32_t second) {
  const vf x = as_float(splat(first));
  if constexpr (pack_rows == 1) return {x, x, x, x};
  const vf y = as_float(splat(second));
  return {x, x, y, y};
}

void quotient_by_splat(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const float u = splat_at(call, 1, row), v = splat_at(call, 1, second);
    const float inverse_u = 1.0f / u, inverse_v = 1.0f / v;
    const Pack x = operand<false>(call, 0, row, second);
    const bool multiply = is_normal(inverse_u) && is_normal(inverse_v);
    store_pack(call, row, second, multiply ? x * by_row(inverse_u, inverse_v) : x / by_row(u, v));
  }
}

// tanh(x), tanh(x / u) or tanh(x / u) v.
enum class Argument { Plain, Quotient };
template <Argument argument, bool scaled>
void tanh_strip(const StripCall& call) {
  const TanhTable table = load_tanh_table();
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    Pack x = operand<false>(call, 0, row, second);
    if constexpr (argument == Argument::Quotient) {
      const float u = splat_at(call, 1, row), v = splat_at(call, 1, second);
      const float inverse_u = 1.0f / u, inverse_v = 1.0f / v;
      const bool multiply = is_normal(inverse_u) && is_normal(inverse_v);
      x = multiply ? x * by_row(inverse_u, inverse_v) : x / by_row(u, v);
    }
    Pack y = tanh_of(x, table);
    if constexpr (scaled) y = y * operand<true>(call, 2, row, second);
    store_pack(call, row, second, y);
  }
}

// (a u) b / v. Where u / v is an ordinary number, a b times that.
struct PlainProduct {
  FOVEA_INLINE Pack factor(Pack b) { return b; }
};
struct TanhSlopeProduct {
  FOVEA_INLINE Pack factor(Pack t) {
    return {fma(-t.a, t.a, splat(1.0f)), fma(-t.b, t.b, splat(1.0f)), fma(-t.c, t.c, splat(1.0f)),
            fma(-t.d, t.d, splat(1.0f))};
  }
};
FOVEA_INLINE bool is_moderate(float x) {
  const float size = __builtin_fabsf(x);
  return size > 1e-9f && size < 1e9f;
}
template <class F>
void scaled_product(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const float u = splat_at(call, 2, row), v = splat_at(call, 3, row);
    const float u2 = splat_at(call, 2, second), v2 = splat_at(call, 3, second);
    const Pack a = operand<false>(call, 0, row, second);
    const Pack b = F::factor(operand<false>(call, 1, row, second));
    const bool moderate = is_moderate(u) && is_moderate(v) && is_moderate(u2) && is_moderate(v2);
    store_pack(call, row, second,
               moderate ? a * b * by_row(u / v, u2 / v2) : a * by_row(u, u2) * b / by_row(v, v2));
  }
}

// rest + slope k along a row, where it is `first` at its first column: as integers, and as f32.
// Below 2^24 sums of whole numbers are exact in f32, so one addition does.
struct Line {
  Pack values, integers;  // slope times 0, 1, 2 ... along the row
  int32_t slope;
  FOVEA_INLINE Line of(int32_t slope) {
    const vi i = lanes() * slope;
    const vi step = splat(slope * W);
    Line out;
    out.slope = slope;
    const vi second = pack_rows == 1 ? i + step * 2 : i;
    out.integers = {as_float(i), as_float(i + step), as_float(second), as_float(second + step)};
    out.values = {to_float(i), to_float(i + step), to_float(second), to_float(second + step)};
    return out;
  }
  __attribute__((always_inline)) bool is_exact(int32_t first) const {
    const int64_t reach = int64_t{slope < 0 ? -slope : slope} * panel_width;
    return (first < 0 ? -int64_t{first} : int64_t{first}) + reach < (1 << 24);
  }
  __attribute__((always_inline)) Pack at(int32_t first, int32_t second) const {
    if (is_exact(first) && is_exact(second)) {
      return values + by_row(static_cast<float>(first), static_cast<float>(second));
    }
    const Pack start = by_row(first, second);
    const auto one = [](vf x, vf y) { return to_float(wrap(bits(as_int(x)) + bits(as_int(y)))); };
    return {one(start.a, integers.a), one(start.b, integers.b), one(start.c, integers.c),
            one(start.d, integers.d)};
  }
};
FOVEA_INLINE int32_t line_start(int32_t k, int32_t rest, int32_t slope) {
  return static_cast<int32_t>(static_cast<uint32_t>(rest) +
                              static_cast<uint32_t>(k) * static_cast<uint32_t>(slope));
}

// Operands k, rest; `mode` is the slope.
void line_to_float(const StripCall& call) {
  const Line line = Line::of(call.mode);
  const int32_t k = *static_cast<const int32_t*>(call.in[0]);
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const int32_t x = line_start(k, splat_int(call, 1, row), call.mode);
    const int32_t y = line_start(k, splat_int(call, 1, second), call.mode);
    store_pack(call, row, second, line.at(x, y));
  }
}

// x + u line or x - u line; operands x, u, k, rest.
template <bool subtract, bool take_absolute>
void add_line(const StripCall& call) {
  const Line line = Line::of(call.mode);
  const int32_t k = *static_cast<const int32_t*>(call.in[2]);
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const int32_t x = line_start(k, splat_int(call, 3, row), call.mode);
    const int32_t y = line_start(k, splat_int(call, 3, second), call.mode);
    Pack distance = line.at(x, y);
    if constexpr (take_absolute) distance = absolute(distance);
    const float u = splat_at(call, 1, row), v = splat_at(call, 1, second);
    const Pack factor = subtract ? by_row(-u, -v) : by_row(u, v);
    store_pack(call, row, second, fma(distance, factor, operand<false>(call, 0, row, second)));
  }
}

// a // b and a % b where b is one number for the row: a power of two needs no division.
template <class F, bool quotient>
void divide_by_splat(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const int32_t u = splat_int(call, 1, row), v = splat_int(call, 1, second);
    const Pack x = operand<false>(call, 0, row, second);
    if (u > 0 && (u & (u - 1)) == 0 && u == v) {
      const int shift = __builtin_ctz(static_cast<uint32_t>(u));
      const auto one = [&](vf a) {
        return as_float(quotient ? as_int(a) >> shift : as_int(a) & (u - 1));
      };
      store_pack(call, row, second, {one(x.a), one(x.b), one(x.c), one(x.d)});
    } else {
      store_pack(call, row, second, F::of(x, by_row(u, v)));
    }
  }
}

// pow(x, y) where y is one number for the row.
void power_by_splat(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const float u = splat_at(call, 1, row), v = splat_at(call, 1, second);
    const Pack x = operand<false>(call, 0, row, second);
    const bool square = u == 2.0f && v == 2.0f;
    store_pack(call, row, second, square ? x * x : PerLanePow::of(x, by_row(u, v)));
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
