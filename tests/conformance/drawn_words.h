// The words of a problem line as they are drawn: what generators of lines have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tests/ir/random.h"

namespace fovea::conformance {

class DrawnWords {
 public:
  explicit DrawnWords(test::Random& random) : random_(random) {}

 protected:
  static std::string list(const std::vector<std::int64_t>& numbers) {
    std::string out;
    for (const std::int64_t n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
    return out;
  }
  std::string pick(std::initializer_list<const char*> from) {
    return from.begin()[random_.below(static_cast<std::uint32_t>(from.size()))];
  }
  void word(const std::string& key, const std::string& value) { line_ += " " + key + "=" + value; }
  void word(const std::string& key, std::int64_t value) { word(key, std::to_string(value)); }
  std::int64_t upto(std::int64_t most) {
    return random_.below(static_cast<std::uint32_t>(most) + 1);
  }

  test::Random& random_;
  std::string line_;  // begins with a blank
};

}  // namespace fovea::conformance
