#include "attention/described_device.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "attention/device.h"
#include "attention/refuse.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr std::size_t largest_description = std::size_t{1} << 16;  // bytes; a real one has 600
constexpr int deepest = 3;

// In the form that cuDNN's frontend writes, so that cuDNN can plan for the device too. As an H200
// reports itself.
constexpr const char* h200 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"totalGlobalMem":150109880320,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":900,)"
    R"("driverVer":13000,"deviceName":"NVIDIA H200"})";

// As their data sheets have them.
constexpr const char* a100 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":108,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":166912,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"totalGlobalMem":84975812608,"smClockRateKHz":1410000,)"
    R"("memClockRateKHz":1593000,"l2CacheSize":41943040,"cudaDeviceId":0,"deviceVer":800,)"
    R"("driverVer":13000,"deviceName":"NVIDIA A100-SXM4-80GB"})";

constexpr const char* b200 =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":148,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
    R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":6,"isTccDriver":0,)"
    R"("supportCoopLaunch":1,"totalGlobalMem":191126175744,"smClockRateKHz":1965000,)"
    R"("memClockRateKHz":3996000,"l2CacheSize":132644864,"cudaDeviceId":0,"deviceVer":1000,)"
    R"("driverVer":13000,"deviceName":"NVIDIA B200"})";

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

}  // namespace

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

std::vector<std::string> built_in_devices() { return {"a100", "h200", "b200"}; }

std::optional<std::string> built_in_description(const std::string& name) {
  if (name == "a100") return a100;
  if (name == "h200") return h200;
  if (name == "b200") return b200;
  return std::nullopt;
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

}  // namespace fovea
