// From the arguments of a plain eager call to what was made ready for it: fovea/torch/front.py has
// the reasons. One function, in C++, since it is most of what a call does beside the attention, and
// what the interpreter would do for it is out of the caches by then.
#include "reader.h"
#include "viewer.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

class Front {
 public:
  // known: an object with the attributes named here; fovea/torch/front.py has one.
  explicit Front(const nb::object& known)
      : held_viewer_(known.attr("viewer")),
        held_reader_(known.attr("reader")),
        viewer_(nb::cast<const Viewer&>(held_viewer_)),
        reader_(nb::cast<const Reader&>(held_reader_)),
        disturbances_(nb::cast<nb::tuple>(known.attr("disturbances"))),
        is_plain_(known.attr("is_plain")),
        is_grad_enabled_(known.attr("is_grad_enabled")),
        is_deterministic_(known.attr("is_deterministic")),
        environment_(known.attr("environment")),
        variable_(known.attr("variable")),
        place_(known.attr("place")),
        threads_(known.attr("threads")),
        ready_(known.attr("ready")) {}

  nb::object look_up(const nb::tuple& functions, const nb::object& q, const nb::object& k,
                     const nb::object& v, const nb::object& options) const {
    if (is_disturbed() && !nb::cast<bool>(is_plain_())) return nb::none();
    const nb::object grad = is_grad_enabled_();
    nb::list key, tensors;
    key.append(options);
    key.append(grad);
    key.append(is_deterministic_());
    key.append(variable());
    for (const nb::object& x : {q, k, v}) tensors.append(x);
    if (!reader_.look(functions, key, tensors)) return nb::none();
    const nb::object signature = viewer_.signature(tensors, grad.ptr() == Py_True);
    if (signature.is_none()) return nb::none();
    key.append(signature);
    nb::object where;
    if (viewer_.on_host(q.ptr())) {
      where = nb::make_tuple(0, threads_(), false);
    } else {
      where = place_(q);
      key.append(where[2]);  // is a graph being captured?
    }
    const nb::tuple whole(key);
    PyObject* const found = PyDict_GetItemWithError(ready_.ptr(), whole.ptr());
    if (found == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
    return nb::make_tuple(whole, tensors, found == nullptr ? nb::none() : nb::borrow(found), where);
  }

 private:
  bool is_disturbed() const {
    for (const nb::handle function : disturbances_) {
      const nb::object answer = function();
      if (!answer.is_none() && PyObject_IsTrue(answer.ptr()) != 0) return true;
    }
    return false;
  }

  // FOVEA_ENGINE, which may change while a process runs.
  nb::object variable() const {
    PyObject* const found = PyDict_GetItemWithError(environment_.ptr(), variable_.ptr());
    if (found == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
    return found == nullptr ? nb::none() : nb::borrow(found);
  }

  nb::object held_viewer_, held_reader_;
  const Viewer& viewer_;
  const Reader& reader_;
  nb::tuple disturbances_;
  nb::object is_plain_, is_grad_enabled_, is_deterministic_, environment_, variable_, place_,
      threads_;
  nb::object ready_;
};

}  // namespace

void define_front(nb::module_& module) {
  nb::class_<Front>(module, "Front", "Knows plain calls again.")
      .def(nb::init<const nb::object&>(), "known"_a, "An object as fovea.torch.front.Known.")
      .def(
          "look_up", &Front::look_up, "functions"_a, "q"_a.none(), "k"_a.none(),
           "v"_a.none(), "options"_a,
          "(key, [q, k, v, tensors that the functions read], what is kept under the key or None, (stream, "
          "threads, capturing)), or None where a call is not plain.");
}

}  // namespace fovea_python
