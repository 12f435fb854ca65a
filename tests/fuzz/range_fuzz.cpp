// libFuzzer on the soundness of ir/range: its bytes choose a formula, a box, captured values and
// points. Run by ./dev fuzz.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/ir/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fovea::test::Random random(std::span(data, size));
  const fovea::test::RangeCase result = fovea::test::run_range_case(random, 2, 8);
  if (!result.failure.empty()) {
    std::fprintf(stderr, "%s\n", result.failure.c_str());
    std::abort();
  }
  return 0;
}
