#include "engines/cudnn/handles.h"

#include <array>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "cuda/driver.h"
#include "engines/cudnn/graph.h"

namespace fovea::cudnn {
namespace {

constexpr std::size_t most_devices = 64;

struct OwnHandle {
  void* handle = nullptr;
  void* stream = nullptr;
};
thread_local std::array<OwnHandle, most_devices> own_handles{};

struct Spares {
  std::mutex mutex;
  std::array<std::vector<void*>, most_devices> handles;
};
Spares& spares() {
  static Spares& process = *new Spares;
  return process;
}

void* take_spare(std::size_t device) {
  Spares& all = spares();
  const std::lock_guard lock(all.mutex);
  if (all.handles[device].empty()) return nullptr;
  void* const handle = all.handles[device].back();
  all.handles[device].pop_back();
  return handle;
}

std::size_t place(int ordinal) {
  const auto device = static_cast<std::size_t>(ordinal);
  if (device >= most_devices) throw DeviceError("engine cudnn knows the first 64 GPUs");
  return device;
}

}  // namespace

void* handle_for(int ordinal, void* stream) {
  OwnHandle& own = own_handles[place(ordinal)];
  if (own.handle == nullptr) {
    own.handle = take_spare(place(ordinal));
    if (own.handle == nullptr && cuda::is_capturing(stream)) {
      throw DeviceError(
          "cuDNN: this thread has no handle yet, and none can be made while a CUDA graph is "
          "captured: run the plan once on this thread before");
    }
    if (own.handle == nullptr) own.handle = create_handle();
    set_stream(own.handle, stream);
    own.stream = stream;
  }
  if (own.stream != stream) {
    set_stream(own.handle, stream);
    own.stream = stream;
  }
  return own.handle;
}

void prepare_handles(int ordinal) {
  const std::size_t device = place(ordinal);
  if (own_handles[device].handle == nullptr) handle_for(ordinal, nullptr);
  Spares& all = spares();
  const std::lock_guard lock(all.mutex);
  if (all.handles[device].empty()) all.handles[device].push_back(create_handle());
}

}  // namespace fovea::cudnn
