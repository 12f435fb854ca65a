// Threads of execution with stacks of their own that take turns on one thread of the host. On
// x86-64 a switch is a dozen instructions, 5 ns; elsewhere it is the C library's, which is slow.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fovea::on_host {

class Fiber {
 public:
  using Entry = void (*)();

  // Begins at `entry` when it is first switched to; `entry` must never return. The stack may be one
  // that another fiber was left on. A fiber that is never started is whoever switches away from it.
  void start(void* stack, std::size_t bytes, Entry entry);

  // Runs `to` until something switches back to `from`, which is the one that runs. If both are the
  // same, it just runs on.
  static void switch_from_to(Fiber& from, Fiber& to);

 private:
  static void begin();

  Entry entry_ = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;  // its registers lie there while it waits
#else
  ucontext_t context_;
#endif
  // For the address sanitizer.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

// Stacks with a page between them that may not be touched; they stay for the process.
class Stacks {
 public:
  static constexpr std::size_t most = 1024;
  static constexpr std::size_t bytes = std::size_t{256} << 10;  // memory only where it is touched
  Stacks();
  void* operator[](std::size_t i) const { return static_cast<char*>(memory_) + i * (bytes + page); }

 private:
  static constexpr std::size_t page = 4096;
  void* memory_;
};

}  // namespace fovea::on_host
