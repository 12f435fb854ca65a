// The host program's threads behind Fovea's Executor.
#pragma once

#include "attention/executor.h"
#include "fovea/fovea.h"

namespace fovea::capi {

class HostExecutor : public Executor {
 public:
  // Throws InvalidArgument. Null: there is none, and get() is null.
  explicit HostExecutor(const fovea_executor* given);

  Executor* get() { return host_.run == nullptr ? nullptr : this; }
  // Where the host brings a number and no threads: at most so many of Fovea's own. 0: all.
  int limit() const { return host_.run == nullptr ? host_.threads : 0; }
  int threads() const override { return host_.threads; }
  // An exception of a task is kept until all are done: none may cross the host's code.
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  fovea_executor host_{};
};

}  // namespace fovea::capi
