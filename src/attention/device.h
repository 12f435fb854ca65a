// Where attention runs: the CPU of this machine, a GPU in it, or a described GPU that need not be
// here. A plain value, part of every plan's key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fovea {

enum class DeviceKind : std::uint8_t { Cpu, Cuda };

struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  int ordinal = 0;         // of a GPU that is here
  bool described = false;  // from a description: plans can be made for it, not run
  std::string name;        // "AMD EPYC ...", "NVIDIA H200"

  // CPU: what the compiler may use, best first.
  std::vector<std::string> isa;  // "avx512_bf16", "avx512", "avx2", "neon", "scalar"
  int threads = 1;

  // CUDA.
  int sm = 0;  // compute capability, 90 for 9.0
  int multiprocessors = 0;
  std::int64_t shared_memory_per_block = 0;  // opt-in maximum
  std::int64_t memory_bytes = 0;
  std::string description;  // the JSON text it came from, canonical

  bool operator==(const Device&) const = default;
  std::uint64_t hash() const;
};

// The CPU of this machine, detected once.
const Device& cpu_device();

// `cpu`, a built-in name (`a100`, `h200`, `b200`), or the path of a JSON description. Throws
// InvalidArgument that says what is known. cuda::find_device also finds the GPUs of this machine.
Device find_device(const std::string& name);

// A description as text: {"deviceName": ..., "deviceVer": 900, ...}. Throws InvalidArgument.
Device parse_device(const std::string& json);

std::vector<std::string> built_in_devices();

// The JSON text of a built-in description, such as h200.
std::optional<std::string> built_in_description(const std::string& name);

}  // namespace fovea
