// Reads from outside what a modifier would read, at every call: closure cells, globals, bound
// arguments, defaults, and what they are made of. fovea/torch/reads.py says which these are,
// fovea/torch/memory.py what each kind of value is to the key; this walks. In C++ since the
// interpreter's own code is out of the caches after an attention, and the walk is in every call.
#include "reader.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

enum Kind { global = 0, cell = 1, bound = 2 };  // as in reads.py
constexpr int deepest = 8;

bool contains(const nb::object& set, PyObject* item) {
  const int answer = PySet_Contains(set.ptr(), item);
  if (answer < 0) nb::raise_python_error();
  return answer == 1;
}
PyObject* type_of(PyObject* x) { return reinterpret_cast<PyObject*>(Py_TYPE(x)); }

// There is something that cannot be compared.
struct Forgettable {};

// The value of a call that may have raised. What a modifier would raise is the modifier's to raise.
nb::object readable(PyObject* made) {
  if (made != nullptr) return nb::steal(made);
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) nb::raise_python_error();
  PyErr_Clear();
  throw Forgettable{};
}

// One walk: what is compared goes to `key`, tensors go to `tensors` and leave a mark in the key.
class Walk {
 public:
  Walk(const Rules& rules, nb::list key, nb::list tensors)
      : rules_(rules), key_(std::move(key)), tensors_(std::move(tensors)) {}

  void look_into(nb::object function, int depth) {
    nb::tuple arguments;
    nb::object named = nb::none();
    if (!PyFunction_Check(function.ptr())) {
      const nb::object parts = rules_.parts_of(function);
      if (parts.is_none()) throw Forgettable{};
      arguments = nb::cast<nb::tuple>(parts[1]);
      if (PyDict_Size(nb::object(parts[2]).ptr()) > 0) named = parts[2];
      function = parts[0];
    }
    PyObject* const globals = PyFunction_GetGlobals(function.ptr());
    if (depth == 0 || !PyDict_CheckExact(globals)) throw Forgettable{};
    const nb::object code = nb::borrow(PyFunction_GetCode(function.ptr()));
    const nb::object record = record_of(code);
    const nb::object reads = reads_of(record, code, arguments, named);
    if (reads.is_none()) throw Forgettable{};
    key_.append(record);
    key_.append(nb::int_(arguments.size()));
    if (!named.is_none()) key_.append(nb::tuple(named));
    for (const nb::handle read : reads) take_read(function, arguments, named, read, depth);
    take_defaults(function, depth);
  }

 private:
  nb::object record_of(const nb::object& code) const {
    const nb::object number = nb::steal(PyLong_FromVoidPtr(code.ptr()));
    PyObject* const found = PyDict_GetItemWithError(rules_.records.ptr(), number.ptr());
    if (found == nullptr && PyErr_Occurred() != nullptr) nb::raise_python_error();
    if (found != nullptr) {
      const nb::object record = nb::borrow(found);
      if (nb::object(record.attr(rules_.code))().is(code)) return record;
    }
    return rules_.record_of(code);
  }

  nb::object reads_of(const nb::object& record, const nb::object& code, const nb::tuple& arguments,
                      const nb::object& named) const {
    if (arguments.size() == 0 && named.is_none()) {
      const nb::object reads = record.attr(rules_.plain);
      if (!reads.is(rules_.unknown)) return reads;
    }
    const nb::tuple names = named.is_none() ? nb::make_tuple() : nb::tuple(named);
    return rules_.reads_of(record, code, arguments.size(), names);
  }

  void take_read(const nb::object& function, const nb::tuple& arguments, const nb::object& named,
                 const nb::handle read, int depth) {
    PyObject* const place = PyTuple_GET_ITEM(read.ptr(), 1);
    nb::object x;
    switch (PyLong_AsLong(PyTuple_GET_ITEM(read.ptr(), 0))) {
      case Kind::cell: x = in_cell(function, PyLong_AsSsize_t(place)); break;
      case Kind::bound:
        x = PyLong_Check(place) ? nb::object(arguments[PyLong_AsSize_t(place)])
                                : readable(PyObject_GetItem(named.ptr(), place));
        break;
      default: x = in_globals(function, place);
    }
    PyObject* const steps = PyTuple_GET_ITEM(read.ptr(), 2);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) {
      PyObject* const step = PyTuple_GET_ITEM(steps, i);
      x = PyUnicode_Check(step) ? attribute(x, step) : item(x, PyTuple_GET_ITEM(step, 0));
    }
    take(x, depth);
  }

  static nb::object in_cell(const nb::object& function, Py_ssize_t place) {
    PyObject* const held =
        PyCell_GET(PyTuple_GET_ITEM(PyFunction_GetClosure(function.ptr()), place));
    if (held == nullptr) throw Forgettable{};  // not assigned yet
    return nb::borrow(held);
  }

  nb::object in_globals(const nb::object& function, PyObject* name) const {
    PyObject* found = PyDict_GetItemWithError(PyFunction_GetGlobals(function.ptr()), name);
    if (found != nullptr) return nb::borrow(found);
    if (PyErr_Occurred() != nullptr) nb::raise_python_error();
    const nb::object builtins = function.attr(rules_.builtins);
    return readable(PyObject_GetItem(builtins.ptr(), name));
  }

  // As the modifier itself would get it. Of a tensor only what is compared of it anyway; nothing
  // that is computed when it is asked for, since the modifier may not come to ask.
  nb::object attribute(const nb::object& x, PyObject* name) const {
    if (contains(rules_.tensors, type_of(x.ptr()))) {
      if (!contains(rules_.of_tensors, name)) throw Forgettable{};
    } else if (contains(rules_.numbers, type_of(x.ptr()))) {
      throw Forgettable{};
    } else if (PyObject* const descriptor = _PyType_Lookup(Py_TYPE(x.ptr()), name)) {
      const int computes = PyObject_IsInstance(descriptor, rules_.computed.ptr());
      if (computes < 0) nb::raise_python_error();
      if (computes == 1) throw Forgettable{};
    }
    return readable(PyObject_GetAttr(x.ptr(), name));
  }

  nb::object item(const nb::object& x, PyObject* index) const {
    if (!contains(rules_.containers, type_of(x.ptr()))) throw Forgettable{};
    return readable(PyObject_GetItem(x.ptr(), index));
  }

  void take_defaults(const nb::object& function, int depth) {
    PyObject* const values = PyFunction_GetDefaults(function.ptr());
    PyObject* const named = PyFunction_GetKwDefaults(function.ptr());
    if (values == nullptr && named == nullptr) return;
    const nb::tuple positional =
        values == nullptr ? nb::make_tuple() : nb::borrow<nb::tuple>(values);
    key_.append(nb::int_(positional.size()));
    for (const nb::handle value : positional) take(nb::borrow(value), depth);
    if (named == nullptr) return;
    for (const nb::handle pair : nb::steal<nb::list>(PyDict_Items(named))) {
      key_.append(pair[0]);
      take(pair[1], depth);
    }
  }

  // Adds what there is to compare of a value.
  void take(const nb::object& x, int depth) {
    PyObject* const kind = type_of(x.ptr());
    if (contains(rules_.tensors, kind)) {
      key_.append(nb::handle(Py_Ellipsis));
      tensors_.append(x);
    } else if (contains(rules_.numbers, kind)) {
      const bool is_zero = PyFloat_CheckExact(x.ptr()) && PyFloat_AS_DOUBLE(x.ptr()) == 0.0;
      key_.append(nb::handle(kind));
      key_.append(is_zero ? nb::object(nb::repr(x)) : x);  // 0.0 == -0.0
    } else if (!contains(rules_.functions, kind)) {
      throw Forgettable{};
    } else if (!contains(rules_.always_walked, kind) && contains(rules_.known, x.ptr())) {
      key_.append(x);
    } else {
      look_into(x, depth - 1);
    }
  }

  const Rules& rules_;
  nb::list key_, tensors_;
};

}  // namespace

Rules::Rules(const nb::object& from)
    : tensors(from.attr("tensors")),
      numbers(from.attr("numbers")),
      functions(from.attr("functions")),
      containers(from.attr("containers")),
      always_walked(from.attr("always_walked")),
      known(from.attr("known")),
      of_tensors(from.attr("of_tensors")),
      computed(from.attr("computed")),
      records(from.attr("records")),
      record_of(from.attr("record_of")),
      reads_of(from.attr("reads_of")),
      parts_of(from.attr("parts_of")),
      unknown(from.attr("unknown")) {}

bool Reader::look(const nb::tuple& modifiers, const nb::list& key, const nb::list& tensors) const {
  Walk walk(rules_, key, tensors);
  try {
    for (const nb::handle modifier : modifiers) {
      if (modifier.is_none() || PyUnicode_CheckExact(modifier.ptr())) {
        nb::borrow<nb::list>(key).append(modifier);
      } else {
        walk.look_into(nb::borrow(modifier), deepest);
      }
    }
  } catch (const Forgettable&) {
    return false;
  }
  return true;
}

void define_reader(nb::module_& module) {
  nb::class_<Reader>(module, "Reader", "Reads what modifiers read from outside.")
      .def(nb::init<const nb::object&>(), "rules"_a,
           "An object with the attributes of fovea.torch.memory.Rules.")
      .def(
          "look", &Reader::look, "modifiers"_a, "key"_a, "tensors"_a,
          "Adds what these functions, texts or Nones read to the list `key`, and tensors among it to `tensors`. "
          "False where there is something that can't be compared; the lists are then of no use.");
}

}  // namespace fovea_python
