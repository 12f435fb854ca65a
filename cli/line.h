// The line that `fovea show` and `fovea diff` take: a program and the sizes to draw it for.
#pragma once

#include <cstdint>
#include <string>

namespace fovea::cli {

struct Line {
  std::string program;  // mod=... mask=... tensor=... scalar=... bprop=...
  std::int64_t b = 1, h = 8, hkv = 0, sq = 256, skv = 256, d = 64, dv = 0;
  std::uint64_t seed = 1;
};

// `key=value` words; an unknown key is an error that names the nearest.
Line parse_line(const std::string& text);

// The same, or a bare formula, which is taken as the mod.
Line parse_line_or_formula(const std::string& text);

}  // namespace fovea::cli
