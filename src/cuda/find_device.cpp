#include "cuda/find_device.h"

#include <array>
#include <charconv>
#include <map>
#include <mutex>

#include "base/error.h"
#include "cuda/driver.h"

namespace fovea::cuda {
namespace {

// CU_DEVICE_ATTRIBUTE_...
constexpr int multiprocessor_count = 16;
constexpr int capability_major = 75;
constexpr int capability_minor = 76;
constexpr int shared_memory_opt_in = 97;

int attribute(int device, int which) {
  int value = 0;
  check(driver()->device_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

// -1: not a GPU's name.
int ordinal_of(const std::string& name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return -1;
  int ordinal = -1;
  const char* const last = name.data() + name.size();
  const auto [end, error] = std::from_chars(name.data() + 5, last, ordinal);
  return end == last && error == std::errc{} ? ordinal : -1;
}

[[noreturn]] void refuse_absent(int ordinal) {
  const std::string name = "device cuda:" + std::to_string(ordinal) + ": ";
  const std::string advice =
      ". To ask about a GPU that is not here, name a description: a100, h200, b200, or the path of a "
      "JSON file";
  if (driver() == nullptr) throw DeviceError(name + driver_problem() + advice);
  throw DeviceError(name + "this machine has " + std::to_string(device_count()) + " GPUs" + advice);
}

Device describe(int ordinal) {
  const Driver& d = *driver();
  int handle = 0;
  check(d.device_get(&handle, ordinal), "cuDeviceGet");
  std::array<char, 256> name{};
  check(d.device_name(name.data(), static_cast<int>(name.size()), handle), "cuDeviceGetName");
  std::size_t bytes = 0;
  check(d.device_memory(&bytes, handle), "cuDeviceTotalMem");
  Device device;
  device.kind = DeviceKind::Cuda;
  device.ordinal = ordinal;
  device.name = name.data();
  device.sm = 10 * attribute(handle, capability_major) + attribute(handle, capability_minor);
  device.multiprocessors = attribute(handle, multiprocessor_count);
  device.shared_memory_per_block = attribute(handle, shared_memory_opt_in);
  device.memory_bytes = static_cast<std::int64_t>(bytes);
  return device;
}

// What a GPU is does not change: the driver is asked once, which takes it longer than a small call.
Device known(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Device>& devices = *new std::map<int, Device>;
  const std::lock_guard lock(mutex);
  const auto at = devices.find(ordinal);
  return at != devices.end() ? at->second
                             : devices.emplace(ordinal, describe(ordinal)).first->second;
}

}  // namespace

int device_count() {
  int count = 0;
  if (driver() != nullptr && driver()->device_count(&count) != 0) count = 0;
  return count;
}

Device find_device(const std::string& name) {
  const int ordinal = ordinal_of(name);
  if (ordinal < 0) return fovea::find_device(name);
  if (ordinal >= device_count()) refuse_absent(ordinal);
  return known(ordinal);
}

}  // namespace fovea::cuda
