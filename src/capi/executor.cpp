#include "capi/executor.h"

#include <exception>
#include <mutex>
#include <string>

#include "base/error.h"
#include "capi/arguments.h"

namespace fovea::capi {
namespace {

struct Tasks {
  const std::function<void(std::size_t)>& task;
  std::mutex mutex;
  std::exception_ptr failure;

  void run(std::size_t i) {
    try {
      task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
};

extern "C" void run_one(void* context, std::size_t i) { static_cast<Tasks*>(context)->run(i); }

}  // namespace

HostExecutor::HostExecutor(const fovea_executor* given) {
  if (given == nullptr) return;
  host_ = read_struct(given, {"bindings.executor", "fovea_executor"});
  if (host_.threads == 0) host_.threads = 1;
  if (host_.threads < 0) {
    throw InvalidArgument("bindings.executor.threads is " + std::to_string(host_.threads) +
                          "; it must be 1 or more (0: 1)");
  }
}

void HostExecutor::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  Tasks tasks{task, {}, nullptr};
  host_.run(host_.self, count, run_one, &tasks);
  if (tasks.failure) std::rethrow_exception(tasks.failure);
}

}  // namespace fovea::capi
