#include "cli/check/placed.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

namespace fovea::cli {
namespace {

constexpr std::size_t guard = 256, alignment = 64;
constexpr unsigned char poison_byte = 0xff;  // a NaN in every float type

}  // namespace

Placement Placement::dense(std::string dtype, std::vector<std::int64_t> extents) {
  std::vector<std::int64_t> strides(extents.size());
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(extents[i], 1);
  }
  return {std::move(dtype), std::move(extents), std::move(strides)};
}

Placed::Placed(Placement placement) : placement_(std::move(placement)) {
  std::int64_t below = 0, above = 1;  // elements before and from the one at data()
  bool empty = false;
  for (std::size_t i = 0; i < placement_.extents.size(); ++i) {
    const std::int64_t reach = (placement_.extents[i] - 1) * placement_.strides[i];
    empty = empty || placement_.extents[i] == 0;
    (reach < 0 ? below : above) += std::abs(reach);
  }
  if (empty) below = above = 0;
  element_ = static_cast<std::size_t>(element_size(placement_.dtype));
  const std::size_t size = static_cast<std::size_t>(below + above) * element_;
  bytes_.assign(size + 2 * guard + 2 * alignment, poison_byte);
  // Aligned as promised and not a bit more: 64 bytes past a multiple of 128.
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + guard;
  const std::size_t up = (3 * alignment - address % (2 * alignment)) % (2 * alignment);
  start_ = guard + up + static_cast<std::size_t>(below) * element_;
}

Placed::Placed(Placement placement, const Array& values) : Placed(std::move(placement)) {
  replace(values);
}

void* Placed::data() {
  if (bytes_.empty()) return nullptr;
  return (gpu_ != nullptr ? there_ : bytes_.data()) + start_;
}

void Placed::put_on(Gpu& gpu) {
  if (bytes_.empty()) return;
  gpu_ = &gpu;
  block_ = gpu.allocate(bytes_.size() + 2 * alignment);
  // Aligned there as here.
  const auto here = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const auto there = reinterpret_cast<std::uintptr_t>(block_.get());
  const std::size_t up = (here - there) % (2 * alignment);
  there_ = static_cast<unsigned char*>(block_.get()) + up;
  send();
}

void Placed::send() {
  if (gpu_ != nullptr) gpu_->send(there_, bytes_.data(), bytes_.size());
}

void Placed::replace(const Array& values) {
  each_run([&](const Run& run) {
    std::memcpy(bytes_.data() + run.at, values.bytes.data() + run.dense, run.bytes);
  });
  before_ = bytes_;
  send();
}

void Placed::fetch() {
  if (gpu_ != nullptr) gpu_->fetch(bytes_.data(), there_, bytes_.size());
}

template <class Visit>
void Placed::each_run(Visit visit) const {
  const auto& [dtype, extents, strides] = placement_;
  std::size_t rank = extents.size();  // of the dimensions that are not part of a run
  std::int64_t length = 1;
  while (rank > 0 && (extents[rank - 1] == 1 || strides[rank - 1] == length)) {
    length *= extents[--rank];
  }
  const std::size_t bytes = static_cast<std::size_t>(length) * element_;
  std::int64_t count = bytes == 0 ? 0 : 1;
  for (std::size_t d = 0; d < rank; ++d) count *= extents[d];
  std::vector<std::int64_t> index(rank);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(Run{static_cast<std::size_t>(i) * bytes,
              start_ + static_cast<std::size_t>(offset * static_cast<std::int64_t>(element_)),
              bytes});
    for (std::size_t d = rank; d-- > 0;) {  // the next index, last dimension fastest
      offset += strides[d];
      if (++index[d] < extents[d]) break;
      offset -= strides[d] * extents[d];
      index[d] = 0;
    }
  }
}

Array Placed::take() const {
  Array array = zeros(placement_.dtype, placement_.extents);
  each_run([&](const Run& run) {
    std::memcpy(array.bytes.data() + run.dense, bytes_.data() + run.at, run.bytes);
  });
  return array;
}

void Placed::poison() {
  each_run([&](const Run& run) { std::memset(bytes_.data() + run.at, poison_byte, run.bytes); });
}

bool Placed::surroundings_untouched() const {
  std::vector<unsigned char> rest = bytes_;
  each_run([&](const Run& run) { std::memset(rest.data() + run.at, poison_byte, run.bytes); });
  // If the first byte is poison, and each equals the one behind it, all are.
  return rest.empty() || (rest[0] == poison_byte &&
                          std::memcmp(rest.data(), rest.data() + 1, rest.size() - 1) == 0);
}

bool Placed::bytes_untouched() const { return bytes_ == before_; }

bool Placed::has_unwritten_element() const {
  constexpr unsigned char poison[] = {poison_byte, poison_byte, poison_byte, poison_byte,
                                      poison_byte, poison_byte, poison_byte, poison_byte};
  bool found = false;
  each_run([&](const Run& run) {
    for (std::size_t i = 0; i < run.bytes && !found; i += element_) {
      found = std::memcmp(bytes_.data() + run.at + i, poison, element_) == 0;
    }
  });
  return found;
}

// Signatures follow cuda.h.
struct Gpu::Driver {
  int (*init)(unsigned);
  int (*get)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(std::uint64_t*, std::size_t);
  int (*release)(std::uint64_t);
  int (*to_device)(std::uint64_t, const void*, std::size_t);
  int (*to_host)(void*, std::uint64_t, std::size_t);
  int (*synchronize)();
};

namespace {

template <class F>
void look_up(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr) throw std::runtime_error(std::string("the driver has no ") + name);
}

}  // namespace

Gpu::Gpu(int ordinal) : driver_(std::make_shared<Driver>()) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) throw std::runtime_error("no NVIDIA driver: libcuda.so.1 is not here");
  Driver& d = *driver_;
  look_up(library, "cuInit", d.init);
  look_up(library, "cuDeviceGet", d.get);
  look_up(library, "cuDevicePrimaryCtxRetain", d.retain);
  look_up(library, "cuCtxSetCurrent", d.set_current);
  look_up(library, "cuMemAlloc_v2", d.allocate);
  look_up(library, "cuMemFree_v2", d.release);
  look_up(library, "cuMemcpyHtoD_v2", d.to_device);
  look_up(library, "cuMemcpyDtoH_v2", d.to_host);
  look_up(library, "cuCtxSynchronize", d.synchronize);
  check(d.init(0), "cuInit");
  int device = 0;
  check(d.get(&device, ordinal), "cuDeviceGet");
  void* context = nullptr;
  check(d.retain(&context, device), "cuDevicePrimaryCtxRetain");
  check(d.set_current(context), "cuCtxSetCurrent");
}

Gpu* Gpu::find(const std::string& device) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Gpu>>& known =
      *new std::map<std::string, std::unique_ptr<Gpu>>;
  if (!device.starts_with("cuda")) return nullptr;
  const std::lock_guard lock(mutex);
  auto& gpu = known[device];
  if (!gpu) gpu.reset(new Gpu(device.size() > 5 ? std::stoi(device.substr(5)) : 0));
  return gpu.get();
}

void Gpu::check(int result, const char* call) const {
  if (result == 0) return;
  throw std::runtime_error(std::string("CUDA driver: ") + call + " gives " +
                           std::to_string(result));
}

Gpu::Block Gpu::allocate(std::size_t bytes) {
  std::uint64_t address = 0;
  check(driver_->allocate(&address, bytes), "cuMemAlloc");
  return Block(reinterpret_cast<void*>(address), [driver = driver_](void* block) {
    driver->release(reinterpret_cast<std::uint64_t>(block));
  });
}

void Gpu::send(void* to, const void* from, std::size_t bytes) {
  check(driver_->to_device(reinterpret_cast<std::uint64_t>(to), from, bytes), "cuMemcpyHtoD");
}

void Gpu::fetch(void* to, const void* from, std::size_t bytes) {
  check(driver_->to_host(to, reinterpret_cast<std::uint64_t>(from), bytes), "cuMemcpyDtoH");
}

void Gpu::wait() { check(driver_->synchronize(), "cuCtxSynchronize"); }

}  // namespace fovea::cli
