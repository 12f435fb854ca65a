#include "threads.h"

#include <algorithm>
#include <atomic>
#include <memory>

namespace fovea_jax {
namespace {

// Shared by the caller and its helpers. A helper that starts after the work is done finds nothing
// left to take, so the caller waits for tasks and never for threads: a pool whose threads all sit
// in such calls (eight host devices on two threads) makes progress.
struct Work {
  std::size_t count;
  void (*task)(void*, std::size_t);
  void* context;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};

  void help() {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      task(context, i);
      if (done.fetch_add(1) + 1 == count) done.notify_all();
    }
  }

  void wait() {
    for (std::size_t seen = done.load(); seen != count; seen = done.load()) done.wait(seen);
  }
};

}  // namespace

Threads::Threads(xla::ffi::ThreadPool& pool) : pool_(pool) {
  executor_.struct_size = sizeof executor_;
  executor_.self = this;
  executor_.threads = static_cast<std::int32_t>(std::max<std::int64_t>(1, pool.num_threads()));
  executor_.run = &Threads::run;
}

void Threads::run(void* self, std::size_t count, void (*task)(void*, std::size_t), void* context) {
  auto& threads = *static_cast<Threads*>(self);
  auto work = std::make_shared<Work>(count, task, context);
  const std::size_t helpers =
      std::min<std::size_t>(count, static_cast<std::size_t>(threads.executor_.threads));
  for (std::size_t i = 1; i < helpers; ++i) threads.pool_.Schedule([work] { work->help(); });
  work->help();
  work->wait();
}

}  // namespace fovea_jax
