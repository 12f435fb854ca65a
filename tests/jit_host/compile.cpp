#include "tests/jit_host/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/hash.h"

namespace fovea::on_host {
namespace {

namespace fs = std::filesystem;

const std::string source_folder = FOVEA_SOURCE_DIR;
const std::string own_folder = source_folder + "/tests/jit_host/";
const std::string device_folder = source_folder + "/src/engines/jit/device";

// -Og, since compiling takes longer than running. Twelve lines of the list take 8.3 s to compile
// with -Og, 11.0 s with -O1, 7.3 s with -O0, and then run in 0.24, 0.24 and 0.34 s.
std::string command() {
  std::string out = FOVEA_HOST_COMPILER
      " -std=c++17 -Og -shared -fPIC -w -fvisibility=hidden -fno-gnu-unique"
      " -fno-strict-aliasing -ffp-contract=off -fno-math-errno -fno-trapping-math";
  out += " -iquote '" + device_folder + "'";
  out += " -DFOVEA_HOST_PRIMITIVES='\"" + own_folder + "primitives_host.h\"'";
  out += " -DFOVEA_HOST_HOPPER='\"" + own_folder + "hopper_host.h\"'";
  const std::string sanitize = FOVEA_HOST_SANITIZE;
  if (!sanitize.empty()) {
    out += " -g1 -fno-sanitize-recover=all -fno-omit-frame-pointer -fsanitize=" + sanitize;
  }
  return out;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool write_file(const fs::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  return static_cast<bool>(out.flush());
}

// Adds the functions that Module looks for: see the end of primitives_host.h.
std::string with_entries(const std::string& source) {
  static const std::regex kernel(
      R"(__global__\s+void\s+(?:__launch_bounds__\s*\([^;{]*?\)\s*)?(\w+)\s*\()");
  std::string out = source + "\nFOVEA_HOST_OBJECT\n";
  for (std::sregex_iterator i(source.begin(), source.end(), kernel), end; i != end; ++i) {
    out += "FOVEA_HOST_ENTRY(" + (*i)[1].str() + ")\n";
  }
  return out;
}

// What an object depends on besides its source. The engine's sources contain their headers.
std::string surroundings(const std::string& source) {
  std::vector<fs::path> headers{own_folder + "machine.h", own_folder + "primitives_host.h",
                                own_folder + "hopper_host.h"};
  if (source.find("\n#include \"") != std::string::npos) {
    std::error_code ignored;
    for (const auto& entry : fs::recursive_directory_iterator(device_folder, ignored)) {
      headers.push_back(entry.path());
    }
  }
  std::sort(headers.begin(), headers.end());
  std::string out = command() + FOVEA_HOST_COMPILER_VERSION;
  for (const fs::path& header : headers) out += read_file(header);
  return out;
}

std::string name_of(std::string_view text) {
  std::uint64_t one = 1, two = 2;
  for (const char c : text) {
    one = hash_combine(one, static_cast<unsigned char>(c));
    two = (two ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  std::array<char, 40> out;
  std::snprintf(out.data(), out.size(), "%016llx%016llx", static_cast<unsigned long long>(one),
                static_cast<unsigned long long>(two));
  return out.data();
}

// Returns an empty path if there is none.
fs::path cache_folder() {
  std::error_code ignored;
  const char* const caches = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  fs::path folder;
  if (caches != nullptr && *caches != 0) {
    folder = caches;
  } else if (home != nullptr && *home != 0) {
    folder = fs::path(home) / ".cache";
  } else {
    return {};
  }
  folder /= "fovea-tests";
  fs::create_directories(folder, ignored);
  return fs::is_directory(folder, ignored) ? folder : fs::path();
}

// Removes objects that were not used for two weeks: their sources have changed since.
void forget_old(const fs::path& folder) {
  std::error_code ignored;
  const auto limit = fs::file_time_type::clock::now() - std::chrono::hours(14 * 24);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.last_write_time(ignored) < limit) fs::remove(entry.path(), ignored);
  }
}

// Returns "" if there is none.
std::string find_kept(const fs::path& file) {
  std::error_code ignored;
  std::string image = read_file(file);
  if (!image.empty()) fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
  return image;
}

// Renames a finished file, so that other processes never read half of one.
void keep(const fs::path& file, const std::string& image) {
  static const bool once = (forget_old(file.parent_path()), true);
  static_cast<void>(once);
  std::error_code ignored;
  const fs::path part = file.string() + "." + std::to_string(::getpid());
  if (write_file(part, image)) fs::rename(part, file, ignored);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "fovea-compile-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder " + name);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string compile(const std::string& text) {
  const TemporaryFolder folder;
  const fs::path source = folder.path() / "kernel.cpp", object = folder.path() / "kernel.so",
                 log = folder.path() / "log";
  if (!write_file(source, text)) throw std::runtime_error("no room for " + source.string());
  const std::string line = command() + " '" + source.string() + "' -o '" + object.string() +
                           "' 2> '" + log.string() + "'";
  if (std::system(line.c_str()) != 0) {
    throw std::runtime_error("the host's compiler: " + read_file(log).substr(0, 4000));
  }
  return read_file(object);
}

}  // namespace

std::string compile_on_host(const std::string& source) {
  const std::string text = with_entries(source);
  const fs::path folder = cache_folder();
  const fs::path kept = folder / (name_of(text + surroundings(source)) + ".so");
  std::string image = folder.empty() ? "" : find_kept(kept);
  if (!image.empty()) return image;
  image = compile(text);
  if (!folder.empty()) keep(kept, image);
  return image;
}

}  // namespace fovea::on_host
