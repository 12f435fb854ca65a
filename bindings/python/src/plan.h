// Plans: made with the interpreter's lock released, asked for their workspace, and run.
#pragma once

#include <fovea/handle.hpp>

#include <string>

#include "module.h"

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

}  // namespace fovea_python
