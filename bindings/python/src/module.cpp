#include "module.h"

#include <fovea/handle.hpp>

#include <cstdlib>

// The library's statuses become Python exceptions that carry its texts.
namespace fovea_python {
namespace {

// Owned by the module, which is never unloaded.
PyObject* error_types[FOVEA_INTERNAL_ERROR + 1];

struct Kind {
  fovea_status status;
  const char* name;
  PyObject* also;  // the builtin exception that it is, too
  const char* doc;
};

nb::object make_type(const char* name, nb::handle bases, const char* doc) {
  const std::string full = std::string("fovea.") + name;
  return nb::steal(PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.ptr(), nullptr));
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const fovea::Error& error) {
    const int status = error.status();
    const bool known = status > FOVEA_OK && status <= FOVEA_INTERNAL_ERROR;
    PyErr_SetString(error_types[known ? status : FOVEA_OK], error.what());
  } catch (const BadArgument& error) {
    PyErr_SetString(error_types[FOVEA_INVALID_ARGUMENT], error.what());
  }
}

void define_errors(nb::module_& module) {
  const nb::object base =
      make_type("Error", nb::handle(PyExc_Exception), "What Fovea raises; the text says why.");
  error_types[FOVEA_OK] = base.ptr();
  module.attr("Error") = base;
  const Kind kinds[] = {
      {FOVEA_INVALID_ARGUMENT, "InvalidArgument", PyExc_ValueError,
       "A caller's mistake: the text names the argument, its value and the rule it breaks."},
      {FOVEA_UNSUPPORTED, "Unsupported", PyExc_NotImplementedError,
       "No engine can run this problem: the text has every engine's reasons."},
      {FOVEA_DEVICE_ERROR, "DeviceError", PyExc_RuntimeError, "A library or a device failed."},
      {FOVEA_OUT_OF_MEMORY, "OutOfMemory", PyExc_MemoryError, "There was not enough memory."},
      {FOVEA_INTERNAL_ERROR, "InternalError", PyExc_RuntimeError, "A bug in Fovea."},
  };
  for (const Kind& kind : kinds) {
    const nb::object type =
        make_type(kind.name, nb::make_tuple(base, nb::handle(kind.also)), kind.doc);
    error_types[kind.status] = type.ptr();
    module.attr(kind.name) = type;
  }
  nb::register_exception_translator(translate, nullptr);
}

}  // namespace
}  // namespace fovea_python

NB_MODULE(_core, module) {
  using namespace fovea_python;
  // Objects that are alive when the interpreter ends are held by others: threads that still wait
  // (of torch's autograd and compiler), the traceback of a failed test. Users can do nothing about
  // it, so they are not warned. The tests turn the warnings on, to see that Fovea causes none.
  nb::set_leak_warnings(std::getenv("FOVEA_LEAK_WARNINGS") != nullptr);
  module.doc() =
      "The library behind the package fovea. Use the package; this is what it is made of.";
  define_errors(module);
  define_program(module);
  define_plan(module);
  define_symbol(module);
  define_steps(module);
  define_viewer(module);
  define_call_cache(module);
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
