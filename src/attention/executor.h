// Who runs the tasks of an engine that works on the host: its own threads, the caller alone, or
// the host program's pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fovea {

class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Runs task(0) .. task(count - 1), each once, in any order, on any threads; returns when all are
  // done. No task may wait for another: they may run one after the other on the caller.
  virtual void run(std::size_t count, const std::function<void(std::size_t task)>& task) = 0;
  // One of what run() was given may do many of the engine's own, smaller tasks one after the other:
  // it is about to begin this one. For whoever measures them.
  virtual void begins(std::int64_t) {}
  // Nodes of memory (NUMA) that its threads are spread over, and that of the calling thread.
  virtual int nodes() const { return 1; }
  virtual int node_here() const { return 0; }
};

}  // namespace fovea
