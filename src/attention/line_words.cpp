#include "attention/line_words.h"

#include <algorithm>

#include "attention/problem_text.h"
#include "attention/refuse.h"
#include "base/words.h"

namespace fovea {
namespace {

const std::vector<std::string> program_keys{"mod", "mask", "bprop", "tensor", "scalar"};

bool is_among(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

[[noreturn]] void refuse_word(std::string_view key, std::string_view value,
                              const std::string& rule) {
  refuse(key, value.substr(0, 64), rule);
}

}  // namespace

LineWords::LineWords(std::string_view line) {
  for (Word& word : split_words(line)) {
    if (!is_among(problem_keys(), word.key)) {
      throw InvalidArgument("unknown key '" + word.key.substr(0, 64) + "'" +
                            did_you_mean(word.key, problem_keys()));
    }
    const bool repeatable = word.key == "tensor" || word.key == "scalar";
    if (!repeatable && has(word.key)) refuse(word.key, "is given twice");
    if (is_among(program_keys, word.key)) {
      program_ += (program_.empty() ? "" : " ") + join_word(word.key, word.value);
    }
    words_.insert_or_assign(std::move(word.key), std::move(word.value));
  }
}

const std::string* LineWords::find(std::string_view key) const {
  const auto at = words_.find(key);
  return at == words_.end() ? nullptr : &at->second;
}

std::int64_t LineWords::size(std::string_view key, std::int64_t fallback) const {
  const std::string* const text = find(key);
  return text ? parse_number<std::int64_t>(key, *text, "must be a whole number") : fallback;
}

std::int32_t LineWords::i32(std::string_view key, std::int32_t fallback) const {
  const std::string* const text = find(key);
  return text ? parse_number<std::int32_t>(key, *text, "must be a whole number of 32 bits")
              : fallback;
}

std::uint64_t LineWords::u64(std::string_view key, std::uint64_t fallback) const {
  const std::string* const text = find(key);
  if (!text) return fallback;
  return parse_number<std::uint64_t>(key, *text, "must be a whole number from 0 to 2^64 - 1");
}

float LineWords::f32(std::string_view key, float fallback) const {
  const std::string* const text = find(key);
  return text ? parse_number<float>(key, *text, "must be a number that fits f32") : fallback;
}

double LineWords::real(std::string_view key, DType dtype) const {
  const double rounded = f32(key, 0);
  return dtype == DType::F64 ? parse_number<double>(key, *find(key), "must be a number") : rounded;
}

bool LineWords::flag(std::string_view key, bool fallback) const {
  const std::string* const text = find(key);
  if (!text) return fallback;
  if (*text != "0" && *text != "1") refuse_word(key, *text, "must be 0 or 1");
  return *text == "1";
}

DType LineWords::dtype(std::string_view key, DType fallback) const {
  static const std::vector<std::string> names{"f32", "bf16", "f16", "f64"};
  if (!has(key)) return fallback;
  return *dtype_from_name(names[choice(key, names)]);
}

std::optional<Strides> LineWords::strides(std::string_view key) const {
  const std::string* const text = find(key);
  if (!text) return std::nullopt;
  const std::string rule = "must be four whole numbers: by batch, head, position, feature";
  const std::vector<std::int64_t> s = parse_numbers<std::int64_t>(key, *text, rule);
  if (s.size() != 4) refuse_word(key, *text, rule);
  return Strides{s[0], s[1], s[2], s[3]};
}

std::string LineWords::text(std::string_view key, std::string_view fallback) const {
  const std::string* const text = find(key);
  return text ? *text : std::string(fallback);
}

std::size_t LineWords::choice(std::string_view key, const std::vector<std::string>& names) const {
  const std::string* const text = find(key);
  if (!text) return 0;
  const auto at = std::ranges::find(names, *text);
  if (at == names.end()) {
    refuse_word(key, *text, "must be one of " + joined(names) + did_you_mean(*text, names));
  }
  return static_cast<std::size_t>(at - names.begin());
}

bool LineWords::is_bound(std::string_view key) const {
  const std::string* const text = find(key);
  return text && *text == "bound";
}

bool LineWords::is_list(std::string_view key) const {
  const std::string* const text = find(key);
  return text && text->find(',') != std::string::npos;
}

std::vector<std::int32_t> LineWords::list(std::string_view key) const {
  const std::string* const text = find(key);
  if (!text || *text == "bound") return {};
  return parse_numbers<std::int32_t>(
      key, *text, "must be whole numbers of 32 bits separated by commas, or 'bound'");
}

}  // namespace fovea
