#include "cuda/driver.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"

namespace fovea::cuda {
namespace {

struct Loaded {
  Driver driver{};
  std::string problem;
};

bool find_all(void* library, Driver& d) {
  find_function(library, "cuTensorMapEncodeTiled", d.encode_tensor_map);
  find_function(library, "cuLaunchKernelEx", d.launch_overlapping);
  bool all = true;
#define FOVEA_DRIVER_CALL(field, name, ...) all = find_function(library, name, d.field) && all;
  FOVEA_DRIVER_CALLS(FOVEA_DRIVER_CALL)
#undef FOVEA_DRIVER_CALL
  return all;
}

// The library stays loaded for ever: other libraries of the process hold pointers into it.
Loaded load() {
  Loaded loaded;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.problem = "no NVIDIA driver: libcuda.so.1 cannot be loaded";
    return loaded;
  }
  if (!find_all(library, loaded.driver)) {
    loaded.problem = "the NVIDIA driver is too old, or libcuda.so.1 is a stand-in";
    return loaded;
  }
  if (const Result result = loaded.driver.init(0); result != 0) {
    loaded.problem = "the NVIDIA driver does not start: cuInit gives " + std::to_string(result);
    return loaded;
  }
  int version = 0;
  if (loaded.driver.driver_version(&version) != 0 || version < 12030) {
    loaded.driver.launch_overlapping = nullptr;
  }
  loaded.driver.library = library;
  return loaded;
}

const Loaded& loaded() {
  static const Loaded& once = *new Loaded(load());
  return once;
}

Handle retain_primary(int ordinal) {
  int device = -1;
  check(driver()->device_get(&device, ordinal), "cuDeviceGet");
  Handle context = nullptr;
  check(driver()->primary_context(&context, device), "cuDevicePrimaryCtxRetain");
  return context;
}

// Kept for the life of the process: to retain and release one at each call costs more than a small
// call's launch. Of two threads that come first both retain it, which is harmless.
Handle primary_of(int ordinal) {
  static std::array<std::atomic<Handle>, 64> kept{};
  const auto at = static_cast<std::size_t>(ordinal);
  if (at >= kept.size()) return retain_primary(ordinal);
  Handle context = kept[at].load(std::memory_order_acquire);
  if (context == nullptr) {
    context = retain_primary(ordinal);
    kept[at].store(context, std::memory_order_release);
  }
  return context;
}

}  // namespace

const Driver* driver() { return loaded().problem.empty() ? &loaded().driver : nullptr; }

const std::string& driver_problem() { return loaded().problem; }

void check(Result result, const char* call) {
  if (result == 0) return;
  const char* name = "unknown error";
  if (driver() != nullptr) driver()->error_name(result, &name);
  throw DeviceError(std::string("CUDA driver: ") + call + " gives " + std::to_string(result) +
                    " (" + name + ")");
}

bool is_capturing(Handle stream) {
  int status = 0;
  return driver() != nullptr && driver()->is_capturing(stream, &status) == 0 && status != 0;
}

OnDevice::OnDevice(int ordinal) {
  const Driver& d = *driver();
  Handle current = nullptr;
  check(d.current_context(&current), "cuCtxGetCurrent");
  int device = -1;
  if (current != nullptr && d.context_device(&device) == 0 && device == ordinal) return;
  check(d.push_context(primary_of(ordinal)), "cuCtxPushCurrent");
  pushed_ = true;
}

OnDevice::~OnDevice() {
  Handle popped = nullptr;
  if (pushed_) driver()->pop_context(&popped);
}

namespace {

// Values of cuda.h.
constexpr int type_u16 = 1, type_u32 = 2, no_interleave = 0, swizzle_128 = 3, promote_256 = 3,
              fill_zeros = 0;

struct alignas(64) Encoded {
  std::array<std::byte, 128> bytes;
};

Encoded encode(const TensorMapSpec& spec) {
  if (driver() == nullptr || driver()->encode_tensor_map == nullptr) {
    throw DeviceError("this driver makes no tensor maps");
  }
  Encoded map;
  const std::array<std::uint32_t, 5> steps{1, 1, 1, 1, 1};
  check(driver()->encode_tensor_map(&map, spec.element_bytes == 4 ? type_u32 : type_u16, spec.rank,
                                    const_cast<void*>(spec.data), spec.extents.data(),
                                    spec.stride_bytes.data(), spec.box.data(), steps.data(),
                                    no_interleave, swizzle_128, promote_256, fill_zeros),
        "cuTensorMapEncodeTiled");
  return map;
}

struct Remembered {
  TensorMapSpec spec;
  Encoded map;
};
constexpr std::size_t most_remembered = 64;  // a power of two
thread_local std::array<Remembered, most_remembered> remembered;

std::size_t slot_of(const TensorMapSpec& spec) {
  const auto address = reinterpret_cast<std::uintptr_t>(spec.data);
  const std::uint64_t mixed =
      (address >> 4 ^ spec.extents[1] << 20 ^ spec.box[1] << 3) * 0x9e3779b97f4a7c15u;
  return mixed >> 58;
}

}  // namespace

void write_tensor_map(const TensorMapSpec& spec, void* to) {
  Remembered& slot = remembered[slot_of(spec)];
  if (slot.spec.data == nullptr || !(slot.spec == spec)) slot = {spec, encode(spec)};
  std::memcpy(to, &slot.map, sizeof slot.map);
}

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

// The facts of a GPU do not change. Asking the driver takes longer than a small call, so it is
// asked once.
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
