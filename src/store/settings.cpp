// The process's store, as its environment wants it.
#include <algorithm>
#include <charconv>
#include <limits>

#include "base/env.h"
#include "store/shelf.h"

namespace fovea::store {
namespace {

std::vector<std::string> split_paths(const std::string& list) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(':', at), list.size());
    if (end > at) out.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace

std::optional<std::uint64_t> parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc()) return std::nullopt;
  const std::string unit(end, last);
  int shift = 0;
  if (unit == "K" || unit == "KiB") shift = 10;
  if (unit == "M" || unit == "MiB") shift = 20;
  if (unit == "G" || unit == "GiB") shift = 30;
  if (shift == 0 && !unit.empty()) return std::nullopt;
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

Settings settings_from_environment() {
  Settings out;
  out.folder = choose_folder();
  if (const auto text = env_value(Env::CacheLimit)) {
    const auto limit = parse_bytes(*text);
    out.limit = limit.value_or(default_limit);
    if (!limit) out.bad_limit = *text;
  }
  out.bundles = split_paths(env_value(Env::Bundle).value_or(""));
  return out;
}

// Never destroyed: a plan may be built while a process ends.
Shelf& shelf() {
  static Shelf& process = *new Shelf(settings_from_environment());
  return process;
}

Blob get_or_build(const Key& key, const std::function<Blob()>& build, Origin* origin) {
  return shelf().get_or_build(key, build, origin);
}

std::optional<Blob> find(const Key& key, Origin* origin) { return shelf().find(key, origin); }

void discard(const Key& key) { shelf().discard(key); }

}  // namespace fovea::store
