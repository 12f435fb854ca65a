// Linear forms over numbered unknowns, in unbounded integers: what ir/range knows about i32 sums.
#pragma once

#include <cstdint>
#include <vector>

namespace fovea::ir {

struct LinearTerm {
  std::int64_t coefficient = 0;
  std::uint32_t unknown = 0;
};

struct LinearForm {
  static constexpr std::int64_t largest_coefficient = std::int64_t{1} << 20;

  std::vector<LinearTerm> terms;  // by unknown, each once, no zero coefficient
  std::int64_t offset = 0;

  static LinearForm unknown(std::uint32_t number) { return {{{1, number}}, 0}; }
  static LinearForm constant(std::int64_t value) { return {{}, value}; }

  // Small enough that its value over i32 unknowns, and its sums with another such form, stay far
  // inside 64 bits: 16 * 2^20 * 2^31 = 2^55.
  bool small() const;
};

// ca * a + cb * b; both forms small, ca and cb at most largest_coefficient.
LinearForm combine(std::int64_t ca, const LinearForm& a, std::int64_t cb, const LinearForm& b);

}  // namespace fovea::ir
