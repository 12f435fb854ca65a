#include "attention/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <system_error>
#include <thread>

#include "attention/device.h"

namespace fovea {
namespace {

// Waking a sleeping processor of a virtual machine takes 40-125 us: worth spinning for about as
// long.
constexpr std::chrono::microseconds spin_time(50);
constexpr std::size_t slice = 0x7fffffffu;  // tasks that one ticket can count

thread_local bool inside_task = false;

// How many forks lie between the first process and this one. Registered at load: a lock taken
// later could be held by another thread at the moment of a fork.
std::atomic<std::uint32_t> forks{0};
void count_fork() { forks.fetch_add(1, std::memory_order_relaxed); }
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, count_fork);

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// True as soon as `done` says so; false when it has not for spin_time.
template <class Done>
bool spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

std::uint32_t unclaimed(std::uint64_t ticket) { return static_cast<std::uint32_t>(ticket); }

void run_alone(std::size_t count, const std::function<void(std::size_t)>& task) {
  std::exception_ptr error = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    try {
      task(i);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace

// Lives on the caller's stack; only a thread that holds a claim reads it.
struct Pool::Job {
  const std::function<void(std::size_t)>& task;
  std::size_t end = 0;  // tasks of a slice are numbered up to here
  std::atomic<bool> failed{false};
  std::exception_ptr error = nullptr;

  void run(std::size_t number) {
    try {
      task(number);
    } catch (...) {
      if (!failed.exchange(true, std::memory_order_relaxed)) error = std::current_exception();
    }
  }
};

Pool::Pool(int threads)
    : threads_(threads), cpus_(process_cpus()), nodes_(memory_nodes(cpus_.all)) {}

int Pool::node_here() const {
  if (nodes_.count == 1) return 0;
  const auto cpu = static_cast<std::size_t>(std::max(0, sched_getcpu()));
  return cpu < nodes_.of_cpu.size() ? nodes_.of_cpu[cpu] : 0;
}

void Pool::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  Slot* const slot = count > 1 && threads_ > 1 && !inside_task && ready() ? free_slot() : nullptr;
  if (slot == nullptr) return run_alone(count, task);
  Job job{task};
  slot->job = &job;
  while (job.end < count) {
    const std::size_t part = std::min(count - job.end, slice);
    job.end += part;
    run_slice(*slot, static_cast<std::uint32_t>(part));
  }
  slot->taken.store(false, std::memory_order_release);
  if (job.error) std::rethrow_exception(job.error);
}

void Pool::run_slice(Slot& slot, std::uint32_t count) {
  slot.unfinished.store(count, std::memory_order_relaxed);
  const std::uint64_t calls = (slot.ticket.load(std::memory_order_relaxed) | 0xffffffffu) + 1;
  slot.ticket.store(calls + count, std::memory_order_release);
  wake(count);
  while (help(slot)) {
  }
  const auto finished = [&] { return slot.unfinished.load(std::memory_order_acquire) == 0; };
  if (spins() && spin_until(finished)) return;
  for (;;) {
    const std::uint32_t left = slot.unfinished.load(std::memory_order_acquire);
    if (left == 0) return;
    slot.unfinished.wait(left, std::memory_order_acquire);
  }
}

// Claims one task and runs it; false if none was left.
bool Pool::help(Slot& slot) {
  std::uint64_t ticket = slot.ticket.load(std::memory_order_acquire);
  do {
    if (unclaimed(ticket) == 0) return false;
  } while (!slot.ticket.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire));
  // From here to the decrement below the call cannot end, so its job is there.
  Job& job = *slot.job;
  inside_task = true;
  job.run(job.end - unclaimed(ticket));
  inside_task = false;
  if (slot.unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) slot.unfinished.notify_all();
  return true;
}

// Wakes at most one thread more than can run: the others would find no task left.
void Pool::wake(std::uint32_t tasks) {
  signal_.fetch_add(1, std::memory_order_release);
  const auto useful = std::min(tasks, std::max(2u, static_cast<unsigned>(cpus_.all.size())));
  if (useful >= static_cast<std::uint32_t>(threads_)) return signal_.notify_all();
  for (std::uint32_t i = 1; i < useful; ++i) signal_.notify_one();
}

// Threads spin only if they do not take a processor from one that works.
bool Pool::spins() const { return static_cast<std::size_t>(threads_) <= cpus_.all.size(); }

Pool::Slot* Pool::free_slot() {
  for (Slot& slot : slots_) {
    if (!slot.taken.load(std::memory_order_relaxed) &&
        !slot.taken.exchange(true, std::memory_order_acquire)) {
      return &slot;
    }
  }
  return nullptr;
}

// A thread's life: it ends with the process.
void Pool::work() {
  for (;;) {
    const std::uint32_t seen = signal_.load(std::memory_order_acquire);
    bool helped = false;
    for (Slot& slot : slots_) {
      while (help(slot)) helped = true;
    }
    if (helped) continue;
    const auto called = [&] { return signal_.load(std::memory_order_acquire) != seen; };
    if (!spins() || !spin_until(called)) signal_.wait(seen, std::memory_order_acquire);
  }
}

// Whether this process has its threads; starts them if not. Calls that come meanwhile run alone. A
// forked child has none of its parent's threads and starts its own.
bool Pool::ready() {
  const std::uint32_t starting = 2 * forks.load(std::memory_order_relaxed) + 1;
  const std::uint32_t started = starting + 1;
  std::uint32_t state = state_.load(std::memory_order_acquire);
  if (state == started) return true;
  if (state == starting) return false;
  if (!state_.compare_exchange_strong(state, starting, std::memory_order_acquire)) return false;
  start();
  state_.store(started, std::memory_order_release);
  return true;
}

void Pool::start() {
  // State that calls of the parent left here is reset in a child.
  for (Slot& slot : slots_) {
    slot.ticket.store(0, std::memory_order_relaxed);
    slot.unfinished.store(0, std::memory_order_relaxed);
    slot.taken.store(false, std::memory_order_relaxed);
  }
  cpus_ = process_cpus(cpus_);
  // Signals are to be handled by the host's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    const Cpus& cpus = cpus_.all;
    const auto here = std::ranges::find(cpus, sched_getcpu()) - cpus.begin();
    for (int i = 1; i < threads_; ++i) {
      std::thread thread([this] { work(); });
      start_thread_on(thread, cpus[static_cast<std::size_t>((here + i) % std::ssize(cpus))], cpus);
      pthread_setname_np(thread.native_handle(), "fovea-cpu");
      thread.detach();
    }
  } catch (const std::system_error&) {
    // The system refuses more threads: those that were started share the work.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Executor& own_pool() {
  // More threads than processors would take turns, and a call's work would be cut finer for them.
  static Pool& pool =
      *new Pool(std::min(cpu_device().threads, static_cast<int>(std::ssize(process_cpus().all))));
  return pool;
}

}  // namespace fovea
