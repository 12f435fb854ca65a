// Where the engine's threads may run: on the processors of the process, whatever the caller is
// bound to, and never outside of them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "attention/affinity.h"
#include "engines/cpu/pool.h"

namespace fovea::cpu {
namespace {

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

// The thread sanitizer does not know a child that starts threads: it ends it.
#if defined(__SANITIZE_THREAD__)
#define SKIP_WHERE_CHILDREN_MAY_NOT_START_THREADS() GTEST_SKIP() << "not under this sanitizer"
#else
#define SKIP_WHERE_CHILDREN_MAY_NOT_START_THREADS()
#endif

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
  SKIP_WHERE_CHILDREN_MAY_NOT_START_THREADS();
  const Cpus one{cpus_of_thread(getpid()).back()};
  EXPECT_EQ(in_a_child([&] { return bind_thread(0, one) ? check(one) : 3; }), 0);
}

TEST(PoolAffinity, AChildThatBindsItselfKeepsToThat) {
  SKIP_WHERE_CHILDREN_MAY_NOT_START_THREADS();
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
}  // namespace fovea::cpu
