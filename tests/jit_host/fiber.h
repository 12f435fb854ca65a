// Threads of execution with stacks of their own that take turns on one thread of the host. Switches
// are Boost.Context's: a few nanoseconds, no system call.
#pragma once

#include <cstddef>

namespace fovea::on_host {

class Fiber {
 public:
  using Entry = void (*)();

  // The fiber that runs now, on the stack it is on.
  Fiber() = default;
  // Begins at `entry` when it is first switched to; `entry` must never return. The stack may be one
  // that another fiber was left on.
  void start(void* stack, std::size_t bytes, Entry entry);

  // Runs `to` until something switches back to `from`, which is the one that runs.
  static void switch_from_to(Fiber& from, Fiber& to);

 private:
  struct Arrival;
  static void arrive(Fiber& here, void* from, void* context);

  void* context_ = nullptr;
  Entry entry_ = nullptr;
  // For the address sanitizer.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

// Stacks with a page below each that may not be touched; they stay for the process.
class Stacks {
 public:
  static constexpr std::size_t most = 1024;
  static constexpr std::size_t bytes = std::size_t{256} << 10;  // touched only where it is used
  void* operator[](std::size_t i) const { return static_cast<char*>(memory_) + i * (bytes + page); }
  Stacks();

 private:
  static constexpr std::size_t page = 4096;
  void* memory_;
};

}  // namespace fovea::on_host
