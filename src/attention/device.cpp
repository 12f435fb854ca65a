#include "attention/device.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "attention/cpu.h"
#include "attention/refuse.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/words.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr std::size_t largest_description = std::size_t{1} << 16;  // bytes; a real one has 600
constexpr int deepest = 3;

// The numbers in which the built-in descriptions differ. The H200's are as it reports itself, the
// others as in their data sheets.
struct BuiltIn {
  const char* name;
  int multiprocessors;
  int shared_memory;  // per block, opt-in
  std::int64_t memory;
  int sm_clock, memory_clock;  // kHz
  int l2_cache, version;
  const char* device;
};
constexpr std::array<BuiltIn, 3> built_in{{
    {"a100", 108, 166912, 84975812608, 1410000, 1593000, 41943040, 800, "NVIDIA A100-SXM4-80GB"},
    {"h200", 132, 232448, 150109880320, 1980000, 3201000, 62914560, 900, "NVIDIA H200"},
    {"b200", 148, 232448, 191126175744, 1965000, 3996000, 132644864, 1000, "NVIDIA B200"},
}};

// In the form that cuDNN's frontend writes, so that cuDNN can plan for the device too.
std::string description_of(const BuiltIn& d) {
  const auto number = [](std::int64_t x) { return std::to_string(x); };
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
         R"("regsPerBlock":65536,"multiProcessorCount":)" +
         number(d.multiprocessors) +
         R"(,"warpSize":32,"maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":)" +
         number(d.shared_memory) +
         R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"totalGlobalMem":)" +
         number(d.memory) + R"(,"smClockRateKHz":)" + number(d.sm_clock) +
         R"(,"memClockRateKHz":)" + number(d.memory_clock) + R"(,"l2CacheSize":)" +
         number(d.l2_cache) + R"(,"cudaDeviceId":0,"deviceVer":)" + number(d.version) +
         R"(,"driverVer":13000,"deviceName":")" + d.device + R"("})";
}

[[noreturn]] void refuse_description(const std::string& rule) {
  throw InvalidArgument("device description: " + rule);
}

Json parse_json(const std::string& text) {
  if (text.size() > largest_description) {
    refuse_description("has " + std::to_string(text.size()) + " bytes; at most " +
                       std::to_string(largest_description) + " are read");
  }
  // Depth is bounded while reading: printing a value recurses.
  const auto bound_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > deepest) refuse_description("is nested too deeply");
    return true;
  };
  try {
    return Json::parse(text, bound_depth);
  } catch (const Json::exception& error) {
    refuse_description(std::string("is not JSON: ") + error.what());
  }
}

std::int64_t number(const Json& json, const char* key, std::int64_t largest) {
  const auto at = json.find(key);
  if (at == json.end()) refuse_description(std::string("lacks \"") + key + "\"");
  const bool whole = at->is_number_unsigned() && at->get<std::uint64_t>() >= 1 &&
                     at->get<std::uint64_t>() <= static_cast<std::uint64_t>(largest);
  if (!whole) {
    refuse_description(std::string("\"") + key + "\" must be a whole number from 1 to " +
                       std::to_string(largest) + ", got " + at->dump().substr(0, 64));
  }
  return at->get<std::int64_t>();
}

std::string read_description(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    refuse("device", path.substr(0, 256), "there is no such file");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(largest_description + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    refuse("device", path.substr(0, 256), "the file cannot be read");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
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
  const std::string rule = "must be a whole number from 1 to " + std::to_string(most);
  const int threads = parse_number<int>(env_name(Env::NumThreads), *asked, rule);
  if (threads < 1 || threads > most) refuse(env_name(Env::NumThreads), *asked, rule);
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
  if (name.starts_with("cuda") && name.find_first_of("/.") == std::string::npos) {
    refuse("device", name.substr(0, 64), "a GPU is named cuda:N, N being its number");
  }
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

Device parse_device(const std::string& text) {
  const Json json = parse_json(text);
  if (!json.is_object()) refuse_description("must be an object, got " + text.substr(0, 64));
  const auto name = json.find("deviceName");
  if (name == json.end() || !name->is_string()) refuse_description("lacks a \"deviceName\"");
  Device device;
  device.kind = DeviceKind::Cuda;
  device.described = true;
  device.name = name->get<std::string>();
  device.sm = static_cast<int>(number(json, "deviceVer", 9999) / 10);  // 900 is 9.0, sm_90
  device.multiprocessors = static_cast<int>(number(json, "multiProcessorCount", 1 << 16));
  device.shared_memory_per_block = number(json, "maxSharedMemoryPerBlockOptin", 1 << 30);
  device.memory_bytes = number(json, "totalGlobalMem", std::int64_t{1} << 50);
  device.description = json.dump();  // keys sorted, no spaces
  return device;
}

std::vector<std::string> built_in_devices() {
  std::vector<std::string> names;
  for (const BuiltIn& device : built_in) names.emplace_back(device.name);
  return names;
}

std::optional<std::string> built_in_description(const std::string& name) {
  for (const BuiltIn& device : built_in) {
    if (device.name == name) return description_of(device);
  }
  return std::nullopt;
}

}  // namespace fovea
