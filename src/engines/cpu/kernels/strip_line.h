// Values that change evenly along a row, as positions do: rest + slope k. Where such a line stays
// below 2^24, sums of whole numbers are exact in f32: one addition replaces integer arithmetic and
// a conversion, and nothing is lost however far the positions are from 0.
#pragma once

#include "engines/cpu/kernels/strip_fused.h"

namespace fovea::cpu::FOVEA_ISA::strip {
namespace {

// slope times 0, 1, 2 ... along the rows of a pack.
struct Steps {
  Pack values, integers;
  int32_t slope;

  explicit Steps(int32_t of) : slope(of) {
    const vi i = lanes() * slope, step = splat(slope * W);
    const vi third = pack_rows == 1 ? i + step * 2 : i;
    integers = {as_float(i), as_float(i + step), as_float(third), as_float(third + step)};
    values = {to_float(i), to_float(i + step), to_float(third), to_float(third + step)};
  }
  __attribute__((always_inline)) bool is_exact(int32_t first) const {
    const int64_t size = first < 0 ? -int64_t{first} : int64_t{first};
    return size < (1 << 24) - 1024 * 64;  // slopes are at most 1024
  }
  // From `first` on, as f32; the magnitude if asked for.
  template <bool take_absolute>
  __attribute__((always_inline)) Pack from(Numbers<int32_t> first) const {
    if (is_exact(first.first) && is_exact(first.second)) {
      const Numbers<float> start = {static_cast<float>(first.first),
                                    static_cast<float>(first.second)};
      const Pack sum = values + spread(start);
      return take_absolute ? absolute(sum) : sum;
    }
    const Pack start = spread(first);
    const auto one = [](vf x, vf y) {
      const vi sum = wrap(bits(as_int(x)) + bits(as_int(y)));
      return to_float(take_absolute && sum < 0 ? wrap(vu{} - bits(sum)) : sum);
    };
    return {one(start.a, integers.a), one(start.b, integers.b), one(start.c, integers.c),
            one(start.d, integers.d)};
  }
};

// Where a row's line starts: at the strip's first k.
struct LineStart {
  uint32_t start;
  Reader<true> rest;
  LineStart(const StripCall& call, int i)
      : start(static_cast<uint32_t>(*static_cast<const int32_t*>(call.in[i])) *
              static_cast<uint32_t>(call.mode)),
        rest(call, i + 1) {}
  __attribute__((always_inline)) Numbers<int32_t> read(bool two) const {
    const Numbers<int32_t> more = strip::integers(rest, two);
    return {static_cast<int32_t>(start + static_cast<uint32_t>(more.first)),
            static_cast<int32_t>(start + static_cast<uint32_t>(more.second))};
  }
};

// Operands k, rest; `mode` is the slope.
void line(const StripCall& call) {
  const Steps steps(call.mode);
  LineStart start(call, 0);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const Pack first = spread(start.read(left > 1));
    out.write(left > 1, AddI::of(first, steps.integers));
    start.rest.advance();
  }
}
void line_to_float(const StripCall& call) {
  const Steps steps(call.mode);
  LineStart start(call, 0);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    out.write(left > 1, steps.from<false>(start.read(left > 1)));
    start.rest.advance();
  }
}

// x + u line or x - u line; operands x, u, k, rest.
template <bool subtract, bool take_absolute>
void add_line(const StripCall& call) {
  const Steps steps(call.mode);
  Reader<false> x(call, 0);
  Reader<true> u(call, 1);
  LineStart start(call, 2);
  Writer out(call);
  for (int left = call.rows; left > 0; left -= pack_rows) {
    const bool two = left > 1;
    const Numbers<float> factor = floats(u, two);
    const Pack scale =
        subtract ? spread(Numbers<float>{-factor.first, -factor.second}) : spread(factor);
    out.write(two, fma(steps.from<take_absolute>(start.read(two)), scale, x.read(two)));
    x.advance(), u.advance(), start.rest.advance();
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA::strip
