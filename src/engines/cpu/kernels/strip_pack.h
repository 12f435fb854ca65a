// Four vectors that advance in lock step, so that one's latency hides behind the others, and the
// loop over a strip that every operation shares.
#pragma once

#include "engines/cpu/kernels/strip_table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

using FOVEA_ISA::fma;

// One row of a strip where a row has four vectors, two rows where it has two.
struct Pack {
  vf a, b, c, d;
};
constexpr int pack_rows = 4 * W / panel_width;
static_assert(pack_rows == 1 || pack_rows == 2);

FOVEA_INLINE Pack all(vf x) { return {x, x, x, x}; }
FOVEA_INLINE Pack all(float x) { return all(splat(x)); }

template <class F>
FOVEA_INLINE Pack each(F f, Pack x) {
  return {f(x.a), f(x.b), f(x.c), f(x.d)};
}
template <class F>
FOVEA_INLINE Pack each(F f, Pack x, Pack y) {
  return {f(x.a, y.a), f(x.b, y.b), f(x.c, y.c), f(x.d, y.d)};
}
template <class F>
FOVEA_INLINE Pack each(F f, Pack x, Pack y, Pack z) {
  return {f(x.a, y.a, z.a), f(x.b, y.b, z.b), f(x.c, y.c, z.c), f(x.d, y.d, z.d)};
}
template <class F>
FOVEA_INLINE Pack each(F f, Pack w, Pack x, Pack y, Pack z) {
  return {f(w.a, x.a, y.a, z.a), f(w.b, x.b, y.b, z.b), f(w.c, x.c, y.c, z.c),
          f(w.d, x.d, y.d, z.d)};
}

// Arithmetic on packs reads as on numbers.
FOVEA_INLINE Pack operator+(Pack x, Pack y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
FOVEA_INLINE Pack operator-(Pack x, Pack y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
FOVEA_INLINE Pack operator*(Pack x, Pack y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
FOVEA_INLINE Pack operator/(Pack x, Pack y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }
FOVEA_INLINE Pack operator+(Pack x, float y) { return x + all(y); }
FOVEA_INLINE Pack operator-(Pack x, float y) { return x - all(y); }
FOVEA_INLINE Pack operator*(Pack x, float y) { return x * all(y); }
FOVEA_INLINE Pack operator-(float x, Pack y) { return all(x) - y; }
FOVEA_INLINE Pack operator/(float x, Pack y) { return all(x) / y; }
FOVEA_INLINE Pack fma(Pack x, Pack y, Pack z) {
  return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b), fma(x.c, y.c, z.c), fma(x.d, y.d, z.d)};
}
FOVEA_INLINE Pack fma(Pack x, Pack y, float z) { return fma(x, y, all(z)); }
FOVEA_INLINE Pack fma(Pack x, float y, Pack z) { return fma(x, all(y), z); }
FOVEA_INLINE Pack fma(Pack x, float y, float z) { return fma(x, all(y), all(z)); }

// The next step of Horner's rule: p x + c.
FOVEA_INLINE Pack horner(Pack p, Pack x, float c) { return fma(p, x, all(c)); }

FOVEA_INLINE vf absolute(vf x) { return as_float(as_int(x) & INT32_MAX); }
FOVEA_INLINE vi sign_bit(vf x) { return as_int(x) & INT32_MIN; }
FOVEA_INLINE Pack absolute(Pack x) {
  return each([](vf v) __attribute__((always_inline)) { return absolute(v); }, x);
}
// x with the sign of y; x >= 0.
FOVEA_INLINE Pack with_sign(Pack x, Pack y) {
  return each([](vf v, vf s)
                  __attribute__((always_inline)) { return as_float(as_int(v) | sign_bit(s)); },
              x, y);
}

FOVEA_INLINE const float* cells(const void* p) { return static_cast<const float*>(p); }

// Where the second row of a pack is: the first again where there is none, so that it is computed
// and stored twice.
FOVEA_INLINE int second_row(const StripCall& call, int row) {
  return pack_rows == 2 && row + 1 < call.rows ? row + 1 : row;
}

template <bool is_splat>
FOVEA_INLINE Pack operand(const StripCall& call, int i, int row, int second) {
  const float* const p = cells(call.in[i]) + row * call.step[i];
  if constexpr (pack_rows == 1) {
    if constexpr (is_splat) return all(splat(*p));
    return {load(p), load(p + W), load(p + 2 * W), load(p + 3 * W)};
  } else {
    const float* const q = cells(call.in[i]) + second * call.step[i];
    if constexpr (is_splat) {
      const vf x = splat(*p), y = splat(*q);
      return {x, x, y, y};
    }
    return {load(p), load(p + W), load(q), load(q + W)};
  }
}

FOVEA_INLINE void store_pack(const StripCall& call, int row, int second, Pack x) {
  float* const p = static_cast<float*>(call.out) + row * panel_width;
  float* const q =
      pack_rows == 1 ? p + 2 * W : static_cast<float*>(call.out) + second * panel_width;
  store(p, x.a);
  store(p + W, x.b);
  store(q, x.c);
  store(q + W, x.d);
}

// F::of over a strip. `kinds` says which operands are splats.
template <class F, int kinds>
void run1(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    store_pack(call, row, second, F::of(operand < (kinds & 1) != 0 > (call, 0, row, second)));
  }
}
template <class F, int kinds>
void run2(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const Pack x = operand < (kinds & 1) != 0 > (call, 0, row, second);
    const Pack y = operand < (kinds & 2) != 0 > (call, 1, row, second);
    store_pack(call, row, second, F::of(x, y));
  }
}
template <class F, int kinds>
void run3(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const Pack x = operand < (kinds & 1) != 0 > (call, 0, row, second);
    const Pack y = operand < (kinds & 2) != 0 > (call, 1, row, second);
    const Pack z = operand < (kinds & 4) != 0 > (call, 2, row, second);
    store_pack(call, row, second, F::of(x, y, z));
  }
}
template <class F, int kinds>
void run4(const StripCall& call) {
  for (int row = 0; row < call.rows; row += pack_rows) {
    const int second = second_row(call, row);
    const Pack w = operand < (kinds & 1) != 0 > (call, 0, row, second);
    const Pack x = operand < (kinds & 2) != 0 > (call, 1, row, second);
    const Pack y = operand < (kinds & 4) != 0 > (call, 2, row, second);
    const Pack z = operand < (kinds & 8) != 0 > (call, 3, row, second);
    store_pack(call, row, second, F::of(w, x, y, z));
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
