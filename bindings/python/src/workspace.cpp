#include "workspace.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace fovea_host {
namespace {

constexpr std::size_t alignment = 64;           // what the C interface asks for
constexpr std::size_t kept_bytes = 256u << 20;  // in the pool at most

struct Buffer {
  std::unique_ptr<void, Free> memory;
  std::size_t size = 0;
};

struct Pool {
  std::mutex mutex;
  std::vector<Buffer> buffers;
  std::size_t bytes = 0;
};

// Never destroyed: threads may still give memory back at exit.
Pool& pool() {
  static Pool& made = *new Pool;
  return made;
}

Buffer take(std::size_t bytes) {
  Pool& from = pool();
  const std::unique_lock lock(from.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  const auto fits = [&](const Buffer& buffer) { return buffer.size >= bytes; };
  const auto found = std::ranges::find_if(from.buffers, fits);
  if (found == from.buffers.end()) return {};
  Buffer buffer = std::move(*found);
  from.buffers.erase(found);
  from.bytes -= buffer.size;
  return buffer;
}

Buffer allocate(std::size_t bytes) {
  const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, size);
  if (memory == nullptr) throw std::bad_alloc();
  return {std::unique_ptr<void, Free>(memory), size};
}

}  // namespace

void Free::operator()(void* memory) const { std::free(memory); }

Workspace::Workspace(std::size_t bytes) {
  if (bytes == 0) return;
  Buffer buffer = take(bytes);
  if (buffer.memory == nullptr) buffer = allocate(bytes);
  memory_ = std::move(buffer.memory);
  size_ = buffer.size;
}

Workspace::~Workspace() {
  if (memory_ == nullptr) return;
  Pool& to = pool();
  const std::unique_lock lock(to.mutex, std::try_to_lock);
  if (!lock.owns_lock() || to.bytes + size_ > kept_bytes) return;
  // In order of size, so that a call takes the smallest that is large enough.
  const auto larger = [&](const Buffer& other) { return other.size > size_; };
  to.bytes += size_;
  to.buffers.insert(std::ranges::find_if(to.buffers, larger), {std::move(memory_), size_});
}

std::size_t release_workspaces() {
  std::vector<Buffer> released;
  Pool& from = pool();
  const std::lock_guard lock(from.mutex);
  released.swap(from.buffers);
  return std::exchange(from.bytes, 0);
}

}  // namespace fovea_host
