// Between the caller's tensors, of any type and strides, and matrices in panels of f32. Nothing is
// read or written outside the rows and columns that are named.
#pragma once

#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

// Calls body<type>().
template <class Body>
FOVEA_INLINE auto for_stored(StoredType type, const Body& body) {
  switch (type) {
    case StoredType::F32: return body.template operator()<StoredType::F32>();
    case StoredType::F16: return body.template operator()<StoredType::F16>();
    case StoredType::BF16: break;
  }
  return body.template operator()<StoredType::BF16>();
}

template <StoredType type>
FOVEA_INLINE vf load_stored(const char* p) {
  if constexpr (type == StoredType::F32) return load(reinterpret_cast<const float*>(p));
  if constexpr (type == StoredType::F16) return load_half(reinterpret_cast<const uint16_t*>(p));
  return load_bfloat(reinterpret_cast<const uint16_t*>(p));
}

template <StoredType type>
FOVEA_INLINE void store_stored(char* p, vf x) {
  if constexpr (type == StoredType::F32) return store(reinterpret_cast<float*>(p), x);
  if constexpr (type == StoredType::F16) return store_half(reinterpret_cast<uint16_t*>(p), x);
  store_bfloat(reinterpret_cast<uint16_t*>(p), x);
}

template <StoredType type>
constexpr int stored_bytes = type == StoredType::F32 ? 4 : 2;

// W elements of a row, or the `count` that are left, the rest 0.
template <StoredType type>
FOVEA_INLINE vf load_elements(const char* p, int64_t step, int count) {
  constexpr int bytes = stored_bytes<type>;
  if (step == 1 && count >= W) return load_stored<type>(p);
  char buffer[W * bytes] = {};
  const int n = count < W ? count : W;
  if (step == 1) {
    memcpy(buffer, p, static_cast<size_t>(n * bytes));
  } else {
    for (int i = 0; i < n; ++i) memcpy(buffer + i * bytes, p + i * step * bytes, bytes);
  }
  return load_stored<type>(buffer);
}

template <StoredType type>
FOVEA_INLINE void store_elements(char* p, int64_t step, int count, vf x) {
  constexpr int bytes = stored_bytes<type>;
  if (step == 1 && count >= W) return store_stored<type>(p, x);
  char buffer[W * bytes];
  store_stored<type>(buffer, x);
  const int n = count < W ? count : W;
  if (step == 1) {
    memcpy(p, buffer, static_cast<size_t>(n * bytes));
  } else {
    for (int i = 0; i < n; ++i) memcpy(p + i * step * bytes, buffer + i * bytes, bytes);
  }
}

FOVEA_INLINE bool no_nan(vf zeros) { return sum_of(zeros) == 0; }  // of sums of x * 0

// Rows come from memory that other cores wrote or that is long gone from the caches: the hardware
// follows one stream of lines well, sixteen of them badly.
FOVEA_INLINE void fetch_row(const char* p, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + i);
}

template <StoredType type>
bool pack_stored(const Strided& from, int rows, int columns, float factor, Panels to,
                 int padded_rows) {
  constexpr int bytes = stored_bytes<type>;
  vf zeros{};
  for (int c = 0; c < columns; c += panel_width) {
    float* out = to.data + c / panel_width * to.rows * panel_width;
    const int width = columns - c < panel_width ? columns - c : panel_width;
    const bool whole = width == panel_width && from.column_step == 1;
    for (int r = 0; r < rows; ++r, out += panel_width) {
      const char* const row =
          static_cast<const char*>(from.data) + (r * from.row_step + c * from.column_step) * bytes;
      constexpr int ahead = 16;
      if (r + ahead < rows && from.column_step == 1) {
        fetch_row(row + ahead * from.row_step * bytes, width * bytes);
      }
      const auto put = [&](int v, vf x) __attribute__((always_inline)) {
        x *= factor;
        zeros = fma(x, vf{}, zeros);
        store(out + v, x);
      };
      if (whole) {
        for (int v = 0; v < panel_width; v += W) put(v, load_stored<type>(row + v * bytes));
      } else {
        int v = 0;
        for (; v < width; v += W) {
          put(v,
              load_elements<type>(row + v * from.column_step * bytes, from.column_step, width - v));
        }
        for (; v < panel_width; v += W) store(out + v, vf{});
      }
    }
    memset(out, 0, static_cast<size_t>(padded_rows - rows) * panel_width * sizeof(float));
  }
  return no_nan(zeros);
}

bool pack(const Strided& from, int rows, int columns, float factor, Panels to, int padded_rows) {
  return for_stored(from.type, [&]<StoredType type>() {
    return pack_stored<type>(from, rows, columns, factor, to, padded_rows);
  });
}

// Rows become columns of a block of W x W: in log2(W) rounds, each exchanging halves.
template <int step>
FOVEA_INLINE void exchange(vf (&x)[W]) {
  for (int i = 0; i < W; ++i) {
    if ((i & step) == 0) exchange_lanes<step>(x[i], x[i + step]);
  }
}
FOVEA_INLINE void transpose(vf (&x)[W]) {
  if constexpr (W >= 16) exchange<8>(x);
  if constexpr (W >= 8) exchange<4>(x);
  exchange<2>(x);
  exchange<1>(x);
}

template <StoredType type>
bool pack_transposed_stored(const Strided& from, int rows, int columns, Panels to,
                            int padded_rows) {
  constexpr int bytes = stored_bytes<type>;
  vf zeros{};
  for (int r = 0; r < padded_rows; r += W) {
    float* const out = to.data + r / panel_width * to.rows * panel_width + r % panel_width;
    const char* const first = static_cast<const char*>(from.data) + r * from.row_step * bytes;
    for (int c = 0; c < columns; c += W) {
      vf x[W];
      for (int i = 0; i < W; ++i) {
        x[i] = vf{};
        if (r + i >= rows) continue;
        if (r + i + W < rows) {
          fetch_row(first + ((i + W) * from.row_step + c * from.column_step) * bytes, W * bytes);
        }
        x[i] = load_elements<type>(first + (i * from.row_step + c * from.column_step) * bytes,
                                   from.column_step, columns - c);
        zeros = fma(x[i], vf{}, zeros);
      }
      transpose(x);
      for (int i = 0; i < W && c + i < columns; ++i) {
        store(out + (c + i) * panel_width, x[i]);
        __builtin_prefetch(out + (c + i) * panel_width + W, 1);  // where the next block goes
      }
    }
  }
  return no_nan(zeros);
}

bool pack_transposed(const Strided& from, int rows, int columns, Panels to, int padded_rows) {
  return for_stored(from.type, [&]<StoredType type>() {
    return pack_transposed_stored<type>(from, rows, columns, to, padded_rows);
  });
}

template <StoredType type>
void unpack_stored(Panels from, int rows, int columns, const float* factor, const Strided& to) {
  constexpr int bytes = stored_bytes<type>;
  for (int r = 0; r < rows; ++r) {
    char* const row = static_cast<char*>(to.data) + r * to.row_step * bytes;
    const vf scale = splat(factor == nullptr ? 1.0f : factor[r]);
    for (int c = 0; c < columns; c += W) {
      const float* const in =
          from.data + (c / panel_width * from.rows + r) * panel_width + c % panel_width;
      store_elements<type>(row + c * to.column_step * bytes, to.column_step, columns - c,
                           load(in) * scale);
    }
  }
}

void unpack(Panels from, int rows, int columns, const float* factor, const Strided& to) {
  for_stored(to.type,
             [&]<StoredType type>() { unpack_stored<type>(from, rows, columns, factor, to); });
}

// Each sum adds its terms in the order of the columns, as multiply() does: what is equal by algebra
// (dO V and dO O, if a row has one key) is then equal bit by bit.
void row_dots(Panels a, Panels b, int rows, int columns, float* out) {
  for (int first = 0; first < rows; first += W) {
    vf sum{};
    for (int c = 0; c < columns; c += W) {
      const int64_t panel = c / panel_width;
      const int64_t at = int64_t{first} * panel_width + c % panel_width;
      vf x[W], y[W];
      for (int i = 0; i < W; ++i) {
        const bool there = first + i < rows;
        x[i] = there ? load(a.data + panel * a.rows * panel_width + at + i * panel_width) : vf{};
        y[i] = there ? load(b.data + panel * b.rows * panel_width + at + i * panel_width) : vf{};
      }
      transpose(x);
      transpose(y);
      for (int i = 0; i < W && c + i < columns; ++i) sum = fma(x[i], y[i], sum);
    }
    store_first(out + first, sum, rows - first < W ? rows - first : W);
  }
}

bool all_finite(const float* numbers, int64_t count) {
  vf zeros_0{}, zeros_1{};
  int64_t i = 0;
  for (; i + 2 * W <= count; i += 2 * W) {
    zeros_0 = fma(load(numbers + i), vf{}, zeros_0);
    zeros_1 = fma(load(numbers + i + W), vf{}, zeros_1);
  }
  for (; i < count; ++i) zeros_0[0] += numbers[i] * 0;
  return no_nan(zeros_0 + zeros_1);
}

void add_up(float* to, const float* const* from, int terms, int64_t count) {
  constexpr int together = 4;  // vectors
  static_assert(panel_width % (together * W) == 0);
  for (int64_t i = 0; i < count; i += together * W) {
    vf sum[together];
    for (int v = 0; v < together; ++v) sum[v] = load(from[0] + i + v * W);
    for (int t = 1; t < terms; ++t) {
      for (int v = 0; v < together; ++v) sum[v] += load(from[t] + i + v * W);
    }
    for (int v = 0; v < together; ++v) store(to + i + v * W, sum[v]);
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA
