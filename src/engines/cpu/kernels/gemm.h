// Products of matrices in panels. A micro-kernel holds group_rows x group_columns sums in registers
// and runs once along k; it is bound by two multiply-adds per cycle. Each sum adds its terms in the
// order of k, so a row's result does not depend on which rows are computed with it.
#pragma once

#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

constexpr int vectors = group_columns / W;
static_assert(panel_width % group_columns == 0);

// Steps along k between two jumps. Counting takes the ports that multiply: with a jump at every
// step, AVX2 is at three quarters of its peak. Groups of fewer rows are rare.
constexpr int steps_between_jumps(int rows) { return rows == group_rows ? 8 : 2; }

// Where the micro-kernel's operands begin, and how many groups of rows it goes through. It is one
// call for all of them: a call for each costs AVX2 3 %.
struct MicroOperands {
  const float* a;
  int64_t a_panel;  // floats from one of A's panels to the next
  const float* b;
  float* c;
  const float* scale;
  int k_first, k_last;
  int groups;
  Into into;
  float factor;
  const float* fetch;
  int fetch_lines;  // a group
};

// What becomes of a vector of C.
template <class Terms>
FOVEA_INLINE vf put(Into into, const float* c, vf sum, const float* scale, float factor, int row) {
  if (into == Into::Add) return load(c) + sum;
  if (into == Into::Rescale) return fma(load(c), splat(scale[row]), sum);
  return Terms::scales ? sum * factor : sum;
}

// What one cell of A and one of B add to a sum: a product of two f32, or of two pairs of bf16.
struct Singles {
  static constexpr bool scales = false;
  using Cell = vf;
  FOVEA_INLINE_MEMBER static Cell all(const float* p) { return splat(*p); }
  FOVEA_INLINE_MEMBER static Cell cells(const float* p) { return load(p); }
  FOVEA_INLINE_MEMBER static vf add(Cell a, Cell b, vf sum) {
#if FOVEA_ISA_LEVEL >= 1
    // Left to itself the compiler picks forms that overwrite a factor, and moves sums about.
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
#else
    return fma(a, b, sum);
#endif
  }
  FOVEA_INLINE_MEMBER static vf add_unless_zero(Cell a, Cell b, vf sum) {
    return a[0] != 0 ? fma(a, b, sum) : sum;
  }
};
struct Pairs {
  static constexpr bool scales = true;
  using Cell = vi;  // as integers: as floats some would be NaN and lose bits
  FOVEA_INLINE_MEMBER static Cell all(const float* p) {
    int32_t cell;
    memcpy(&cell, p, sizeof cell);
    return splat(cell);
  }
  FOVEA_INLINE_MEMBER static Cell cells(const float* p) { return as_int(load(p)); }
  FOVEA_INLINE_MEMBER static vf low(Cell x) { return as_float(x << 16); }
  FOVEA_INLINE_MEMBER static vf high(Cell x) { return as_float(x & splat(int32_t{-65536})); }
  FOVEA_INLINE_MEMBER static vf add(Cell a, Cell b, vf sum) {
#if FOVEA_ISA_LEVEL == 3
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return fma(high(a), high(b), fma(low(a), low(b), sum));
#endif
  }
  FOVEA_INLINE_MEMBER static vf add_unless_zero(Cell a, Cell b, vf sum) {
    sum = Singles::add_unless_zero(low(a), low(b), sum);
    return Singles::add_unless_zero(high(a), high(b), sum);
  }
};

template <class Terms, int rows, int columns, bool transposed>
FOVEA_INLINE void add_step(const float* a, const float* b, vf (&sum)[rows][columns]) {
  typename Terms::Cell right[columns];
  _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) right[v] = Terms::cells(b + v * W);
  _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
    const typename Terms::Cell left = Terms::all(transposed ? a + i : a + i * panel_width);
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) {
      sum[i][v] = Terms::add(left, right[v], sum[i][v]);
    }
  }
}

template <class Terms, int rows, int columns, bool transposed>
FOVEA_INLINE void accumulate(const float* a, const float* b, int count, vf (&sum)[rows][columns]) {
  constexpr int step = transposed ? panel_width : 1, unrolled = steps_between_jumps(rows);
  for (; count >= unrolled; count -= unrolled, a += unrolled * step, b += unrolled * panel_width) {
    _Pragma("GCC unroll 8") for (int k = 0; k < unrolled; ++k) {
      add_step<Terms, rows, columns, transposed>(a + k * step, b + k * panel_width, sum);
      __asm__ volatile("" ::: "memory");  // loads of later steps would take registers of sums
    }
  }
  _Pragma("GCC unroll 1") for (; __builtin_expect(count > 0, 0);
                               --count, a += step, b += panel_width) {
    add_step<Terms, rows, columns, transposed>(a, b, sum);
  }
}

// The sums of one group of rows, whose part of A begins at `a`.
template <class Terms, int rows, int columns, bool transposed>
FOVEA_INLINE void sum_group(const MicroOperands& at, const float* a, vf (&sum)[rows][columns]) {
  _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) sum[i][v] = vf{};
  }
  if constexpr (transposed) {
    accumulate<Terms, rows, columns, true>(a + int64_t{at.k_first} * panel_width,
                                           at.b + int64_t{at.k_first} * panel_width,
                                           at.k_last - at.k_first, sum);
    return;
  }
  const float* b = at.b + int64_t{at.k_first} * panel_width;
  a += at.k_first / panel_width * at.a_panel + at.k_first % panel_width;
  int left = at.k_last - at.k_first, here = panel_width - at.k_first % panel_width;
  while (left > here) {  // A's row lies in pieces, one per panel
    accumulate<Terms, rows, columns, false>(a, b, here, sum);
    a += at.a_panel + here - panel_width;
    b += int64_t{here} * panel_width;
    left -= here;
    here = panel_width;
  }
  accumulate<Terms, rows, columns, false>(a, b, left, sum);
}

// Puts the sums of a group into C. It is decided once what becomes of them: in a loop the compiler
// would look again after every store, which cost AVX2 2 %.
template <class Terms, Into into, int rows, int columns>
FOVEA_INLINE void put_group(const vf (&sum)[rows][columns], float* c, const float* scale,
                            float factor) {
  _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) {
      float* const to = c + i * panel_width + v * W;
      store(to, put<Terms>(into, to, sum[i][v], scale, factor, i));
    }
  }
}

template <class Terms, int rows, int columns, bool transposed>
void micro_kernel(const MicroOperands& given) {
  constexpr int next_rows = transposed ? rows : rows * panel_width;
  const MicroOperands at = given;  // a copy of our own, which no store can change
  const float *a = at.a, *scale = at.scale, *fetch = at.fetch;
  float* c = at.c;
  for (int group = 0; group < at.groups; ++group) {
    for (int i = 0; i < at.fetch_lines; ++i) __builtin_prefetch(fetch + i * 16, 0, 2);
    vf sum[rows][columns];
    sum_group<Terms, rows, columns, transposed>(at, a, sum);
    switch (at.into) {
      case Into::Set: put_group<Terms, Into::Set>(sum, c, scale, at.factor); break;
      case Into::Add: put_group<Terms, Into::Add>(sum, c, scale, at.factor); break;
      case Into::Rescale: put_group<Terms, Into::Rescale>(sum, c, scale, at.factor); break;
    }
    a += next_rows;
    c += rows * panel_width;
    scale += rows;
    fetch += at.fetch_lines * 16;
  }
}

using MicroKernel = void (*)(const MicroOperands&);

template <class Terms, int columns, bool transposed>
MicroKernel kernel_of_rows(int rows) {
  if constexpr (group_rows == 6) {
    if (rows == 6) return micro_kernel<Terms, 6, columns, transposed>;
    if (rows == 5) return micro_kernel<Terms, 5, columns, transposed>;
    if (rows == 4) return micro_kernel<Terms, 4, columns, transposed>;
    if (rows == 3) return micro_kernel<Terms, 3, columns, transposed>;
  }
  if (rows == 2) return micro_kernel<Terms, 2, columns, transposed>;
  return micro_kernel<Terms, 1, columns, transposed>;
}

template <class Terms, bool transposed>
MicroKernel find_kernel(int rows, int columns) {
  if constexpr (vectors == 4) {
    if (columns == 4) return kernel_of_rows<Terms, 4, transposed>(rows);
    if (columns == 3) return kernel_of_rows<Terms, 3, transposed>(rows);
  }
  if (columns == 2) return kernel_of_rows<Terms, 2, transposed>(rows);
  return kernel_of_rows<Terms, 1, transposed>(rows);
}

// One term of one row at a time: zeros of A are left out, so that nothing that B holds there
// counts.
template <class Terms>
void multiply_sparsely(const Product& x) {
  for (int i = 0; i < x.m; ++i) {
    for (int n = 0; n < x.n; n += W) {
      const int64_t panel = n / panel_width;
      float* const c = x.c.data + (panel * x.c.rows + i) * panel_width + n % panel_width;
      const float* const b = x.b.data + panel * x.b.rows * panel_width + n % panel_width;
      vf sum{};
      for (int k = x.k_first; k < x.k_last; ++k) {
        const int row = x.a_transposed ? k : i, column = x.a_transposed ? i : k;
        const float* const a =
            x.a.data + (column / panel_width * x.a.rows + row) * panel_width + column % panel_width;
        sum =
            Terms::add_unless_zero(Terms::all(a), Terms::cells(b + int64_t{k} * panel_width), sum);
      }
      store(c, put<Terms>(x.into, c, sum, x.scale, x.factor, i));
    }
  }
}

template <class Terms, bool transposed>
void multiply_in_groups(const Product& x) {
  const int column_groups = (x.n + group_columns - 1) / group_columns;
  const int groups = column_groups * ((x.m + group_rows - 1) / group_rows);
  const int64_t lines = fetches ? x.fetch_floats / 16 : 0;
  const int lines_a_group = groups == 0 ? 0 : static_cast<int>(lines / groups);
  const float* fetch = x.fetch;
  for (int n = 0; n < x.n; n += group_columns) {
    const int64_t panel = n / panel_width;
    const int column = n % panel_width;
    const int left = x.n - n < group_columns ? x.n - n : group_columns;
    const int columns = (left + W - 1) / W;
    const float* const b = x.b.data + panel * x.b.rows * panel_width + column;
    for (int i = 0; i < x.m;) {
      // Groups of a transposed A lie within one panel.
      const int end = !transposed || x.m < (i / panel_width + 1) * panel_width
                          ? x.m
                          : (i / panel_width + 1) * panel_width;
      const int rows = end - i < group_rows ? end - i : group_rows;
      const int together = (end - i) / rows;
      const float* const a =
          transposed ? x.a.data + i / panel_width * x.a.rows * panel_width + i % panel_width
                     : x.a.data + int64_t{i} * panel_width;
      float* const c = x.c.data + (panel * x.c.rows + i) * panel_width + column;
      find_kernel<Terms, transposed>(
          rows, columns)({a, x.a.rows * panel_width, b, c, x.scale + i, x.k_first, x.k_last,
                          together, x.into, x.factor, fetch, lines_a_group});
      fetch += int64_t{together} * lines_a_group * 16;
      i += together * rows;
    }
  }
}

template <class Terms>
void multiply_cells(const Product& x) {
  if (x.skip_zeros) return multiply_sparsely<Terms>(x);
  if (x.a_transposed) return multiply_in_groups<Terms, true>(x);
  multiply_in_groups<Terms, false>(x);
}

void multiply(const Product& x) { multiply_cells<Singles>(x); }

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA
