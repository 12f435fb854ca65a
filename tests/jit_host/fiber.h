// Fibers have stacks of their own and take turns on one thread of the host. On x86-64 a switch is a
// dozen instructions (5 ns). On other machines it is swapcontext, which is slow.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fovea::on_host {

class Fiber {
 public:
  using Entry = void (*)();

  // The first switch to it calls `entry`, which must never return. The stack of a fiber that will
  // not continue may be used again. A fiber that is not started stands for the code that switches
  // away from it.
  void start(void* stack, std::size_t bytes, Entry entry);

  // Runs `to` until something switches back to `from`, which is the one that runs now. Does nothing
  // if both are the same.
  static void switch_from_to(Fiber& from, Fiber& to);

 private:
  static void begin();

  Entry entry_ = nullptr;
#if defined(__x86_64__)
  void* top_ = nullptr;  // of its stack, where its registers are saved while it waits
#else
  ucontext_t context_;
#endif
  // For the address sanitizer.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  void* fake_stack_ = nullptr;
};

// Stacks with a protected page between each two. They are never freed.
class Stacks {
 public:
  static constexpr std::size_t most = 1024;
  static constexpr std::size_t bytes = std::size_t{256}
                                       << 10;  // only pages that are used take memory
  Stacks();
  void* operator[](std::size_t i) const { return static_cast<char*>(memory_) + i * (bytes + page); }

 private:
  static constexpr std::size_t page = 4096;
  void* memory_;
};

}  // namespace fovea::on_host
