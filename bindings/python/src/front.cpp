// From the arguments of a plain eager call to what was made ready for it: fovea/torch/front.py has
// the reasons. One function, in C++, since it is most of what a call does beside the attention, and
// what the interpreter would do for it is out of the caches by then.
#include <nanobind/stl/vector.h>

#include "caller.h"
#include "reader.h"
#include "viewer.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

// A call on the host that takes the pointers of q, k, v and captured tensors and gives one output:
// made and run without going back to Python.
class Quick {
 public:
  // output: what `empty` is called with. slots: which of the tensors that look_up gives are
  // captured, in order.
  Quick(nb::object caller, nb::object empty, nb::tuple output,
        const std::vector<std::size_t>& slots, double scale)
      : held_(std::move(caller)),
        caller_(nb::cast<const Caller&>(held_)),
        empty_(std::move(empty)),
        output_(std::move(output)),
        slots_(slots),
        scale_(scale) {}

  nb::object run(const Viewer& viewer, const Seen& seen, std::int32_t threads) const {
    nb::object o = nb::steal(PyObject_CallObject(empty_.ptr(), output_.ptr()));
    if (!o.is_valid()) nb::raise_python_error();
    std::vector<void*> pointers(seen.pointers.begin(), seen.pointers.begin() + 3);
    pointers.push_back(viewer.pointer(o));
    for (const std::size_t slot : slots_) pointers.push_back(seen.pointers.at(slot));
    caller_.run(pointers, bindings_of(scale_), threads);
    return o;
  }

 private:
  nb::object held_;
  const Caller& caller_;
  nb::object empty_;
  nb::tuple output_;
  std::vector<std::size_t> slots_;
  double scale_;
};

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
    key.append(in_dict(environment_, variable_));  // FOVEA_ENGINE may change while a process runs
    for (const nb::object& x : {q, k, v}) tensors.append(x);
    if (!reader_.look(functions, key, tensors)) return nb::none();
    Seen seen;
    const nb::object signature = viewer_.signature(tensors, grad.ptr() == Py_True, &seen);
    if (signature.is_none()) return nb::none();
    key.append(signature);
    nb::object where;
    if (!seen.on_host) {
      where = place_(q);
      key.append(where[2]);  // is a graph being captured?
    }
    const nb::tuple whole(key);
    const nb::object found = in_dict(ready_, whole);
    if (seen.on_host) {
      const nb::object threads = threads_();
      const nb::object quick = found.is_none() ? nb::none() : nb::object(found.attr(quick_));
      if (!quick.is_none()) {
        const auto& at = nb::cast<const Quick&>(quick);
        return nb::make_tuple(nb::none(), at.run(viewer_, seen, nb::cast<std::int32_t>(threads)));
      }
      where = nb::make_tuple(0, threads, false);
    }
    return nb::make_tuple(whole, tensors, found, where);
  }

 private:
  bool is_disturbed() const {
    for (const nb::handle function : disturbances_) {
      const nb::object answer = function();
      if (!answer.is_none() && PyObject_IsTrue(answer.ptr()) != 0) return true;
    }
    return false;
  }

  static nb::object in_dict(const nb::object& dict, const nb::object& key) {
    PyObject* const found = PyDict_GetItemWithError(dict.ptr(), key.ptr());
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
  nb::str quick_{"quick"};
};

}  // namespace

void define_front(nb::module_& module) {
  nb::class_<Quick>(module, "Quick", "A call that Front makes by itself.")
      .def(nb::init<nb::object, nb::object, nb::tuple, const std::vector<std::size_t>&, double>(),
           "caller"_a, "empty"_a, "output"_a, "slots"_a, "scale"_a);
  nb::class_<Front>(module, "Front", "Knows plain calls again.")
      .def(nb::init<const nb::object&>(), "known"_a, "An object as fovea.torch.front.Known.")
      .def(
          "look_up", &Front::look_up, "functions"_a, "q"_a.none(), "k"_a.none(), "v"_a.none(),
          "options"_a,
          "(key, [q, k, v, tensors that the functions read], what is kept under the key or None, (stream, "
          "threads, capturing)), or None where a call is not plain. (None, output) where what is kept has an "
          "attribute `quick`, which has run.");
}

}  // namespace fovea_python
