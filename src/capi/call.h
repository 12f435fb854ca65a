// One call as a C caller describes it, turned into Bindings: what the caller leaves out comes from
// the problem. Lives on the caller's stack; small calls allocate nothing.
#pragma once

#include <cstddef>
#include <optional>

#include "attention/bindings.h"
#include "capi/captured.h"
#include "capi/plan.h"
#include "fovea/fovea.h"

namespace fovea::capi {

// Of the first version of the struct.
inline constexpr std::size_t first_bindings_size =
    offsetof(fovea_bindings, executor) + sizeof(void*);

// The host program's threads behind Fovea's Executor.
class HostExecutor : public Executor {
 public:
  // Throws InvalidArgument. Null: there is none, and get() is null.
  explicit HostExecutor(const fovea_executor* given);

  Executor* get() { return host_.run == nullptr ? nullptr : this; }
  // If the host gives a number and no threads: at most so many of Fovea's own. 0: all.
  int limit() const { return host_.run == nullptr ? host_.threads : 0; }
  int threads() const override { return host_.threads; }
  // An exception of a task is kept until all are done: none may cross the host's code.
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  fovea_executor host_{};
};

class CallBindings {
 public:
  CallBindings(const PlanFacts& plan, const fovea_bindings& given);
  CallBindings(const CallBindings&) = delete;
  CallBindings& operator=(const CallBindings&) = delete;

  const Bindings& bindings() const { return bindings_; }

 private:
  void bind_tensors(const CallRules& rules, const fovea_bindings& given);
  void bind_values(const fovea_bindings& given);
  void bind_scale(const fovea_bindings& given);
  void read_pointers();

  const Problem& problem_;
  HostExecutor executor_;
  Sizes sizes_;
  CapturedBindings captured_;
  std::optional<CapturedBindings> tangents_;  // of a tangent
  Bindings bindings_;
};

// The call as a command line: the problem with this call's values.
std::string call_command(const PlanFacts& plan, const Bindings& bindings);

}  // namespace fovea::capi
