// libFuzzer on the parser: see tests/ir/targets.h. Run by ./dev fuzz.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/ir/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const fovea::fuzz::ParseOutcome outcome = fovea::fuzz::parse_target(input);
  if (!outcome.failure.empty()) {
    std::fprintf(stderr, "%s\n", outcome.failure.c_str());
    std::abort();
  }
  return 0;
}
