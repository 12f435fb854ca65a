// The parts of the extension module fovea._core, each defined in the file of its name.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>

namespace fovea_python {

namespace nb = nanobind;

void define_call_cache(nb::module_& module);
void define_plan(nb::module_& module);
void define_process(nb::module_& module);
void define_program(nb::module_& module);
void define_steps(nb::module_& module);
void define_symbol(nb::module_& module);
void define_viewer(nb::module_& module);

// A mistake of the caller that the library has not seen yet: becomes fovea.InvalidArgument.
struct BadArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace fovea_python
