#include "attention/device.h"

#include <algorithm>
#include <charconv>

#include "attention/cpu.h"
#include "attention/described_device.h"
#include "attention/refuse.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/words.h"

namespace fovea {
namespace {

std::uint64_t hash_text(std::uint64_t seed, const std::string& text) {
  seed = hash_combine(seed, text.size());
  for (const char c : text) seed = hash_combine(seed, static_cast<unsigned char>(c));
  return seed;
}

// FOVEA_CPU_ISA leaves out what is better than it.
std::vector<std::string> chosen_isa() {
  std::vector<std::string> isa = cpu_isa();
  const auto asked = env_value(Env::CpuIsa);
  if (!asked) return isa;
  const std::vector<std::string> known{"scalar", "neon", "avx2", "avx512", "avx512_bf16"};
  if (std::ranges::find(known, *asked) == known.end()) {
    refuse(env_name(Env::CpuIsa), *asked,
           "must be scalar, neon, avx2, avx512 or avx512_bf16" + did_you_mean(*asked, known));
  }
  const auto at = std::ranges::find(isa, *asked);
  if (at == isa.end()) {
    refuse(env_name(Env::CpuIsa), *asked, "this machine lacks it; its best is " + isa.front());
  }
  isa.erase(isa.begin(), at);
  return isa;
}

int chosen_threads() {
  constexpr int most = 4096;
  const auto asked = env_value(Env::NumThreads);
  if (!asked) return usable_threads();
  int threads = 0;
  const char* const last = asked->data() + asked->size();
  const auto [end, error] = std::from_chars(asked->data(), last, threads);
  if (end != last || error != std::errc{} || threads < 1 || threads > most) {
    refuse(env_name(Env::NumThreads), *asked, "must be a whole number from 1 to 4096");
  }
  return threads;
}

Device detect_cpu() {
  Device device;
  device.kind = DeviceKind::Cpu;
  device.name = cpu_name();
  device.isa = chosen_isa();
  device.threads = chosen_threads();
  return device;
}

[[noreturn]] void refuse_cuda(const std::string& name) {
  const bool numbered = name.starts_with("cuda:") && name.size() > 5 &&
                        name.find_first_not_of("0123456789", 5) == std::string::npos;
  if (name != "cuda" && !numbered) {
    refuse("device", name.substr(0, 64), "a GPU is named cuda:N, N being its number");
  }
  throw DeviceError("device " + name.substr(0, 64) +
                    ": GPUs of this machine are found by src/cuda. To ask about one that is not "
                    "here, name a description: a100, h200, b200, or the path of a JSON file");
}

}  // namespace

std::uint64_t Device::hash() const {
  std::uint64_t h = hash_combine(static_cast<std::uint64_t>(kind), described ? 1 : 0);
  h = hash_text(h, name);
  for (const std::string& set : isa) h = hash_text(h, set);
  for (const std::int64_t x :
       {std::int64_t{ordinal}, std::int64_t{threads}, std::int64_t{sm},
        std::int64_t{multiprocessors}, shared_memory_per_block, memory_bytes}) {
    h = hash_combine(h, static_cast<std::uint64_t>(x));
  }
  return hash_text(h, description);
}

const Device& cpu_device() {
  static const Device device = detect_cpu();
  return device;
}

Device find_device(const std::string& name) {
  if (name == "cpu") return cpu_device();
  if (name.starts_with("cuda") && name.find_first_of("/.") == std::string::npos) refuse_cuda(name);
  if (const auto text = built_in_description(name)) return parse_device(*text);
  if (name.ends_with(".json") || name.find('/') != std::string::npos) {
    return parse_device(read_description(name));
  }
  std::vector<std::string> known = built_in_devices();
  known.insert(known.begin(), "cpu");
  refuse("device", name.substr(0, 64),
         "is not cpu, cuda:N, a100, h200, b200 or the path of a JSON description" +
             did_you_mean(name, known));
}

}  // namespace fovea
