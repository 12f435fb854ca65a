// Four vectors that advance in lock step, so that one's latency hides behind the others, and the
// loop over a strip that every operation shares.
#pragma once

#include "engines/cpu/kernels/strip_table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

using FOVEA_ISA::fma;
using FOVEA_ISA::max_raw;
using FOVEA_ISA::min_raw;

// Neighbouring cells of a row. A row is one pack, or a few.
struct Pack {
  vf a, b, c, d;
};
constexpr int pack_width = 4 * W;
static_assert(panel_width % pack_width == 0);

FOVEA_INLINE Pack all(vf x) { return {x, x, x, x}; }
FOVEA_INLINE Pack all(float x) { return all(splat(x)); }

template <class F, class... Packs>
FOVEA_INLINE Pack each(F f, Packs... x) {
  return {f(x.a...), f(x.b...), f(x.c...), f(x.d...)};
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

// The second operand where either is NaN.
FOVEA_INLINE Pack min_raw(float x, Pack y) {
  return each([v = splat(x)](vf s) __attribute__((always_inline)) { return min_raw(v, s); }, y);
}
FOVEA_INLINE Pack max_raw(float x, Pack y) {
  return each([v = splat(x)](vf s) __attribute__((always_inline)) { return max_raw(v, s); }, y);
}

// Wrapping sums: vectors of signed integers wrap only as unsigned ones.
FOVEA_INLINE vu bits(vi x) { return reinterpret_cast<vu>(x); }
FOVEA_INLINE vi wrap(vu x) { return reinterpret_cast<vi>(x); }

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

// Walks down the rows of one operand; reads packs that begin at a column.
template <bool is_splat>
struct OperandReader {
  const float* p;
  int64_t step;

  OperandReader(const StripCall& call, int i) : p(cells(call.in[i])), step(call.step[i]) {}
  __attribute__((always_inline)) Pack read([[maybe_unused]] int c) const {
    if constexpr (is_splat) return all(splat(*p));
    return {load(p + c), load(p + c + W), load(p + c + 2 * W), load(p + c + 3 * W)};
  }
  __attribute__((always_inline)) float number() const { return *p; }  // of a splat
  __attribute__((always_inline)) int32_t integer() const {
    int32_t out;
    memcpy(&out, p, sizeof out);
    return out;
  }
  __attribute__((always_inline)) void advance() { p += step; }
};

struct RowWriter {
  float* p;

  explicit RowWriter(const StripCall& call) : p(static_cast<float*>(call.out)) {}
  __attribute__((always_inline)) void write(int c, Pack x) const {
    store(p + c, x.a);
    store(p + c + W, x.b);
    store(p + c + 2 * W, x.c);
    store(p + c + 3 * W, x.d);
  }
  // All packs of a row, of(c) each.
  template <class F>
  __attribute__((always_inline)) void write_row(const F& of) {
    for (int c = 0; c < panel_width; c += pack_width) write(c, of(c));
    p += panel_width;
  }
};

// F::of over a strip, with an operand from each reader.
template <class F, class... Readers>
FOVEA_INLINE void run_rows(const StripCall& call, Readers... x) {
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    out.write_row([&](int c) __attribute__((always_inline)) { return F::of(x.read(c)...); });
    (x.advance(), ...);
  }
}
// `kinds` says which of the operands are splats.
template <class F, int kinds, int... operands>
void run(const StripCall& call) {
  run_rows<F>(call, OperandReader < (kinds >> operands & 1) != 0 > (call, operands)...);
}

template <class... Packs>
constexpr int count_operands(Pack (*)(Packs...)) {
  return sizeof...(Packs);
}
template <class F>
constexpr int arity = count_operands(F::of);

template <class F, int kinds>
constexpr StripKernel kernel_of() {
  if constexpr (arity<F> == 1) return run<F, kinds, 0>;
  if constexpr (arity<F> == 2) return run<F, kinds, 0, 1>;
  if constexpr (arity<F> == 3) return run<F, kinds, 0, 1, 2>;
  if constexpr (arity<F> == 4) return run<F, kinds, 0, 1, 2, 3>;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
