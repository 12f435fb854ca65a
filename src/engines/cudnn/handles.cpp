#include "engines/cudnn/handles.h"

#include <array>
#include <mutex>
#include <new>
#include <vector>

#include "base/error.h"
#include "cuda/driver.h"
#include "engines/cudnn/graph.h"

namespace fovea::cudnn {
namespace {

constexpr std::size_t most_devices = 64;

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

struct OwnHandle {
  void* handle = nullptr;
  void* stream = nullptr;
  bool stream_is_set =
      false;  // if not, the handle may have any stream, such as that of an earlier thread
};

// The handles of a thread. When the thread ends, other threads may take them, so that a program
// with a thread for each request does not make a handle for each. No function of cuDNN is called
// then: it may be unloaded.
struct OwnHandles {
  std::array<OwnHandle, most_devices> by_device{};
  ~OwnHandles() {
    Spares& all = spares();
    const std::lock_guard lock(all.mutex);
    for (std::size_t device = 0; device < most_devices; ++device) {
      if (by_device[device].handle == nullptr) continue;
      try {
        all.handles[device].push_back(by_device[device].handle);
      } catch (const std::bad_alloc&) {  // then the handle is lost
      }
    }
  }
};
thread_local OwnHandles own_handles;

std::size_t place(int ordinal) {
  const auto device = static_cast<std::size_t>(ordinal);
  if (device >= most_devices) throw DeviceError("engine cudnn knows the first 64 GPUs");
  return device;
}

}  // namespace

void* handle_for(int ordinal, void* stream) {
  OwnHandle& own = own_handles.by_device[place(ordinal)];
  if (own.handle == nullptr) {
    own.handle = take_spare(place(ordinal));
    if (own.handle == nullptr && cuda::is_capturing(stream)) {
      throw DeviceError(
          "cuDNN: this thread has no handle yet, and none can be made while a CUDA graph is "
          "captured: run the plan once on this thread before");
    }
    if (own.handle == nullptr) own.handle = create_handle();
  }
  if (!own.stream_is_set || own.stream != stream) {
    own.stream_is_set = false;
    set_stream(own.handle, stream);
    own.stream = stream;
    own.stream_is_set = true;
  }
  return own.handle;
}

void prepare_handles(int ordinal) {
  const std::size_t device = place(ordinal);
  if (own_handles.by_device[device].handle == nullptr) handle_for(ordinal, nullptr);
  Spares& all = spares();
  {
    const std::lock_guard lock(all.mutex);
    if (!all.handles[device].empty()) return;
  }
  void* const spare = create_handle();  // takes milliseconds, so the lock is not held
  const std::lock_guard lock(all.mutex);
  all.handles[device].push_back(spare);
}

}  // namespace fovea::cudnn
