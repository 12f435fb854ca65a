// The threads of engines on the host: the Executor of calls that bring none. They are started at
// the first call that has work for them: as many as the control group and FOVEA_NUM_THREADS allow,
// but at most one per processor of the process, on all of these even if the caller is bound to one.
// The caller takes part. A forked child starts threads of its own, even if other threads were
// calling at the fork, unless the fork came during the process's first call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "attention/bindings.h"
#include "attention/cpu.h"

namespace fovea {

Executor& own_pool();

// Threads that take tasks from all calls under way. A call ends when its tasks are done; it does
// not wait for threads that have claimed none. A call from within a task, and a call that finds no
// free slot, runs on its caller alone.
//
// A task that throws does not stop the others; the first exception leaves run() after the last
// task. A Pool is never destroyed (its threads would have to be waited for): make it with new, and
// keep it.
class Pool final : public Executor {
 public:
  explicit Pool(int threads);  // the caller counts as one
  int threads() const override { return threads_; }
  int nodes() const override { return nodes_.count; }
  int node_here() const override;
  void run(std::size_t count, const std::function<void(std::size_t task)>& task) override;

 private:
  struct Job;
  // One call under way. It outlives every call, so that a thread that comes late finds it closed.
  struct alignas(64) Slot {
    // High half: how many calls there have been here. Low half: tasks that nobody has claimed. A
    // claim is one compare-and-swap of both, so that a late thread cannot claim from the next call.
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<std::uint32_t> unfinished{0};
    std::atomic<bool> taken{false};
    Job* job = nullptr;  // the caller's; read only by who holds a claim
  };

  bool ready();
  void start();
  void work();
  Slot* free_slot();
  bool help(Slot& slot);
  void run_slice(Slot& slot, std::uint32_t count);
  void wake(std::uint32_t tasks);
  bool spins() const;

  const int threads_;
  ProcessCpus cpus_;  // when the threads were started
  const MemoryNodes nodes_;
  std::atomic<std::uint32_t> state_{0};  // whether the threads run, and in which process
  alignas(64) std::atomic<std::uint32_t> signal_{0};  // counts slices; threads sleep on it
  std::array<Slot, 8> slots_;
};

}  // namespace fovea
