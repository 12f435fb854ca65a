// Finds the prepared plan of a call from its arguments, and runs it: see fovea/torch/call_cache.py.
// In C++, since this is most of the host's time of a small call.
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "plan.h"
#include "steps.h"
#include "viewer.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

nb::object environment_engine() {
  const char* const name = std::getenv("FOVEA_ENGINE");
  return name == nullptr ? nb::none() : nb::object(nb::str(name));
}

// What a call binds beside tensors, and where it runs.
struct Bound {
  double scale;
  const std::vector<double>& scalars;
  std::int32_t threads = 0;
  void* stream = nullptr;
};

// A call that binds nothing but tensors and numbers: made and run without going back to Python.
class DirectCall {
 public:
  // empty_like: the framework's function. outputs: for each the number of a tensor that it is
  // allocated like, or a function that allocates it. pointers: what the caller takes, in order: a
  // tensor of the call by its number, or ~i for output i. returned: outputs by number; a negative
  // one is None. workspace: a function that allocates it, with its bytes; or None.
  DirectCall(nb::object caller, nb::object empty_like, nb::tuple outputs,
             std::vector<std::int64_t> pointers, std::vector<std::int64_t> returned,
             const nb::object& workspace)
      : held_(std::move(caller)),
        caller_(nb::cast<const Caller&>(held_)),
        empty_like_(std::move(empty_like)),
        outputs_(std::move(outputs)),
        pointers_(std::move(pointers)),
        returned_(std::move(returned)) {
    if (workspace.is_none()) return;
    new_workspace_ = workspace[0];
    workspace_bytes_ = nb::cast<std::size_t>(workspace[1]);
  }

  nb::object run(const Viewer& viewer, const Seen& seen, const nb::list& tensors,
                 const Bound& bound) const {
    std::vector<nb::object> made;
    std::vector<void*> new_memory;
    for (const nb::handle make : outputs_) {
      made.push_back(PyLong_Check(make.ptr()) ? empty_like_(tensors[nb::cast<std::size_t>(make)])
                                              : make());
      new_memory.push_back(viewer.pointer(made.back()));
    }
    std::vector<void*> pointers;
    for (const std::int64_t i : pointers_) {
      pointers.push_back(i < 0 ? new_memory.at(static_cast<std::size_t>(~i))
                               : seen.pointers.at(static_cast<std::size_t>(i)));
    }
    fovea_bindings bindings = bindings_of(bound.scale);
    bindings.stream = bound.stream;
    nb::object workspace;  // the framework reuses its memory in the order of the stream
    if (workspace_bytes_ != 0) {
      workspace = new_workspace_();
      bindings.workspace = viewer.pointer(workspace);
      bindings.workspace_bytes = workspace_bytes_;
    }
    caller_.run(pointers, bound.scalars, bindings, bound.threads);
    nb::list out;
    for (const std::int64_t i : returned_) {
      out.append(i < 0 ? nb::none() : made.at(static_cast<std::size_t>(i)));
    }
    return nb::tuple(out);
  }

 private:
  nb::object held_;
  const Caller& caller_;
  nb::object empty_like_, new_workspace_;
  nb::tuple outputs_;
  std::vector<std::int64_t> pointers_, returned_;
  std::size_t workspace_bytes_ = 0;
};

class CallCache {
 public:
  // facts: an object with the attributes named here; fovea.torch.call_cache has one.
  explicit CallCache(const nb::object& facts)
      : held_viewer_(facts.attr("viewer")),
        viewer_(nb::cast<const Viewer&>(held_viewer_)),
        is_grad_enabled_(facts.attr("is_grad_enabled")),
        is_deterministic_(facts.attr("is_deterministic")),
        place_(facts.attr("place")),
        threads_(facts.attr("threads")),
        table_(facts.attr("table")) {}

  nb::object look_up(const nb::object& options, const nb::object& written, nb::list tensors,
                     double scale, const std::vector<double>& scalars) const {
    const nb::object grad = is_grad_enabled_();
    nb::list key;
    key.append(options);
    key.append(grad);
    key.append(is_deterministic_());
    key.append(environment_engine());  // may change while a process runs
    const Steps* steps = nullptr;
    if (nb::try_cast(written, steps) && steps != nullptr) {
      steps->add_to(key);
      tensors.extend(steps->tensors());
    } else {
      key.append(written);
    }
    Seen seen;
    const nb::object signature = viewer_.signature(tensors, grad.ptr() == Py_True, &seen);
    if (signature.is_none()) return nb::none();
    key.append(signature);
    nb::object where;
    if (!seen.on_host) {
      where = place_(tensors[0]);
      key.append(where[2]);  // is a graph being captured?
    }
    return found(nb::tuple(key), tensors, seen, where,
                 {scale, steps == nullptr ? scalars : steps->shifts()});
  }

 private:
  nb::object found(const nb::object& key, const nb::list& tensors, const Seen& seen,
                   nb::object where, Bound bound) const {
    PyObject* const kept = PyDict_GetItemWithError(table_.ptr(), key.ptr());
    if (kept == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
    const nb::object ready = kept == nullptr ? nb::none() : nb::borrow(kept);
    const nb::object direct = ready.is_none() ? nb::none() : nb::object(ready.attr(direct_));
    if (seen.on_host) {
      bound.threads = nb::cast<std::int32_t>(threads_());
    } else {
      bound.stream = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(where[0]));
    }
    if (!direct.is_none()) {
      const nb::object outputs =
          nb::cast<const DirectCall&>(direct).run(viewer_, seen, tensors, bound);
      return nb::make_tuple(nb::none(), tensors, ready, outputs);
    }
    if (seen.on_host) where = nb::make_tuple(0, bound.threads, false);
    return nb::make_tuple(key, tensors, ready, where);
  }

  nb::object held_viewer_;
  const Viewer& viewer_;
  nb::object is_grad_enabled_, is_deterministic_, place_, threads_, table_;
  nb::str direct_{"direct"};
};

}  // namespace

void define_call_cache(nb::module_& module) {
  module.def("environment_engine", environment_engine, "FOVEA_ENGINE, or None.");
  nb::class_<DirectCall>(module, "DirectCall", "A call that CallCache makes by itself.")
      .def(nb::init<nb::object, nb::object, nb::tuple, std::vector<std::int64_t>,
                    std::vector<std::int64_t>, const nb::object&>(),
           "caller"_a, "empty_like"_a, "outputs"_a, "pointers"_a, "returned"_a,
           "workspace"_a.none());
  nb::class_<CallCache>(module, "CallCache", "Finds what was made ready for a call before.")
      .def(nb::init<const nb::object&>(), "facts"_a, "An object as fovea.torch.call_cache.Facts.")
      .def(
          "look_up", &CallCache::look_up, "options"_a, "written"_a.none(), "tensors"_a, "scale"_a,
          "scalars"_a,
          "(key, tensors with those of the steps, what is kept under the key or None, (stream, threads, "
          "capturing)), or None if a tensor can't be looked at. (None, tensors, what is kept, outputs) if that has "
          "an attribute `direct`, which has run. scalars: their values, if there are no steps that know them.");
}

}  // namespace fovea_python
