// Values that change linearly along a row, as positions do: rest + slope k. If such a line stays
// below 2^24, sums of integers are exact in f32: one addition replaces integer arithmetic and a
// conversion, and is exact however far the positions are from 0.
#pragma once

#include "engines/cpu/kernels/strip_fused.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

// slope times 0, 1, 2 ... along a pack.
struct Steps {
  Pack values, integers;
  uint32_t slope;

  explicit Steps(int32_t of) : slope(static_cast<uint32_t>(of)) {
    const vi i = lanes() * of, step = splat(of * W);
    const vi at[4] = {i, i + step, i + step * 2, i + step * 3};
    integers = {as_float(at[0]), as_float(at[1]), as_float(at[2]), as_float(at[3])};
    values = {to_float(at[0]), to_float(at[1]), to_float(at[2]), to_float(at[3])};
  }
  // Where a pack begins, in a row that begins at `first`.
  __attribute__((always_inline)) int32_t start(uint32_t first, int c) const {
    return static_cast<int32_t>(first + slope * static_cast<uint32_t>(c));
  }
  __attribute__((always_inline)) bool is_exact(int32_t first) const {
    const int64_t size = first < 0 ? -int64_t{first} : int64_t{first};
    return size < (1 << 24) - 1024 * 64;  // slopes are at most 1024
  }
  // From `first` on, as f32; the magnitude if asked for.
  template <bool take_absolute>
  __attribute__((always_inline)) Pack from(int32_t first) const {
    if (is_exact(first)) {
      const Pack sum = values + static_cast<float>(first);
      return take_absolute ? absolute(sum) : sum;
    }
    const vu start = bits(splat(first));
    const auto one = [&](vf x) __attribute__((always_inline)) {
      const vi sum = wrap(start + bits(as_int(x)));
      return to_float(take_absolute && sum < 0 ? wrap(vu{} - bits(sum)) : sum);
    };
    return each(one, integers);
  }
};

// Where a row's line starts: at the strip's first k.
struct LineStart {
  uint32_t start;
  OperandReader<true> rest;
  LineStart(const StripCall& call, int i)
      : start(static_cast<uint32_t>(*static_cast<const int32_t*>(call.in[i])) *
              static_cast<uint32_t>(call.mode)),
        rest(call, i + 1) {}
  __attribute__((always_inline)) uint32_t read() const {
    return start + static_cast<uint32_t>(rest.integer());
  }
};

// Operands k, rest; `mode` is the slope. As i32 or as f32.
template <bool as_real>
void line(const StripCall& call) {
  const Steps steps(call.mode);
  LineStart start(call, 0);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const uint32_t first = start.read();
    out.write_row([&](int c) __attribute__((always_inline)) {
      const int32_t at = steps.start(first, c);
      if constexpr (as_real) return steps.from<false>(at);
      return AddI::of(all(as_float(splat(at))), steps.integers);
    });
    start.rest.advance();
  }
}

// x + u line or x - u line; operands x, u, k, rest.
template <bool subtract, bool take_absolute>
void add_line(const StripCall& call) {
  const Steps steps(call.mode);
  OperandReader<false> x(call, 0);
  OperandReader<true> u(call, 1);
  LineStart start(call, 2);
  RowWriter out(call);
  for (int row = 0; row < call.rows; ++row) {
    const uint32_t first = start.read();
    const Pack scale = all(subtract ? -u.number() : u.number());
    out.write_row([&](int c) __attribute__((always_inline)) {
      return fma(steps.from<take_absolute>(steps.start(first, c)), scale, x.read(c));
    });
    x.advance(), u.advance(), start.rest.advance();
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
