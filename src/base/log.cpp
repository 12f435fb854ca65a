#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>

#include "base/env.h"

namespace fovea {
namespace {

struct Listener {
  LogCallback log = nullptr;
  void* context = nullptr;
};

std::mutex mutex;
Listener listener;
std::atomic<bool> has_listener{false};

// Read once: getenv is not safe beside a setenv in another thread.
bool verbose() {
  static const bool on = env_value(Env::Verbose).value_or("0") != "0";
  return on;
}

}  // namespace

void set_log(LogCallback log, void* context) {
  const std::lock_guard lock(mutex);
  listener = {log, context};
  has_listener.store(log != nullptr, std::memory_order_release);
}

bool log_enabled() { return has_listener.load(std::memory_order_acquire) || verbose(); }

void log_line(const std::string& line) {
  Listener now;
  {
    const std::lock_guard lock(mutex);
    now = listener;
  }
  // Outside the lock, so that a listener may itself call Fovea.
  if (now.log != nullptr) {
    now.log(now.context, line.c_str());
  } else if (verbose()) {
    const std::string whole = line + '\n';  // one write: lines of several threads stay whole
    std::fwrite(whole.data(), 1, whole.size(), stderr);
  }
}

void LogOnce::say(const std::string& line) {
  if (!log_enabled()) return;
  {
    const std::lock_guard lock(mutex_);
    if (said_.size() >= 64 || !said_.insert(line).second) return;
  }
  log_line(line);
}

}  // namespace fovea
