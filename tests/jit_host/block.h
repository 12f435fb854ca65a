// One block of GPU threads, each of them a fiber. A fiber runs until it has to wait for others. Now
// and then the one that continues is chosen at random.
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

  // Throws Mistake if the kernel does something wrong. Its threads then never continue.
  void run(Kernel kernel, void** parameters, const ThreadIndex& place, test::Random& random);
  SharedMemory& memory() { return memory_; }

  // The functions that kernels call. They act on the block that runs.
  static const Machine& machine();

 private:
  struct Thread {
    Fiber fiber;
    Copies copies;
    std::string waits_in;  // the mbarrier or named barrier that it waits for; "": none
  };
  // The operation that the first thread waits in. The others must come to the same one.
  struct Point {
    Meeting kind;
    Where where;
    int thread;
  };
  struct Warp {
    // A bit for each lane. Lanes in none of the sets wait for other warps.
    std::uint32_t ready = 0, waiting = 0, ended = 0;
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
  // Lets the thread wait until it is woken. It may never continue, so that nothing on its stack may
  // own memory.
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
