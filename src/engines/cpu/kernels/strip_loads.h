// Elements of captured tensors into strips: every element type becomes a cell of 32 bits. Never
// reads a byte that it was not asked for.
#pragma once

#include "engines/cpu/kernels/strip_pack.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

// One element of each type, as the bits of a cell.
FOVEA_INLINE int32_t float_bits(float x) {
  int32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}
template <class T>
FOVEA_INLINE T element(const void* p, int64_t at) {
  T out;
  memcpy(&out, static_cast<const char*>(p) + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return out;
}

struct CellF32 {
  using Stored = float;
  FOVEA_INLINE int32_t of(float x) { return float_bits(x); }
  FOVEA_INLINE vf vector(const float* p) { return load(p); }
};
struct CellF16 {
  using Stored = uint16_t;
  FOVEA_INLINE int32_t of(uint16_t x) { return float_bits(half_value(x)); }
  FOVEA_INLINE vf vector(const uint16_t* p) { return load_half(p); }
};
struct CellBF16 {
  using Stored = uint16_t;
  FOVEA_INLINE int32_t of(uint16_t x) { return static_cast<int32_t>(uint32_t{x} << 16); }
  FOVEA_INLINE vf vector(const uint16_t* p) { return load_bfloat(p); }
};
struct CellF64 {
  using Stored = double;
  FOVEA_INLINE int32_t of(double x) { return float_bits(static_cast<float>(x)); }
};
struct CellI32 {
  using Stored = int32_t;
  FOVEA_INLINE int32_t of(int32_t x) { return x; }
  FOVEA_INLINE vf vector(const int32_t* p) { return as_float(load(p)); }
};
struct CellI64 {
  using Stored = int64_t;
  FOVEA_INLINE int32_t of(int64_t x) {
    return static_cast<int32_t>(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
  }
};
struct CellU8 {
  using Stored = uint8_t;
  FOVEA_INLINE int32_t of(uint8_t x) { return x; }
};
struct CellBool {
  using Stored = uint8_t;
  FOVEA_INLINE int32_t of(uint8_t x) { return x != 0 ? -1 : 0; }
};

// Whether W elements that lie next to one another can be read at once.
template <class C>
constexpr bool has_vector = requires(const typename C::Stored* p) { C::vector(p); };

#if FOVEA_ISA_LEVEL >= 2
FOVEA_INLINE vf reversed(vf x) {
  return (vf)_mm512_permutexvar_ps((__m512i)(W - 1 - lanes()), (__m512)x);
}
#elif FOVEA_ISA_LEVEL == 1
FOVEA_INLINE vf reversed(vf x) {
  return (vf)_mm256_permutevar8x32_ps((__m256)x, (__m256i)(W - 1 - lanes()));
}
#else
FOVEA_INLINE vf reversed(vf x) { return vf{x[3], x[2], x[1], x[0]}; }
#endif

// A row that fills whole vectors, forwards or backwards from p.
template <class C, bool backwards>
FOVEA_INLINE void read_vectors(int32_t* out, const typename C::Stored* p, int columns) {
  for (int c = 0; c < columns; c += W) {
    store(out + c, as_int(backwards ? reversed(C::vector(p - c - W + 1)) : C::vector(p + c)));
  }
}

template <class C>
FOVEA_INLINE int read_whole_vectors(int32_t* out, const typename C::Stored* p, int columns,
                                    int64_t step) {
  if (step != 1 && step != -1) return 0;
  const int whole_part = columns / W * W;
  if (step == 1) {
    read_vectors<C, false>(out, p, whole_part);
  } else {
    read_vectors<C, true>(out, p, whole_part);
  }
  return whole_part;
}

template <class C>
void read_rows(const StripRows& call) {
  const int width = (call.columns + panel_width - 1) / panel_width * panel_width;
  const auto* const data = static_cast<const typename C::Stored*>(call.data);
  int32_t* out = static_cast<int32_t*>(call.out);
  if constexpr (has_vector<C>) {
    if (call.columns == panel_width && call.step == 1) {
      for (int r = 0; r < call.rows; ++r, out += panel_width) {
        read_vectors<C, false>(out, data + call.at[r], panel_width);
      }
      return;
    }
    if (call.columns == panel_width && call.step == -1) {
      for (int r = 0; r < call.rows; ++r, out += panel_width) {
        read_vectors<C, true>(out, data + call.at[r], panel_width);
      }
      return;
    }
  }
  for (int r = 0; r < call.rows; ++r, out += width) {
    int c = 0;
    if constexpr (has_vector<C>) {
      c = read_whole_vectors<C>(out, data + call.at[r], call.columns, call.step);
    }
    for (; c < call.columns; ++c) {
      out[c] = C::of(element<typename C::Stored>(data, call.at[r] + c * call.step));
    }
    for (; c < width; ++c) out[c] = 0;
  }
}

template <class C>
void read_points(const StripPoints& call) {
  int32_t* const out = static_cast<int32_t*>(call.out);
  for (int i = 0; i < call.count; ++i) {
    out[i] = C::of(element<typename C::Stored>(call.data, call.at[i]));
  }
}

#if FOVEA_ISA_LEVEL >= 2
FOVEA_INLINE vi gather(const void* data, vi at) {
  return (vi)_mm512_i32gather_epi32((__m512i)at, data, 4);
}
#elif FOVEA_ISA_LEVEL == 1
FOVEA_INLINE vi gather(const void* data, vi at) {
  return (vi)_mm256_i32gather_epi32(static_cast<const int*>(data), (__m256i)at, 4);
}
#else
FOVEA_INLINE vi gather(const void* data, vi at) {
  vi out{};
  for (int i = 0; i < W; ++i) out[i] = element<int32_t>(data, at[i]);
  return out;
}
#endif

// Indices beyond the last column are clamped like all others: what they read is there.
void gather_strip(const StripGather& call) {
  for (int r = 0; r < call.rows; ++r) {
    const int32_t* const index = call.index + r * call.index_step;
    int32_t* const out = static_cast<int32_t*>(call.out) + r * panel_width;
    const vi start = splat(static_cast<int32_t>(call.row_at[r]));
    for (int c = 0; c < panel_width; c += W) {
      const vi i = load(index + c);
      const vi raised = i < 0 ? vi{} : i;
      const vi clamped = raised > call.last ? splat(call.last) : raised;
      store(out + c, gather(call.data, start + clamped * call.stride));
    }
  }
}

void write_sequence(int32_t* out, int32_t first, int count) {
  const uint32_t start = static_cast<uint32_t>(first);
  const int width = (count + panel_width - 1) / panel_width * panel_width;
  for (int i = 0; i < width; ++i) {
    out[i] = static_cast<int32_t>(start + static_cast<uint32_t>(i));
  }
}

void collect_bits(const StripCall& value, bool is_splat, int columns, uint64_t* bits, int64_t words,
                  int shift) {
  const uint64_t inside = columns >= 64 ? ~uint64_t{0} : (uint64_t{1} << columns) - 1;
  for (int r = 0; r < value.rows; ++r) {
    const int32_t* const row = static_cast<const int32_t*>(value.in[0]) + r * value.step[0];
    uint64_t word = 0;
    if (is_splat) {
      word = *row != 0 ? ~uint64_t{0} : 0;
    } else {
      for (int c = 0; c < panel_width; c += W) word |= uint64_t{bits_of(load(row + c))} << c;
    }
    bits[r * words] |= (word & inside) << shift;
  }
}

constexpr void fill_loads(StripKernels& out) {
#define FOVEA_CELL(number, Cell)      \
  out.rows[number] = read_rows<Cell>; \
  out.points[number] = read_points<Cell>;
  FOVEA_CELL(0, CellF32)
  FOVEA_CELL(1, CellF16)
  FOVEA_CELL(2, CellBF16)
  FOVEA_CELL(3, CellF64)
  FOVEA_CELL(4, CellI32)
  FOVEA_CELL(5, CellI64)
  FOVEA_CELL(6, CellU8)
  FOVEA_CELL(7, CellBool)
#undef FOVEA_CELL
  out.gather = gather_strip;
  out.sequence = write_sequence;
  out.bits = collect_bits;
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
