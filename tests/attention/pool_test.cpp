// The engine's threads: every task runs once, for any number of callers and calls, also in a forked
// child.
#include "attention/pool.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attention/cpu.h"
#include "attention/device.h"

// The thread sanitizer does not know a child that starts threads: it ends it.
#if defined(__SANITIZE_THREAD__)
#define SKIP_IF_CHILDREN_MAY_NOT_START_THREADS() GTEST_SKIP() << "not under this sanitizer"
#else
#define SKIP_IF_CHILDREN_MAY_NOT_START_THREADS()
#endif

namespace fovea {
namespace {

Executor& pool_of(int threads) {  // never destroyed, as its class asks
  static Pool* const pools[] = {new Pool(1), new Pool(2), new Pool(3), new Pool(8)};
  for (Pool* const pool : pools) {
    if (pool->threads() == threads) return *pool;
  }
  throw std::logic_error("no pool of " + std::to_string(threads));
}

// How often each of `count` tasks ran.
std::vector<int> runs(Executor& executor, std::size_t count) {
  std::vector<std::atomic<int>> seen(count);
  executor.run(count, [&](std::size_t task) { seen.at(task).fetch_add(1); });
  return {seen.begin(), seen.end()};
}

bool each_once(Executor& executor, std::size_t count) {
  return runs(executor, count) == std::vector<int>(count, 1);
}

TEST(Pool, runs_every_task_once) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 64, 1000}) {
      EXPECT_TRUE(each_once(pool_of(threads), count)) << threads << " threads, " << count;
    }
  }
  EXPECT_TRUE(each_once(own_pool(), 100));
}

TEST(Pool, has_as_many_threads_as_the_device_but_no_more_than_there_are_processors) {
  const auto processors = static_cast<int>(process_cpus().all.size());
  EXPECT_EQ(own_pool().threads(), std::min(cpu_device().threads, processors));
}

TEST(Pool, nothing_to_do_calls_nothing) {
  pool_of(2).run(0, [](std::size_t) { FAIL(); });
}

TEST(Pool, one_task_and_one_thread_stay_on_the_caller) {
  const auto caller = std::this_thread::get_id();
  pool_of(8).run(1, [&](std::size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
  pool_of(1).run(50, [&](std::size_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(Pool, tasks_of_one_thread_come_in_order) {
  std::vector<std::size_t> order;
  pool_of(1).run(4, [&](std::size_t task) { order.push_back(task); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3}));
}

// Two tasks that each wait for the other end only if two threads take part. (Real tasks never
// wait.)
TEST(Pool, other_threads_take_part) {
  std::atomic<int> present{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  pool_of(2).run(2, [&](std::size_t) {
    present.fetch_add(1);
    while (present.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  EXPECT_EQ(present.load(), 2);
  EXPECT_LT(std::chrono::steady_clock::now(), end);
}

TEST(Pool, results_of_tasks_are_seen_by_the_caller) {
  std::vector<std::size_t> squares(500);  // not atomic: the thread sanitizer checks the order
  pool_of(3).run(squares.size(), [&](std::size_t task) { squares[task] = task * task; });
  for (std::size_t i = 0; i < squares.size(); ++i) EXPECT_EQ(squares[i], i * i);
}

TEST(Pool, calls_from_within_a_task_run_on_its_thread) {
  std::atomic<int> inner{0};
  pool_of(3).run(20, [&](std::size_t) {
    const auto here = std::this_thread::get_id();
    pool_of(3).run(10, [&](std::size_t) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      inner.fetch_add(1);
    });
  });
  EXPECT_EQ(inner.load(), 200);
}

TEST(Pool, many_callers_at_once) {
  std::atomic<int> bad{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 12; ++caller) {  // more than there are slots
    callers.emplace_back([&, caller] {
      for (int call = 0; call < 60; ++call) {
        if (!each_once(pool_of(3), static_cast<std::size_t>(caller * 7 + call) % 40))
          bad.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(bad.load(), 0);
}

TEST(Pool, the_first_callers_of_a_new_pool_come_together) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    Pool& fresh = *new Pool(2);
    static std::vector<Pool*> kept;  // still reachable: not a leak
    kept.push_back(&fresh);
    std::atomic<int> bad{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 4; ++caller) {
      callers.emplace_back([&] { bad.fetch_add(each_once(fresh, 30) ? 0 : 1); });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(bad.load(), 0);
  }
}

TEST(Pool, the_first_exception_leaves_after_the_last_task) {
  for (Executor* const executor : {&pool_of(1), &pool_of(2), &pool_of(8)}) {
    std::atomic<int> ran{0};
    try {
      executor->run(40, [&](std::size_t task) {
        ran.fetch_add(1);
        if (task % 3 == 0) throw std::runtime_error("task " + std::to_string(task));
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, 5), "task ");
    }
    EXPECT_EQ(ran.load(), 40);
    EXPECT_TRUE(each_once(*executor, 40));  // and it goes on as before
  }
}

TEST(Pool, wakes_up_again_after_it_has_gone_to_sleep) {
  for (int call = 0; call < 20; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(each_once(pool_of(2), 8));
  }
}

TEST(Pool, many_short_calls) {
  std::size_t sum = 0;
  std::atomic<std::size_t> total{0};
  for (std::size_t call = 0; call < 20000; ++call) {
    const std::size_t count = call % 5;
    pool_of(2).run(count, [&](std::size_t task) { total.fetch_add(task + 1); });
    sum += count * (count + 1) / 2;
  }
  EXPECT_EQ(total.load(), sum);
}

// The wait status of a child that ends with what `body` returns. One that hangs is ended by
// SIGALRM.
template <class Body>
int in_a_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    _exit(body());
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

int failures_in_a_child() {
  return in_a_child([] { return each_once(pool_of(2), 50) && each_once(own_pool(), 50) ? 0 : 1; });
}

TEST(Pool, a_forked_child_has_threads_of_its_own) {
  SKIP_IF_CHILDREN_MAY_NOT_START_THREADS();
  EXPECT_TRUE(each_once(pool_of(2), 50));
  EXPECT_TRUE(each_once(own_pool(), 50));
  EXPECT_EQ(failures_in_a_child(), 0);
  EXPECT_TRUE(each_once(pool_of(2), 50));  // the parent's still work
}

TEST(Pool, a_child_forked_while_others_call) {
  SKIP_IF_CHILDREN_MAY_NOT_START_THREADS();
  // First calls make what lives as long as the process; a fork amid one leaves it half made.
  EXPECT_TRUE(each_once(pool_of(2), 20));
  EXPECT_TRUE(each_once(own_pool(), 20));
  std::atomic<bool> stop{false};
  // The other caller takes no memory meanwhile: the address sanitizer's allocator, unlike the
  // system's, may be left locked in the child.
  std::atomic<std::size_t> ran{0};
  const std::function<void(std::size_t)> task = [&](std::size_t) { ran.fetch_add(1); };
  std::size_t calls = 0;
  std::thread other([&] {
    for (; !stop.load(); ++calls) pool_of(2).run(20, task);
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(failures_in_a_child(), 0);
  stop.store(true);
  other.join();
  EXPECT_EQ(ran.load(), 20 * calls);
}

// Where the engine's threads may run: on the processors of the process, whatever the caller is
// bound to, and never outside of them.

Pool& new_pool(int threads) {
  static std::vector<Pool*> kept;  // never destroyed, as its class asks
  kept.push_back(new Pool(threads));
  return *kept.back();
}

// What each of a pool's threads, the caller left out, may run on. Tasks stay until all are there.
std::vector<Cpus> cpus_of_threads(Pool& pool) {
  std::vector<Cpus> seen;
  std::mutex mutex;
  std::atomic<int> present{0};
  const auto caller = std::this_thread::get_id();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  pool.run(static_cast<std::size_t>(pool.threads()), [&](std::size_t) {
    if (std::this_thread::get_id() != caller) {
      const std::lock_guard lock(mutex);
      seen.push_back(cpus_of_thread(0));
    }
    present.fetch_add(1);
    while (present.load() < pool.threads() && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
  });
  return seen;
}

// 0: there were two threads beside the caller, each with just these processors.
int check(const Cpus& expected) {
  const std::vector<Cpus> seen = cpus_of_threads(new_pool(3));
  if (seen.size() != 2) return 1;
  const auto is_right = [&](const Cpus& cpus) { return cpus == expected; };
  return std::ranges::all_of(seen, is_right) ? 0 : 2;
}

TEST(PoolAffinity, ABoundCallerStartsThreadsOnAllProcessors) {
  const Cpus all = cpus_of_thread(getpid());
  std::thread([&] {
    ASSERT_TRUE(bind_thread(0, {all.back()}));
    EXPECT_EQ(check(all), 0);
    EXPECT_EQ(cpus_of_thread(0), Cpus{all.back()});  // and it stays where it was
  }).join();
}

// As under `taskset`: the whole process has one processor.
TEST(PoolAffinity, ThreadsStayInsideOfAProcessThatHasOneProcessor) {
  SKIP_IF_CHILDREN_MAY_NOT_START_THREADS();
  const Cpus one{cpus_of_thread(getpid()).back()};
  EXPECT_EQ(in_a_child([&] { return bind_thread(0, one) ? check(one) : 3; }), 0);
}

// Neither does FOVEA_NUM_THREADS give such a process more: its own pool is asked for in a new one.
TEST(PoolAffinity, ThreadsBeyondTheProcessorsAreNotStartedWhateverIsAskedFor) {
  SKIP_IF_CHILDREN_MAY_NOT_START_THREADS();
  const auto again = [] {
    if (!bind_thread(0, {cpus_of_thread(getpid()).back()})) return 3;
    setenv("FOVEA_NUM_THREADS", "16", 1);
    execl("/proc/self/exe", "fovea_test_attention", "--gtest_brief=1",
          "--gtest_filter=Pool.has_as_many_threads_as_the_device_but_*", nullptr);
    return 4;
  };
  EXPECT_EQ(in_a_child(again), 0);
}

TEST(PoolAffinity, AChildThatBindsItselfKeepsToThat) {
  SKIP_IF_CHILDREN_MAY_NOT_START_THREADS();
  const Cpus all = cpus_of_thread(getpid());
  Pool& pool = new_pool(2);
  EXPECT_EQ(cpus_of_threads(pool), std::vector<Cpus>{all});
  const auto child = [&](const Cpus& bound) {
    return in_a_child([&] {
      if (!bind_thread(0, bound)) return 3;
      return cpus_of_threads(pool) == std::vector<Cpus>{bound} ? 0 : 1;
    });
  };
  EXPECT_EQ(child({all.back()}), 0);
  EXPECT_EQ(child(all), 0);
  EXPECT_EQ(cpus_of_threads(pool), std::vector<Cpus>{all});  // the parent's are as before
}

}  // namespace
}  // namespace fovea
