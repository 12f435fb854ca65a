// Workspaces on the host for calls that bring none, kept for the next call: fresh pages cost more
// than a small call does. Used by fovea._core and by the XLA handlers, which have no scratch memory
// on the host.
#pragma once

#include <cstddef>
#include <memory>

namespace fovea_host {

struct Free {
  void operator()(void* memory) const;
};

// Lent for as long as it lives. Never waits: if another thread holds the lock of the pool, or a
// fork has left it locked, memory comes from the system.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes);  // throws std::bad_alloc
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::unique_ptr<void, Free> memory_;
  std::size_t size_ = 0;
};

// Gives the memory in the pool back to the system; returns how many bytes.
std::size_t release_workspaces();

}  // namespace fovea_host
