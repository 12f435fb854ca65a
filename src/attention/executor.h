// Who runs the tasks of an engine that works on the host: its own threads, the caller alone, or
// the host program's pool.
#pragma once

#include <cstddef>
#include <functional>

namespace fovea {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Runs task(0) .. task(count - 1), each once, in any order, on any threads; returns when all are
  // done. No task may wait for another: they may run one after the other on the caller.
  virtual void run(std::size_t count, const std::function<void(std::size_t task)>& task) = 0;
};

}  // namespace fovea
