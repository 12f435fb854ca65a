// The process's store, as its environment wants it.
#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
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

// The folder of the file that this code is in: libfovea.so, or a program that has it inside.
std::filesystem::path own_folder() {
  Dl_info info{};
  const bool found = dladdr(reinterpret_cast<const void*>(&settings_from_environment), &info) != 0;
  return found && info.dli_fname != nullptr ? std::filesystem::path(info.dli_fname).parent_path()
                                            : std::filesystem::path();
}

// Where the build puts bundles, and where they are installed.
std::vector<std::string> stock_bundles() {
  std::vector<std::string> out;
  const std::filesystem::path here = own_folder();
  for (const auto& folder : {here / "fovea-stock", here / "fovea" / "stock"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (entry.path().extension() == ".fovea") out.push_back(entry.path().string());
    }
  }
  std::ranges::sort(out);
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
  out.stock = stock_bundles();
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
