// libFuzzer on stored files: see damage_target.h. The first byte says whether sums are made to fit.
// Run by ./dev fuzz.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/store/damage_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto outcome =
      fovea::store::testing::damage_target({data + 1, size - 1}, (data[0] & 1) != 0);
  if (!outcome.failure.empty()) {
    std::fprintf(stderr, "%s\n", outcome.failure.c_str());
    std::abort();
  }
  return 0;
}
