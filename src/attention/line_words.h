// The words of a problem line by key, read as numbers, lists, flags and choices. Knows which keys
// there are, not what they mean.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"

namespace fovea {

class LineWords {
 public:
  // Throws InvalidArgument for an unknown or a repeated key.
  explicit LineWords(std::string_view line);

  bool has(std::string_view key) const { return words_.contains(key); }
  const std::string& program() const { return program_; }  // the words of the Program, as a line

  // Each throws InvalidArgument that names key, value and rule; the fallback is for a key that is
  // not there.
  std::int64_t size(std::string_view key, std::int64_t fallback) const;
  std::int32_t i32(std::string_view key, std::int32_t fallback) const;
  std::uint64_t u64(std::string_view key, std::uint64_t fallback) const;
  float f32(std::string_view key, float fallback) const;
  double real(std::string_view key, DType dtype) const;  // of a key that is there: f32, or f64
  bool flag(std::string_view key, bool fallback = false) const;
  DType dtype(std::string_view key, DType fallback) const;  // a float type
  std::optional<Strides> strides(std::string_view key) const;
  std::string text(std::string_view key, std::string_view fallback) const;
  // Its place among the names.
  std::size_t choice(std::string_view key, const std::vector<std::string>& names) const;

  // `bound`, or numbers separated by commas.
  bool is_bound(std::string_view key) const;
  bool is_list(std::string_view key) const;                    // more than one number
  std::vector<std::int32_t> list(std::string_view key) const;  // empty if absent or bound

 private:
  const std::string* find(std::string_view key) const;

  std::map<std::string, std::string, std::less<>> words_;
  std::string program_;
};

}  // namespace fovea
