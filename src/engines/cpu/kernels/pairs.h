// Matrices of bf16 in the layout that products of pairs read: see PairKernels. Compiled for
// processors that multiply pairs in one instruction, and for the scalar set, so that the same code
// can be tested anywhere.
#pragma once

#include "engines/cpu/kernels/gemm.h"
#include "engines/cpu/kernels/pack.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

void multiply_pairs(const Product& x) { multiply_cells<Pairs>(x); }

// 2 W neighbouring numbers of a row, or the `count` that are left, the rest 0, as W cells.
FOVEA_INLINE vi load_pairs(const uint16_t* p, int64_t step, int count) {
  uint16_t buffer[2 * W] = {};
  if (step == 1 && count >= 2 * W) {
    memcpy(buffer, p, sizeof buffer);
  } else {
    for (int i = 0; i < 2 * W && i < count; ++i) buffer[i] = p[i * step];
  }
  vi cells;
  memcpy(&cells, buffer, sizeof cells);
  return cells;
}

// -1 if either half of a cell is infinite or NaN.
FOVEA_INLINE vi not_finite(vi cells) {
  const vi low = cells & splat(int32_t{0x7f80}), high = cells & splat(int32_t{0x7f800000});
  return (low == splat(int32_t{0x7f80})) | (high == splat(int32_t{0x7f800000}));
}

bool pack_pairs(const Strided& from, int rows, int columns, Panels to, int padded_rows) {
  vi bad{};
  const int cells = (columns + 1) / 2;
  for (int c = 0; c < cells; c += W) {
    float* const out = to.data + c / panel_width * to.rows * panel_width + c % panel_width;
    for (int r = 0; r < padded_rows; ++r) {
      vi x{};
      if (r < rows) {
        const uint16_t* const row = static_cast<const uint16_t*>(from.data) + r * from.row_step;
        x = load_pairs(row + 2 * c * from.column_step, from.column_step, columns - 2 * c);
        bad |= not_finite(x);
      }
      store(out + r * panel_width, as_float(x));
    }
  }
  return bits_of(bad) == 0;
}

bool pack_pairs_transposed(const Strided& from, int rows, int columns, Panels to, int padded_rows) {
  vi bad{};
  const int cells = (columns + 1) / 2;
  for (int r = 0; r < padded_rows; r += W) {
    float* const out = to.data + r / panel_width * to.rows * panel_width + r % panel_width;
    for (int c = 0; c < cells; c += W) {
      vf x[W];
      for (int i = 0; i < W; ++i) {
        x[i] = vf{};
        if (r + i >= rows) continue;
        const uint16_t* const row =
            static_cast<const uint16_t*>(from.data) + (r + i) * from.row_step;
        const vi pairs =
            load_pairs(row + 2 * c * from.column_step, from.column_step, columns - 2 * c);
        bad |= not_finite(pairs);
        x[i] = as_float(pairs);
      }
      transpose(x);
      for (int i = 0; i < W && c + i < cells; ++i) store(out + (c + i) * panel_width, x[i]);
    }
  }
  return bits_of(bad) == 0;
}

bool pack_row_pairs(const Strided& from, int rows, int columns, Panels to, int padded_rows) {
  vi bad{};
  const auto half = [&](int row, int c) {  // its numbers in the high halves
    if (row >= rows) return vi{};
    const char* const p =
        static_cast<const char*>(from.data) + (row * from.row_step + c * from.column_step) * 2;
    return as_int(load_elements<StoredType::BF16>(p, from.column_step, columns - c));
  };
  for (int c = 0; c < columns; c += W) {
    float* const out = to.data + c / panel_width * to.rows * panel_width + c % panel_width;
    for (int r = 0; r < padded_rows; r += 2) {
      const vu low = reinterpret_cast<vu>(half(r, c)) >> 16;
      const vi x = reinterpret_cast<vi>(low) | half(r + 1, c);
      bad |= not_finite(x);
      store(out + r / 2 * panel_width, as_float(x));
    }
  }
  return bits_of(bad) == 0;
}

// To bf16: 2 W neighbouring numbers, and cells of one number of `low` and one of `high` each. The
// instruction takes numbers below the normal ones for 0, as the product of pairs does.
FOVEA_INLINE void store_numbers(float* p, vf first, vf second) {
#if FOVEA_ISA_LEVEL == 3
  store(p, (vf)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
#else
  store_bfloat(reinterpret_cast<uint16_t*>(p), first);
  store_bfloat(reinterpret_cast<uint16_t*>(p) + W, second);
#endif
}
FOVEA_INLINE vf pairs_of(vf low, vf high) {
#if FOVEA_ISA_LEVEL == 3
  typedef int16_t Index __attribute__((vector_size(W * 4)));
  Index from{};
  for (int i = 0; i < 2 * W; ++i) from[i] = static_cast<int16_t>(i / 2 + i % 2 * W);
  const __m512bh both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
  return (vf)_mm512_permutexvar_epi16((__m512i)from, (__m512i)both);
#else
  return as_float(reinterpret_cast<vi>(bfloat_bits(low) | bfloat_bits(high) << 16));
#endif
}

void narrow(Panels from, const MatrixPart& part, Panels to) {
  static_assert(panel_width % (2 * W) == 0);
  for (int row = part.first; row < part.last; ++row) {
    for (int c = part.column_first; c < part.column_last; c += 2 * W) {
      const float* const at =
          from.data + (c / panel_width * from.rows + row) * panel_width + c % panel_width;
      const int cell = c / 2;
      float* const out =
          to.data + (cell / panel_width * to.rows + row) * panel_width + cell % panel_width;
      store_numbers(out, load(at), c + W < part.column_last ? load(at + W) : vf{});
    }
  }
}

void narrow_rows(Panels from, const MatrixPart& part, Panels to) {
  for (int c = part.column_first; c < part.column_last; c += W) {
    const int64_t panel = c / panel_width, at = c % panel_width;
    const float* const in = from.data + panel * from.rows * panel_width + at;
    float* const out = to.data + panel * to.rows * panel_width + at;
    for (int row = part.first; row < part.last; row += 2) {
      const vf low = load(in + row * panel_width);
      const vf high = row + 1 < part.last ? load(in + (row + 1) * panel_width) : vf{};
      store(out + row / 2 * panel_width, pairs_of(low, high));
    }
  }
}

const PairKernels pair_kernels = {
    .multiply = multiply_pairs,
    .pack = pack_pairs,
    .pack_transposed = pack_pairs_transposed,
    .pack_rows = pack_row_pairs,
    .narrow = narrow,
    .narrow_rows = narrow_rows,
};

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA
