// Memory on the host that a call may scribble in, kept for the next one. Who uses it: run.cpp, for
// calls that bring none.
#pragma once

#include <cstddef>
#include <memory>

namespace fovea_python {

struct Free {
  void operator()(void* memory) const;
};

// Lent for as long as it lives. Takes and gives back without waiting: where another thread is at
// the shelf, or a fork has left it locked, memory comes from the system.
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

// Gives what lies on the shelf back to the system; how many bytes that were.
std::size_t release_workspaces();

}  // namespace fovea_python
