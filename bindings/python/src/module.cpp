#include "module.h"

#include <fovea/fovea.h>

#include <cstdlib>

NB_MODULE(_core, module) {
  using namespace fovea_python;
  // Objects that are alive when the interpreter ends are held by others: threads that still wait
  // (of torch's autograd and compiler), the traceback of a failed test. Users can do nothing about
  // it, so they are not warned. The tests turn the warnings on, to see that Fovea causes none.
  nb::set_leak_warnings(std::getenv("FOVEA_LEAK_WARNINGS") != nullptr);
  module.doc() =
      "The library behind the package fovea. Use the package; this is what it is made of.";
  define_errors(module);
  define_host_view(module);
  define_program(module);
  define_problem(module);
  define_plan(module);
  define_symbol(module);
  define_steps(module);
  define_viewer(module);
  define_call_cache(module);
  define_caller(module);
  define_process(module);

  nb::dict outputs;
#define FOVEA_OUTPUT(name, extent, saved) outputs[#name] = #extent;
#include <fovea/fields.def>
  module.attr("OUTPUTS") = outputs;

  module.attr("F32") = static_cast<int>(FOVEA_F32);
  module.attr("F16") = static_cast<int>(FOVEA_F16);
  module.attr("BF16") = static_cast<int>(FOVEA_BF16);
  module.attr("F64") = static_cast<int>(FOVEA_F64);
  module.attr("I32") = static_cast<int>(FOVEA_I32);
  module.attr("I64") = static_cast<int>(FOVEA_I64);
  module.attr("U8") = static_cast<int>(FOVEA_U8);
  module.attr("BOOL") = static_cast<int>(FOVEA_BOOL);
}
