#include "attention/cpu.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "attention/affinity.h"

namespace fovea {
namespace {

std::optional<std::string> first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// Microseconds of processor time per period, rounded up to processors; 0 where unlimited.
int processors(const std::string& quota, const std::string& period) {
  std::int64_t used = 0, of = 0;
  std::istringstream(quota) >> used;  // "max" and "-1" leave no limit
  std::istringstream(period) >> of;
  if (used <= 0 || of <= 0) return 0;
  return static_cast<int>(std::min<std::int64_t>((used - 1) / of + 1, 1 << 20));
}

int quota_v2(const std::filesystem::path& group) {
  const auto line = first_line(group / "cpu.max");
  if (!line) return 0;
  std::istringstream words(*line);
  std::string quota, period;
  words >> quota >> period;
  return processors(quota, period);
}

int quota_v1(const std::filesystem::path& group) {
  const auto quota = first_line(group / "cpu.cfs_quota_us");
  const auto period = first_line(group / "cpu.cfs_period_us");
  return quota && period ? processors(*quota, *period) : 0;
}

int tightest(int a, int b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

// A limit of any group above counts too. In a container the path may be the host's and not be
// here; then the walk ends at the root, which is the container's own.
int quota_up_from(const std::filesystem::path& root, const std::string& group,
                  int (*read)(const std::filesystem::path&)) {
  int limit = 0;
  std::filesystem::path path = std::filesystem::path(group).relative_path();
  for (;; path = path.parent_path()) {
    limit = tightest(limit, read(root / path));
    if (path.empty()) return limit;
  }
}

bool lists(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

}  // namespace

int quota_threads(const std::filesystem::path& root, const std::string& membership) {
  int limit = 0;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      limit = tightest(limit, quota_up_from(root, group, quota_v2));
    } else if (lists(controllers, "cpu")) {
      limit = tightest(limit, quota_up_from(root / controllers, group, quota_v1));
      limit = tightest(limit, quota_up_from(root / "cpu", group, quota_v1));
    }
  }
  return limit;
}

int usable_threads() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream membership;
  membership << file.rdbuf();
  const int quota = quota_threads("/sys/fs/cgroup", membership.str());
  return std::max(1, tightest(quota, static_cast<int>(process_cpus().all.size())));
}

#if defined(__x86_64__)

std::string cpu_name() {
  constexpr unsigned first = 0x80000002u, last = 0x80000004u;
  if (__get_cpuid_max(0x80000000u, nullptr) < last) return "x86-64";
  std::array<unsigned, 12> words{};
  for (unsigned leaf = first; leaf <= last; ++leaf) {
    unsigned* const at = &words[(leaf - first) * 4];
    __get_cpuid(leaf, &at[0], &at[1], &at[2], &at[3]);
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  const std::string padded(text.data());
  const std::size_t from = padded.find_first_not_of(' ');
  if (from == std::string::npos) return "x86-64";
  return padded.substr(from, padded.find_last_not_of(' ') - from + 1);
}

std::vector<std::string> cpu_isa() {
  __builtin_cpu_init();
  std::vector<std::string> isa;
  // The operating system's part (saved registers) is in these answers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
  // AMD multiplies pairs of bf16 at twice the rate of f32; Intel at half of it (measured: 102
  // against 196 GFLOP/s on two cores of a Xeon of 2023), so there it is only taken when it is asked
  // for.
  const bool pairs = avx512 && __builtin_cpu_supports("avx512bf16");
  const bool fast_pairs = pairs && __builtin_cpu_is("amd");
  if (fast_pairs) isa.emplace_back("avx512_bf16");
  if (avx512) isa.emplace_back("avx512");
  if (pairs && !fast_pairs) isa.emplace_back("avx512_bf16");
  if (avx2) isa.emplace_back("avx2");
  isa.emplace_back("scalar");
  return isa;
}

#elif defined(__aarch64__)

std::string cpu_name() { return "AArch64"; }
std::vector<std::string> cpu_isa() { return {"neon", "scalar"}; }  // all have it

#else

std::string cpu_name() { return "CPU"; }
std::vector<std::string> cpu_isa() { return {"scalar"}; }

#endif

}  // namespace fovea
