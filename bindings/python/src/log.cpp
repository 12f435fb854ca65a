// The lines that FOVEA_VERBOSE asks for, given to a Python function instead of standard error.
#include <fovea/fovea.h>

#include "module.h"

namespace fovea_python {
namespace {

PyObject* listener = nullptr;  // under the interpreter's lock

// May come from any thread, with or without the lock. What the function raises cannot go anywhere:
// it is reported as unraisable.
void give_line(void*, const char* line) {
  if (Py_IsInitialized() == 0) return;
  const nb::gil_scoped_acquire lock;
  if (listener == nullptr) return;
  const nb::object function = nb::borrow(listener);
  PyObject* const result = PyObject_CallFunction(function.ptr(), "s", line);
  if (result == nullptr) {
    PyErr_WriteUnraisable(function.ptr());
  } else {
    Py_DECREF(result);
  }
}

void set_log(const nb::object& function) {
  PyObject* const old = listener;
  listener = function.is_none() ? nullptr : function.inc_ref().ptr();
  fovea_set_log(listener == nullptr ? nullptr : give_line, nullptr);
  Py_XDECREF(old);
}

}  // namespace

void define_log(nb::module_& module) {
  module.def(
      "set_log", set_log, nb::arg("function").none(),
      "Gives each line that FOVEA_VERBOSE asks for to a function of one text instead of standard error; None: "
      "back to that.");
}

}  // namespace fovea_python
