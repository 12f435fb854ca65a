// One block of GPU threads, each a fiber. A fiber runs until it meets others; who runs next is
// drawn at random now and then. Used by launch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ir/random.h"
#include "tests/jit_host/async.h"
#include "tests/jit_host/fiber.h"
#include "tests/jit_host/machine.h"
#include "tests/jit_host/shared_memory.h"
#include "tests/jit_host/tile_products.h"
#include "tests/jit_host/warp_functions.h"

namespace fovea::on_host {

using Kernel = void (*)(void** parameters);

class Block {
 public:
  Block();

  // Throws Mistake for what the kernel does wrong; its other threads are then left where they are.
  void run(Kernel kernel, void** parameters, const ThreadIndex& place, test::Random& random);
  SharedMemory& memory() { return memory_; }

  // The table that kernels call; its functions mean the block that runs.
  static const Machine& machine();

 private:
  struct Thread {
    Fiber fiber;
    Copies copies;
    std::string waits_in;  // a barrier that is not the block's own; "": none
  };
  // Where the first came to; all must come to the same.
  struct Point {
    Meeting kind;
    Where where;
    int thread;
  };
  struct Warp {
    std::uint32_t ready = 0, waiting = 0, ended = 0;  // lanes; others wait for the block
    unsigned epoch = 1;
    Point point{};
    void* operands[lanes] = {};
  };

  static void live();
  static void meet(Meeting kind, void* operand, Where where);
  void meet_in_warp(Meeting kind, void* operand, const Where& where);
  void meet_in_block(Meeting kind, void* operand, const Where& where);
  void compute(Meeting kind, Warp& warp, const Where& where);
  void end_meeting_of_block(Meeting kind);
  void check_same(const Point& first, Meeting kind, const Where& where) const;
  void look_closer(const Point& first, Meeting kind, const Where& where) const;
  [[noreturn]] void lane_is_missing(const Warp& warp, Meeting kind, const Where& where) const;

  Thread& thread() { return threads_[static_cast<std::size_t>(current_)]; }
  Warp& warp(int i) { return warps_[static_cast<std::size_t>(i)]; }
  User user() const { return {current_, warps_[static_cast<std::size_t>(current_) / lanes].epoch}; }
  // Lets the thread wait until it is woken.
  // Nothing may be alive on this thread's stack that owns memory: it may never go on.
  void park();
  void wake(const Threads& threads);
  void use_barrier(const BarrierCall& call, Where where);
  void meet_at_named(bool waits, int id, int threads, Where where);
  void do_some_work();
  void make_all_ready();
  int next();
  int next_of_other_warps();
  void switch_to(int thread);
  std::string whereabouts(int thread) const;
  [[noreturn]] void deadlock() const;

  std::vector<Thread> threads_;  // as many as stacks
  std::vector<Warp> warps_;
  Stacks stacks_;
  Fiber main_;
  SharedMemory memory_;
  Async async_{memory_};
  TileProducts products_{memory_};

  static ThreadIndex place_;  // of the thread that runs; kernels read it
  Kernel kernel_ = nullptr;
  void** parameters_ = nullptr;
  test::Random* random_ = nullptr;
  int current_ = 0;
  int running_ = 0;  // threads that have not ended
  int waiting_ = 0;  // threads in a meeting of the block
  Point block_point_{};
  int turns_ = 0;  // until another warp comes first
  std::vector<Vote*> votes_;
  std::uint32_t ready_warps_ = 0;
  std::string mistake_;
};

}  // namespace fovea::on_host
