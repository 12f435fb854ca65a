// The rules that hold for the sizes, strides and values of a Problem and of Bindings alike. Each
// function throws InvalidArgument.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "attention/problem.h"
#include "attention/refuse.h"

namespace fovea {

// Formulas see positions as i32.
inline constexpr std::int64_t most_positions = std::int64_t{1} << 31;

// The sequences of queries, or those of keys. A span is empty if its values are absent or not known
// on the host; `named` are the words of the caller for them.
struct Sequences {
  struct Names {
    std::string_view lengths, starts, offsets, longest, rows;
  };
  Names named;
  std::span<const std::int32_t> lengths;  // [B]
  std::span<const std::int32_t> starts;   // [B + 1], packed
  std::span<const std::int32_t> offsets;  // [B]
  std::int64_t longest = 0;               // sq or skv
  std::int64_t rows = 0;                  // t_q or t_k, packed
};

// Throws InvalidArgument that names the entry.
void check_sequences(const Sequences& sequences);

// At least 0, positions in 31 bits, heads in groups, no overflow of any dense tensor.
void check_sizes(const Sizes& sizes, Layout layout);

// One of the eight tensors; `name` is what errors call its strides.
struct StridedTensor {
  std::string_view name;
  std::array<std::int64_t, 4> extents;
  Strides strides;
  std::int64_t element_bytes = 0;
  bool output = false;
};
void check_strides(const StridedTensor& tensor, Layout layout);
// Of a strided block, from its first byte to behind its last, for strides that were checked; 0 if
// it is empty.
std::uintptr_t bytes_of(std::span<const std::int64_t> extents,
                        std::span<const std::int64_t> strides, std::int64_t element_bytes);

// Strides are at least 0, and the last byte is one that 64 bits can count.
void check_reach(const ArgumentName& name, std::span<const std::int64_t> extents,
                 std::span<const std::int64_t> strides, std::int64_t element_bytes);

// True if no two elements share an address: sorted by stride, each dimension of more than one
// element steps past all that the smaller ones reach. False also if an extent is 0 and the
// strides would overlap if it were not: nothing is written there, so callers ask only if not empty.
bool is_free_of_overlap(std::span<const std::int64_t> extents,
                        std::span<const std::int64_t> strides);

// Offsets as numbers that are known on the host; an unknown one is 0.
struct Coordinates {
  std::int32_t b_offset = 0, h_offset = 0, q_offset = 0, k_offset = 0, h_global = 0;
  bool dropout = false;  // b * H + h must then fit the generator's counter
};
void check_coordinates(const Coordinates& coordinates, const Sizes& sizes);

void check_dropout(float probability);
void check_scale(double scale);

// Declared extents are at least 0 and their product fits.
void check_captured_extents(const ir::Program& program, const Sizes& sizes, std::int32_t h_global);

// A strided block of memory that a call reads or writes. Strides are in bytes and at least 0.
struct Region {
  std::string name;
  std::uintptr_t address = 0;
  std::int64_t element_bytes = 1;
  std::size_t rank = 0;
  std::array<std::int64_t, ir::limits::rank> extent{}, stride{};

  std::uintptr_t bytes() const;  // from the first to behind the last element
};

// Whether both may share a byte. Regions that interleave without touching, such as the gradients
// of packed q, k and v, are told apart.
bool overlap(const Region& a, const Region& b);

// From its first byte to behind its last: all that has to be known of most regions.
struct ByteRange {
  std::uintptr_t address = 0, bytes = 0;
  bool written = false;
};
// By differences: an end may lie behind the last address.
inline bool meet(const ByteRange& a, const ByteRange& b) {
  return a.address <= b.address ? b.address - a.address < a.bytes && b.bytes != 0
                                : a.address - b.address < b.bytes && a.bytes != 0;
}

// Throws InvalidArgument that names both, if something written overlaps anything else. Only for
// ranges that meet is `region_of(i)` asked for the region itself.
template <class RegionOf>
void check_overlaps(std::span<const ByteRange> ranges, const RegionOf& region_of) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (!ranges[i].written) continue;
    for (std::size_t j = 0; j < ranges.size(); ++j) {
      if (i == j || (ranges[j].written && j < i) || !meet(ranges[i], ranges[j])) continue;
      const Region a = region_of(i), b = region_of(j);
      if (overlap(a, b)) refuse(a.name, "is written, but shares memory with " + b.name);
    }
  }
}

}  // namespace fovea
