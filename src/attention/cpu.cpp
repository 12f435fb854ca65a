#include "attention/cpu.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fovea {
namespace {

std::optional<std::string> first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// Microseconds of processor time per period, rounded up to processors; 0 if unlimited.
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

namespace {

// ---- what the OpenMP runtimes in this process bind threads to ----

// libgomp.so.1 (GNU), libomp.so.5 (LLVM), libiomp5.so (Intel), also as wheels rename them
// (libgomp-a34b3233.so.1).
bool is_runtime(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("libgomp") || name.starts_with("libomp") || name.starts_with("libiomp");
}

int add_runtime(dl_phdr_info* info, std::size_t, void* paths) {
  if (info->dlpi_name != nullptr && is_runtime(info->dlpi_name)) {
    static_cast<std::vector<std::string>*>(paths)->emplace_back(info->dlpi_name);
  }
  return 0;
}

// The functions of OpenMP 4.5 that report places. A library whose name only begins alike (libompt,
// for debuggers) lacks them.
struct Runtime {
  int (*count)() = nullptr;
  int (*processors)(int place) = nullptr;
  void (*numbers)(int place, int* into) = nullptr;

  explicit Runtime(void* library) {
    find(library, "omp_get_num_places", count);
    find(library, "omp_get_place_num_procs", processors);
    find(library, "omp_get_place_proc_ids", numbers);
  }
  bool complete() const { return count != nullptr && processors != nullptr && numbers != nullptr; }

  std::vector<Cpus> places() const {
    std::vector<Cpus> out;
    for (int place = 0, last = count(); place < last; ++place) {
      Cpus cpus(static_cast<std::size_t>(std::max(0, processors(place))));
      if (!cpus.empty()) numbers(place, cpus.data());
      std::ranges::sort(cpus);
      out.push_back(std::move(cpus));
    }
    return out;
  }

 private:
  template <class Function>
  static void find(void* library, const char* name, Function& into) {
    into = reinterpret_cast<Function>(dlsym(library, name));
  }
};

std::vector<std::vector<Cpus>> openmp_places() {
  std::vector<std::string> paths;
  dl_iterate_phdr(add_runtime, &paths);
  std::vector<std::vector<Cpus>> all;
  const auto ask = [&] {
    for (const std::string& path : paths) {
      void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
      if (library == nullptr) continue;
      const Runtime runtime(library);
      if (runtime.complete()) all.push_back(runtime.places());
      dlclose(library);
    }
    // A single place is the whole process and tells nothing.
    std::erase_if(all, [](const std::vector<Cpus>& places) { return places.size() < 2; });
  };
  if (paths.empty()) return all;
  // LLVM's and Intel's runtimes bind any thread that calls them, so a new thread asks, not the
  // caller.
  try {
    std::thread(ask).join();
  } catch (const std::system_error&) {
    // If no thread can be started, none has to be bound either.
  }
  return all;
}

constexpr int most_cpus = 1 << 16;  // the kernel knows fewer

Cpus all_cpus() {
  const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Cpus cpus(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) cpus[static_cast<std::size_t>(i)] = i;
  return cpus;
}

// The kernel's form of them.
class CpuSet {
 public:
  explicit CpuSet(const Cpus& cpus) {
    const std::size_t most = cpus.empty() ? 1 : static_cast<std::size_t>(cpus.back()) + 1;
    words_.resize(CPU_ALLOC_SIZE(most) / sizeof(unsigned long));
    auto* const set = reinterpret_cast<cpu_set_t*>(words_.data());
    for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), set);
  }
  std::size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  const cpu_set_t* get() const { return reinterpret_cast<const cpu_set_t*>(words_.data()); }

 private:
  std::vector<unsigned long> words_;
};

void sort_out(Cpus& cpus) {
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
}

}  // namespace

Cpus parse_cpus(const std::string& list) {
  Cpus cpus;
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto number = [&](int& into) {
    const auto [next, error] = std::from_chars(at, end, into);
    at = next;
    return error == std::errc{} && into >= 0 && into < most_cpus;
  };
  while (at < end) {
    int first = 0;
    if (!number(first)) break;
    int last = first;
    if (at < end && *at == '-') {
      ++at;
      if (!number(last)) break;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (at < end) ++at;  // the comma
  }
  sort_out(cpus);
  return cpus;
}

Cpus cpus_of_thread(int id) {
  // The kernel refuses a set that is smaller than its own, whose size it does not tell.
  for (int size = 1024; size <= most_cpus; size *= 8) {
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    std::vector<unsigned long> words(bytes / sizeof(unsigned long));
    auto* const set = reinterpret_cast<cpu_set_t*>(words.data());
    if (sched_getaffinity(id, bytes, set) != 0) continue;
    Cpus cpus;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

bool bind_thread(int id, const Cpus& cpus) {
  const CpuSet set(cpus);
  return !cpus.empty() && sched_setaffinity(id, set.bytes(), set.get()) == 0;
}

bool start_thread_on(std::thread& thread, int cpu, const Cpus& cpus) {
  const CpuSet one({cpu}), all(cpus);
  pthread_setaffinity_np(thread.native_handle(), one.bytes(), one.get());
  return pthread_setaffinity_np(thread.native_handle(), all.bytes(), all.get()) == 0;
}

Cpus widened(const Cpus& main, const std::vector<Cpus>& places) {
  if (std::ranges::find(places, main) == places.end()) return main;
  Cpus all;
  for (const Cpus& place : places) all.insert(all.end(), place.begin(), place.end());
  sort_out(all);
  return all;
}

ProcessCpus process_cpus(const ProcessCpus& before) {
  ProcessCpus now;
  now.main = cpus_of_thread(getpid());
  if (now.main.empty()) now.main = cpus_of_thread(0);  // the main thread has ended
  if (!before.all.empty() && now.main == before.main) return before;
  now.all = now.main;
  if (now.main.empty()) {
    now.all = all_cpus();
  } else if (static_cast<int>(now.main.size()) < get_nprocs_conf()) {
    for (const std::vector<Cpus>& places : openmp_places()) now.all = widened(now.all, places);
  }
  return now;
}

MemoryNodes memory_nodes(const Cpus& cpus, const std::filesystem::path& root) {
  MemoryNodes nodes;
  nodes.count = 0;
  std::error_code error;
  std::vector<std::pair<int, Cpus>> found;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    int number = 0;
    if (!name.starts_with("node") ||
        std::from_chars(name.data() + 4, name.data() + name.size(), number).ec != std::errc{}) {
      continue;
    }
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    found.emplace_back(number, parse_cpus(list));
  }
  std::ranges::sort(found);
  for (const auto& [number, of_node] : found) {
    Cpus ours;
    std::ranges::set_intersection(of_node, cpus, std::back_inserter(ours));
    if (ours.empty()) continue;
    for (const int cpu : of_node) {
      const auto at = static_cast<std::size_t>(cpu);
      if (nodes.of_cpu.size() <= at) nodes.of_cpu.resize(at + 1, 0);
      nodes.of_cpu[at] = nodes.count;
    }
    ++nodes.count;
  }
  nodes.count = std::max(1, nodes.count);
  return nodes;
}

}  // namespace fovea
