// The rules of lengths, starts and offsets that come one per sequence. Checked where they are known
// on the host: in a problem line, and in Bindings.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace fovea {

// Formulas see positions as i32.
inline constexpr std::int64_t most_positions = std::int64_t{1} << 31;

// The sequences of queries, or those of keys. A span is empty where its values are absent or not
// known here; `named` are the words of the caller for them.
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

}  // namespace fovea
