// Plans: made with the interpreter's lock released, asked for their workspace, and run; and calls
// of a plan that are prepared, since reading arguments by name is most of the host's time of a
// small call.
#pragma once

#include <fovea/handle.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"

namespace fovea_python {

struct PlanObject {
  fovea::Problem problem;
  fovea::Plan plan;
  std::string device;           // as asked for; "cpu" if none was named
  std::size_t workspace_bytes;  // for the problem's own sizes

  // With the interpreter's lock released meanwhile. A call on the host that brings no workspace is
  // lent one.
  void run(fovea_bindings& bindings) const;
};

// A plan with a template of its call: the order of its pointers, and the captured tensors and
// scalars, given once. A call then brings pointers and little else.
class Caller {
 public:
  // captured: as Plan.run takes them; the pointers in them say only whether there is a gradient.
  // scalars: as Plan.run takes them; a call brings their values.
  Caller(nb::object plan, const std::vector<std::string>& names, const nb::object& captured,
         const nb::object& scalars);

  // pointers: those of the names, then of captured tensors, then of their gradients. Called with
  // the interpreter's lock, which is released while the plan runs.
  void run(std::span<void* const> pointers, std::span<const double> numbers,
           fovea_bindings bindings, std::int32_t threads) const;

 private:
  nb::object plan_;
  const PlanObject& on_plan_;
  std::vector<std::size_t> offsets_;
  CapturedArguments captured_;
  std::size_t gradients_ = 0;
};

// Bindings of a call with a scale of its own (infinity: the problem's).
fovea_bindings bindings_of(double scale);

}  // namespace fovea_python
