// Products of matrices in panels. A micro-kernel holds group_rows x panel_width sums in registers
// and runs once along k; what bounds it is two multiply-adds a cycle. Each sum adds its terms in the
// order of k, so a row's result does not depend on which rows are computed beside it.
#pragma once

#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

constexpr int vectors = panel_width / W;

// Where the micro-kernel's operands begin.
struct Micro {
  const float* a;
  int64_t a_panel;  // floats from one of A's panels to the next
  const float* b;
  float* c;
  const float* scale;
  int k_first, k_last;
  Into into;
};

template <int rows, int columns, bool transposed>
FOVEA_INLINE void accumulate(const float* a, const float* b, int count, vf (&sum)[rows][columns]) {
  for (int k = 0; k < count; ++k) {
    vf right[columns];
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) right[v] = load(b + v * W);
    _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
      const vf left = splat(transposed ? a[i] : a[i * panel_width]);
      _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) sum[i][v] = fma(left, right[v], sum[i][v]);
    }
    a += transposed ? panel_width : 1;
    b += panel_width;
  }
}

template <int rows, int columns, bool transposed>
void micro_kernel(const Micro& at) {
  vf sum[rows][columns];
  _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) sum[i][v] = vf{};
  }
  if constexpr (transposed) {
    accumulate<rows, columns, true>(at.a + int64_t{at.k_first} * panel_width,
                                    at.b + int64_t{at.k_first} * panel_width,
                                    at.k_last - at.k_first, sum);
  } else {
    for (int k = at.k_first; k < at.k_last;) {  // A's row lies in pieces, one per panel
      const int panel = k / panel_width;
      const int end = (panel + 1) * panel_width < at.k_last ? (panel + 1) * panel_width : at.k_last;
      accumulate<rows, columns, false>(at.a + panel * at.a_panel + k % panel_width,
                                       at.b + int64_t{k} * panel_width, end - k, sum);
      k = end;
    }
  }
  _Pragma("GCC unroll 6") for (int i = 0; i < rows; ++i) {
    float* const c = at.c + i * panel_width;
    _Pragma("GCC unroll 4") for (int v = 0; v < columns; ++v) {
      vf out = sum[i][v];
      if (at.into == Into::Add) out += load(c + v * W);
      if (at.into == Into::Rescale) out = fma(load(c + v * W), splat(at.scale[i]), out);
      store(c + v * W, out);
    }
  }
}

using MicroKernel = void (*)(const Micro&);

template <int columns, bool transposed>
MicroKernel kernel_of_rows(int rows) {
  if constexpr (group_rows == 6) {
    if (rows == 6) return micro_kernel<6, columns, transposed>;
    if (rows == 5) return micro_kernel<5, columns, transposed>;
    if (rows == 4) return micro_kernel<4, columns, transposed>;
    if (rows == 3) return micro_kernel<3, columns, transposed>;
  }
  if (rows == 2) return micro_kernel<2, columns, transposed>;
  return micro_kernel<1, columns, transposed>;
}

template <bool transposed>
MicroKernel find_kernel(int rows, int columns) {
  if constexpr (vectors == 4) {
    if (columns == 4) return kernel_of_rows<4, transposed>(rows);
    if (columns == 3) return kernel_of_rows<3, transposed>(rows);
  }
  if (columns == 2) return kernel_of_rows<2, transposed>(rows);
  return kernel_of_rows<1, transposed>(rows);
}

// One term of one row at a time: zeros of A are left out, so that nothing that B holds there counts.
void multiply_sparsely(const Product& x) {
  for (int i = 0; i < x.m; ++i) {
    for (int n = 0; n < x.n; n += panel_width) {
      const int panel = n / panel_width;
      float* const c = x.c.data + (panel * x.c.rows + i) * panel_width;
      const float* const b = x.b.data + panel * x.b.rows * panel_width;
      for (int v = 0; v < vectors && n + v * W < x.n; ++v) {
        vf sum{};
        for (int k = x.k_first; k < x.k_last; ++k) {
          const int row = x.a_transposed ? k : i, column = x.a_transposed ? i : k;
          const float a = x.a.data[(column / panel_width * x.a.rows + row) * panel_width +
                                   column % panel_width];
          if (a != 0) sum = fma(splat(a), load(b + int64_t{k} * panel_width + v * W), sum);
        }
        if (x.into == Into::Add) sum += load(c + v * W);
        if (x.into == Into::Rescale) sum = fma(load(c + v * W), splat(x.scale[i]), sum);
        store(c + v * W, sum);
      }
    }
  }
}

template <bool transposed>
void multiply_in_groups(const Product& x) {
  for (int n = 0; n < x.n; n += panel_width) {
    const int panel = n / panel_width;
    const int left = x.n - n < panel_width ? x.n - n : panel_width;
    const int columns = (left + W - 1) / W;
    Micro at{x.a.data, x.a.rows * panel_width, x.b.data + panel * x.b.rows * panel_width,
             nullptr,  x.scale,                x.k_first, x.k_last, x.into};
    const MicroKernel whole = find_kernel<transposed>(group_rows, columns);
    for (int i = 0; i < x.m;) {
      // A group of a transposed A lies within one panel.
      const int end = !transposed || x.m < (i / panel_width + 1) * panel_width
                          ? x.m
                          : (i / panel_width + 1) * panel_width;
      const int rows = end - i < group_rows ? end - i : group_rows;
      at.a = transposed ? x.a.data + i / panel_width * x.a.rows * panel_width + i % panel_width
                        : x.a.data + int64_t{i} * panel_width;
      at.c = x.c.data + (panel * x.c.rows + i) * panel_width;
      at.scale = x.scale + i;
      (rows == group_rows ? whole : find_kernel<transposed>(rows, columns))(at);
      i += rows;
    }
  }
}

void multiply(const Product& x) {
  if (x.skip_zeros) return multiply_sparsely(x);
  if (x.a_transposed) return multiply_in_groups<true>(x);
  multiply_in_groups<false>(x);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA
