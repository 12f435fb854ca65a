#include "symbol.h"

#include <cstring>

#include "steps.h"

namespace fovea_python {
namespace {

PyTypeObject* symbol_type = nullptr;

// Runs what may throw, for a slot of a Python type.
template <typename Body>
PyObject* guarded(Body body) {
  try {
    return body();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Unwritable& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

template <std::uint8_t operation>
PyObject* binary(PyObject* a, PyObject* b) {
  const Symbol& symbol = symbol_of(is_symbol(a) ? a : b);
  return guarded([&] { return symbol.written->write(symbol.steps, operation, a, b); });
}
PyObject* ternary_power(PyObject* a, PyObject* b, PyObject*) {
  return binary<Operation::power>(a, b);
}
template <std::uint8_t operation>
PyObject* unary(PyObject* a) {
  const Symbol& symbol = symbol_of(a);
  return guarded([&] { return symbol.written->write(symbol.steps, operation, a, nullptr); });
}
PyObject* compare(PyObject* a, PyObject* b, int how) {
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
  const Symbol& symbol = symbol_of(a);
  const auto operation = static_cast<std::uint8_t>(Operation::lt + how);
  return guarded([&] { return symbol.written->write(symbol.steps, operation, a, b); });
}

// The symbol with a type, which answers what has no step. For most questions it raises.
nb::object known(PyObject* self) {
  return symbol_of(self).written->known_value(symbol_of(self).steps, symbol_of(self).number);
}
template <PyObject* (*ask)(PyObject*)>
PyObject* asked(PyObject* self) {
  return guarded([&] { return ask(known(self).ptr()); });
}
// The answer of a function of the C interface: -1, with an error set, if it fails.
template <typename Ask>
Py_ssize_t answered(PyObject* self, Ask ask) {
  Py_ssize_t answer = -1;
  PyObject* const done = guarded([&] {
    answer = ask(known(self).ptr());
    return answer < 0 ? nullptr : Py_None;  // borrowed: nothing is returned
  });
  return done == nullptr ? -1 : answer;
}
int is_true(PyObject* self) { return static_cast<int>(answered(self, PyObject_IsTrue)); }
Py_ssize_t length(PyObject* self) { return answered(self, PyObject_Size); }
int contains(PyObject* self, PyObject* x) {
  return static_cast<int>(answered(self, [&](PyObject* in) { return PySequence_Contains(in, x); }));
}
int set_item(PyObject* self, PyObject* index, PyObject* value) {
  return static_cast<int>(
      answered(self, [&](PyObject* into) { return PyObject_SetItem(into, index, value); }));
}
// One symbol for each item that there is.
PyObject* iterate(PyObject* self) {
  const Py_ssize_t count = length(self);
  if (count < 0) {  // the error of the symbol with a type
    PyErr_Clear();
    return asked<PyObject_GetIter>(self);
  }
  return guarded([&] {
    nb::list items;
    for (Py_ssize_t i = 0; i < count; ++i) {
      items.append(nb::steal(PyObject_GetItem(self, nb::int_(i).ptr())));
    }
    return PyObject_GetIter(items.ptr());
  });
}
PyObject* attribute(PyObject* self, PyObject* name) {
  PyObject* const own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return own;
  if (std::strncmp(PyUnicode_AsUTF8(name), "__", 2) == 0) return nullptr;
  PyErr_Clear();
  return guarded([&] {
    if (!symbol_of(self).written->is_method(name)) {
      return nb::getattr(known(self), nb::handle(name)).release().ptr();
    }
    const nb::object method = nb::handle(symbol_of(self).steps).attr("method");
    const nb::object partial = nb::module_::import_("functools").attr("partial");
    return partial(method, nb::handle(name), nb::handle(self)).release().ptr();
  });
}
PyObject* torch_function(PyObject*, PyObject* given) {
  return guarded([&] {
    const nb::tuple all = nb::borrow<nb::tuple>(given);  // function, types, arguments, named ones
    PyObject* const found = find_symbol(all.ptr());
    if (found == nullptr) return nb::handle(Py_NotImplemented).inc_ref().ptr();
    const Symbol& symbol = symbol_of(found);
    const nb::object named = all.size() > 3 ? nb::object(all[3]) : nb::none();
    return symbol.written->call(symbol.steps, all[0], nb::cast<nb::tuple>(all[2]), named, true)
        .release()
        .ptr();
  });
}
void destroy(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_DECREF(symbol_of(self).steps);
  type->tp_free(self);
  Py_DECREF(type);
}

template <typename Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

PyMethodDef symbol_methods[] = {
    {"__torch_function__", torch_function, METH_VARARGS | METH_CLASS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

bool is_symbol(PyObject* x) { return Py_TYPE(x) == symbol_type; }

PyObject* find_symbol(PyObject* x) {
  if (is_symbol(x)) return x;
  if (PyDict_CheckExact(x)) return find_symbol(nb::steal(PyDict_Values(x)).ptr());
  if (!PyTuple_Check(x) && !PyList_Check(x)) return nullptr;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(x); ++i) {
    PyObject* const found = find_symbol(PySequence_Fast_GET_ITEM(x, i));
    if (found != nullptr) return found;
  }
  return nullptr;
}

nb::object make_symbol(const nb::handle& steps, Steps& written, std::uint32_t number) {
  auto* const made = PyObject_New(Symbol, symbol_type);
  if (made == nullptr) nb::raise_python_error();
  made->steps = steps.inc_ref().ptr();
  made->written = &written;
  made->number = number;
  return nb::steal(reinterpret_cast<PyObject*>(made));
}

void define_symbol(nb::module_& module) {
  PyType_Slot slots[] = {
      {Py_nb_add, slot(binary<Operation::add>)},
      {Py_nb_subtract, slot(binary<Operation::sub>)},
      {Py_nb_multiply, slot(binary<Operation::mul>)},
      {Py_nb_true_divide, slot(binary<Operation::truediv>)},
      {Py_nb_floor_divide, slot(binary<Operation::floordiv>)},
      {Py_nb_remainder, slot(binary<Operation::mod>)},
      {Py_nb_power, slot(ternary_power)},
      {Py_nb_and, slot(binary<Operation::conjunction>)},
      {Py_nb_or, slot(binary<Operation::disjunction>)},
      {Py_nb_xor, slot(binary<Operation::exclusive>)},
      {Py_nb_lshift, slot(binary<Operation::lshift>)},
      {Py_nb_rshift, slot(binary<Operation::rshift>)},
      {Py_nb_negative, slot(unary<Operation::negative>)},
      {Py_nb_positive, slot(unary<Operation::positive>)},
      {Py_nb_absolute, slot(unary<Operation::absolute>)},
      {Py_nb_invert, slot(unary<Operation::inverse>)},
      {Py_nb_bool, slot(is_true)},
      {Py_nb_int, slot(asked<PyNumber_Long>)},
      {Py_nb_float, slot(asked<PyNumber_Float>)},
      {Py_nb_index, slot(asked<PyNumber_Index>)},
      {Py_mp_subscript, slot(binary<Operation::item>)},
      {Py_mp_ass_subscript, slot(set_item)},
      {Py_mp_length, slot(length)},
      {Py_sq_contains, slot(contains)},
      {Py_tp_richcompare, slot(compare)},
      {Py_tp_hash, slot(PyObject_HashNotImplemented)},
      {Py_tp_iter, slot(iterate)},
      {Py_tp_getattro, slot(attribute)},
      {Py_tp_repr, slot(asked<PyObject_Repr>)},
      {Py_tp_dealloc, slot(destroy)},
      {Py_tp_methods, symbol_methods},
      {0, nullptr},
  };
  PyType_Spec spec{"fovea._core.Symbol", sizeof(Symbol), 0, Py_TPFLAGS_DEFAULT, slots};
  const nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) nb::raise_python_error();
  symbol_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  type.attr("__array_ufunc__") = nb::none();  // so that NumPy's numbers leave operators to symbols
  module.attr("Symbol") = type;
}

}  // namespace fovea_python
