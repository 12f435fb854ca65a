// The process: the cache of plans, the engines, what was found on this machine, the log.
#include <nanobind/stl/string.h>
#include <fovea/handle.hpp>

#include "module.h"
#include "workspace.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

nb::dict cache_statistics() {
  fovea_cache_stats stats{};
  stats.struct_size = sizeof stats;
  fovea::check(fovea_cache_statistics(&stats));
  nb::dict out;
  out["builds"] = stats.builds;
  out["hits"] = stats.hits;
  out["misses"] = stats.misses;
  out["evictions"] = stats.evictions;
  out["plans"] = stats.plans;
  out["bytes"] = stats.bytes;
  out["build_seconds"] = stats.build_seconds;
  out["disk_hits"] = stats.disk_hits;
  out["bundle_hits"] = stats.bundle_hits;
  out["disk_writes"] = stats.disk_writes;
  return out;
}

void bundle_load(const std::string& path) { fovea::check(fovea_bundle_load(path.c_str())); }

std::string line_value(const std::string& line, const std::string& key) {
  return fovea::report_of(fovea_line_value, line.c_str(), key.c_str());
}

nb::tuple engines() { return nb::tuple(nb::str(fovea_engines()).attr("split")()); }

// --- the lines that FOVEA_VERBOSE asks for, given to a Python function ---

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

void define_process(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  module.def("version", [] { return std::string(fovea_version()); });
  module.def("engines", engines, "Names of all engines, best first.");
  module.def(
      "doctor", [] { return fovea::report_of(fovea_doctor); }, unlocked,
      "What was found on this machine and what was not, with what to do about it.");
  module.def("line_value", line_value, "line"_a, "key"_a,
             "What stands after `key=` in a line, without quotes; '' if it has no such key.");
  module.def("cache_statistics", cache_statistics, "The counters of the cache of plans.");
  module.def("cache_clear", [] { fovea::check(fovea_cache_clear()); }, unlocked);
  module.def(
      "cache_limit",
      [](std::uint64_t plans, std::uint64_t bytes) {
        fovea::check(fovea_cache_limit(plans, bytes));
      },
      "plans"_a = 0, "bytes"_a = 0, unlocked,
      "At most so many plans and bytes; 0: leave as it is.");
  module.def("bundle_load", bundle_load, "path"_a, unlocked,
             "Uses the plans of a file that `fovea compile` wrote, from now on.");
  module.def(
      "release_workspaces", fovea_host::release_workspaces, unlocked,
      "Gives host memory that calls have left for the next ones back to the system; how many bytes.");
  module.def(
      "set_log", set_log, "function"_a.none(),
      "Gives each line that FOVEA_VERBOSE asks for to a function of one text instead of standard error; None: "
      "back to that.");
}

}  // namespace fovea_python
