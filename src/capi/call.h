// One call as a C caller describes it, turned into Bindings: what is not said comes from the
// problem. Lives on the caller's stack; small calls allocate nothing.
#pragma once

#include "attention/bindings.h"
#include "capi/captured.h"
#include "capi/executor.h"
#include "capi/recent_plans.h"

namespace fovea::capi {

class CallBindings {
 public:
  CallBindings(const PlanFacts& plan, const fovea_bindings& given);
  CallBindings(const CallBindings&) = delete;
  CallBindings& operator=(const CallBindings&) = delete;

  const Bindings& bindings() const { return bindings_; }

 private:
  void bind_tensors(const CallRules& rules, const fovea_bindings& given);
  void bind_values(const fovea_bindings& given);
  void read_pointers();

  const Problem& problem_;
  HostExecutor executor_;
  Sizes sizes_;
  CapturedBindings captured_;
  Bindings bindings_;
};

// The problem's own, or 1 / sqrt(d) of this call's d.
float default_scale(const Problem& problem, const Sizes& sizes);

// The call as a command line: the problem with this call's values.
std::string call_command(const PlanFacts& plan, const Bindings& bindings);

}  // namespace fovea::capi
