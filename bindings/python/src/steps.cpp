#include "steps.h"

#include <nanobind/stl/vector.h>

#include <climits>
#include <cstring>
#include <iterator>

#include "symbol.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

// Operators by their names in Python's module `operator`, in the order of Operation.
// clang-format off
constexpr const char* operators[] = {
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift",
    "lt", "le", "eq", "ne", "gt", "ge", "getitem", "neg", "pos", "abs", "invert",
};
// clang-format on
static_assert(std::size(operators) == Operation::function);

nb::object operator_of(std::uint8_t operation) {
  return nb::module_::import_("operator").attr(operators[operation]);
}

bool holds_symbol(const nb::tuple& arguments, const nb::handle& named) {
  if (find_symbol(arguments.ptr()) != nullptr) return true;
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; !named.is_none() && PyDict_Next(named.ptr(), &at, &name, &value) != 0;) {
    if (find_symbol(value) != nullptr) return true;
  }
  return false;
}

bool is_position(PyObject* x) {
  return is_symbol(x) && (symbol_of(x).number == 4 || symbol_of(x).number == 5);  // q, k
}

}  // namespace

Steps::Steps(nb::object hooks, nb::object like, bool on_host, bool binds_shifts)
    : hooks_(std::move(hooks)),
      like_(std::move(like)),
      methods_(hooks_.attr("methods")),
      constants_(hooks_.attr("constants")),
      is_grad_enabled_(hooks_.attr("is_grad_enabled")),
      types_(nb::cast<nb::tuple>(hooks_.attr("tensors"))),
      on_host_(on_host),
      binds_shifts_(binds_shifts),
      with_gradients_(nb::cast<bool>(is_grad_enabled_())) {}

void Steps::run(const nb::handle& self, const nb::tuple& modifiers) {
  nb::object leaves[6];
  for (nb::object& leaf : leaves) leaf = next_symbol(self);
  PyObject *score = leaves[0].ptr(), *grad = leaves[1].ptr();
  PyObject *b = leaves[2].ptr(), *h = leaves[3].ptr(), *q = leaves[4].ptr(), *k = leaves[5].ptr();
  PyObject* const taken[][6] = {{score, b, h, q, k}, {b, h, q, k}, {grad, score, b, h, q, k}};
  const std::size_t counts[] = {5, 4, 6};
  for (std::size_t i = 0; i < modifiers.size(); ++i) {
    const nb::object modifier = modifiers[i];
    const bool is_function = !modifier.is_none() && !PyUnicode_CheckExact(modifier.ptr());
    nb::object result = modifier;
    if (is_function) {
      result = nb::steal(PyObject_Vectorcall(modifier.ptr(), taken[i], counts[i], nullptr));
      if (!result.is_valid()) nb::raise_python_error();
    }
    finish(result.ptr(), is_function);
  }
}

nb::object Steps::next_symbol(const nb::handle& self) { return make_symbol(self, *this, count_++); }

// --- writing ---

// If a modifier has caught the exception of a step, only half of that step is written. Steps under
// torch.no_grad() or in an autograd.Function have another derivative than their formula, or none.
void Steps::begin_step() {
  if (broken_ || (with_gradients_ && is_grad_enabled_().ptr() != Py_True)) throw Unwritable{};
  broken_ = true;
}

void Steps::add_number(std::uint64_t number, int bytes) {
  text_.append(reinterpret_cast<const char*>(&number), static_cast<std::size_t>(bytes));
}

void Steps::add_object(PyObject* object) {
  add_number(objects_.size(), 4);
  objects_.append(nb::handle(object));
}

void Steps::add_operand(PyObject* x) {
  if (is_symbol(x)) {
    if (symbol_of(x).written != this) throw Unwritable{};
    text_ += 'S';
    add_number(symbol_of(x).number, 4);
  } else if (PyBool_Check(x)) {
    text_ += x == Py_True ? '1' : '0';
  } else if (PyFloat_Check(x)) {
    const double value = PyFloat_AS_DOUBLE(x);
    text_ += 'F';
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  } else if (PyLong_Check(x)) {
    int overflows = 0;
    const long long value = PyLong_AsLongLongAndOverflow(x, &overflows);
    text_ += overflows != 0 ? 'O' : 'I';
    overflows != 0 ? add_object(x) : add_number(static_cast<std::uint64_t>(value), 8);
  } else if (x == Py_None) {
    text_ += 'N';
  } else if (PyTuple_Check(x)) {
    add_sequence('(', x);
  } else {
    for (const nb::handle type : types_) {
      if (type.ptr() == reinterpret_cast<PyObject*>(Py_TYPE(x))) return add_tensor(x);
    }
    add_foreign(x);
  }
}

// A number beside q or k itself (a decoder's q + offset), or beside a sum with such a number, may
// be another one in the next call, and is bound as a scalar. Other numbers are part of the
// formula, since engines need their values: widths of windows, offsets of tables by k - q.
void Steps::add_sum(PyObject* first, PyObject* second) {
  const auto is_moved = [&](PyObject* x) {
    return is_symbol(x) && moved_.count(symbol_of(x).number) != 0;
  };
  bool result_moved = is_moved(first) || is_moved(second);
  const bool moves = result_moved || is_position(first) || is_position(second);
  for (PyObject* const x : {first, second}) {
    if (moves && add_shift(x)) {
      result_moved = true;
    } else {
      add_operand(x);
    }
  }
  if (result_moved) moved_.insert(count_);
}

// Of a position with a number: how much of a cache is filled (k < 77). On GPUs such a number stays
// in the formula.
void Steps::add_comparison(PyObject* first, PyObject* second) {
  const bool binds = on_host_ && (is_position(first) || is_position(second));
  for (PyObject* const x : {first, second}) {
    if (!binds || !add_shift(x)) add_operand(x);
  }
}

// False if x is no integer of 32 bits.
bool Steps::add_shift(PyObject* x) {
  int overflows = 0;
  const long value = PyLong_CheckExact(x) ? PyLong_AsLongAndOverflow(x, &overflows) : LONG_MAX;
  if (overflows != 0 || value < INT32_MIN || value > INT32_MAX) return false;
  text_ += value < 0 ? '-' : '+';
  shifts_.push_back(static_cast<double>(value));
  return true;
}

void Steps::add_sequence(char tag, PyObject* items) {
  text_ += tag;
  add_number(static_cast<std::uint64_t>(PySequence_Fast_GET_SIZE(items)), 4);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    add_operand(PySequence_Fast_GET_ITEM(items, i));
  }
}

void Steps::add_tensor(PyObject* x) {
  Py_ssize_t at = 0;
  const auto count = static_cast<Py_ssize_t>(tensors_.size());
  while (at < count && PyList_GET_ITEM(tensors_.ptr(), at) != x) ++at;
  if (at == count) {
    if (!on_host_) {
      const nb::object number = hooks_.attr("number_in")(nb::handle(x));
      if (!number.is_none()) {  // the key has the number, a replay the tensor itself
        text_ += 'C';
        add_number(host_numbers_.size(), 4);
        host_numbers_.append(nb::handle(x));
        return add_operand(number.ptr());
      }
    }
    tensors_.append(nb::handle(x));
  }
  text_ += 'T';
  add_number(static_cast<std::uint64_t>(at), 4);
}

void Steps::add_foreign(PyObject* x) {
  if (PyList_Check(x)) return add_sequence('[', x);
  if (PySlice_Check(x)) {
    text_ += '/';
    for (const char* end : {"start", "stop", "step"}) add_operand(nb::handle(x).attr(end).ptr());
    return;
  }
  const bool is_constant =
      PyUnicode_CheckExact(x) || x == Py_Ellipsis ||
      PySet_Contains(constants_.ptr(), reinterpret_cast<PyObject*>(Py_TYPE(x))) == 1;
  if (!is_constant) {
    const nb::object number = hooks_.attr("number_of")(nb::handle(x));
    if (number.is_none()) throw Unwritable{};
    return add_operand(number.ptr());
  }
  text_ += 'O';
  add_object(x);
}

PyObject* Steps::write(PyObject* self, std::uint8_t operation, PyObject* first, PyObject* second) {
  begin_step();
  text_ += static_cast<char>(operation);
  if (binds_shifts_ && (operation == Operation::add || operation == Operation::sub)) {
    add_sum(first, second);
  } else if (binds_shifts_ && Operation::lt <= operation && operation <= Operation::ge) {
    add_comparison(first, second);
  } else {
    add_operand(first);
    if (second != nullptr) add_operand(second);
  }
  broken_ = false;
  return next_symbol(self).release().ptr();
}

void Steps::add_call(const nb::object& function, const nb::tuple& arguments,
                     const nb::handle& named, std::uint8_t operation) {
  begin_step();
  text_ += static_cast<char>(operation);
  add_object(function.ptr());
  add_sequence('(', arguments.ptr());
  add_number(named.is_none() ? 0 : static_cast<std::uint64_t>(PyDict_Size(named.ptr())), 4);
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; !named.is_none() && PyDict_Next(named.ptr(), &at, &name, &value) != 0;) {
    add_object(name);
    add_operand(value);
  }
  broken_ = false;
}

nb::object Steps::call(const nb::handle& self, const nb::object& function,
                       const nb::tuple& arguments, const nb::handle& named, bool always) {
  if (!always && !holds_symbol(arguments, named)) return nb::none();
  add_call(function, arguments, named, Operation::function);
  return next_symbol(self);
}

nb::object Steps::method(const nb::handle& self, const nb::str& name, const nb::args& arguments,
                         const nb::kwargs& named) {
  add_call(name, arguments, named, Operation::named_method);
  return next_symbol(self);
}

void Steps::finish(PyObject* result, bool is_function) {
  begin_step();
  text_ += static_cast<char>(Operation::finished);
  text_ += is_function ? '1' : '0';
  add_operand(result);
  broken_ = false;
}

void Steps::add_to(const nb::list& key) const {
  nb::list into = key;
  into.append(nb::bytes(text_.data(), text_.size()));
  for (const nb::handle object : objects_) into.append(object);
}

// --- replaying ---

std::uint64_t Steps::read_number(int bytes) {
  std::uint64_t number = 0;
  std::memcpy(&number, text_.data() + read_, static_cast<std::size_t>(bytes));
  read_ += static_cast<std::size_t>(bytes);
  return number;
}

nb::object Steps::read_object() { return objects_[read_number(4)]; }

nb::object Steps::read_sequence(const nb::list& values, bool as_tuple) {
  nb::list items;
  for (std::uint64_t left = read_number(4); left > 0; --left) items.append(read_operand(values));
  return as_tuple ? nb::object(nb::tuple(items)) : nb::object(items);
}

nb::object Steps::read_operand(const nb::list& values) {
  switch (text_[read_++]) {
    case 'S': return values[read_number(4)];
    case '1': return nb::bool_(true);
    case '0': return nb::bool_(false);
    case 'I': return nb::int_(static_cast<std::int64_t>(read_number(8)));
    case 'N': return nb::none();
    case '+':
    case '-': return shift_(static_cast<std::int64_t>(shifts_[read_shifts_++]));
    case 'T': return tensors_[read_number(4)];
    case 'C': {
      const std::uint64_t i = read_number(4);
      read_operand(values);
      return host_numbers_[i];
    }
    case '(': return read_sequence(values, true);
    case '[': return read_sequence(values, false);
    case 'O': return read_object();
    case 'F': {
      double value = 0;
      std::memcpy(&value, text_.data() + read_, sizeof value);
      read_ += sizeof value;
      return nb::float_(value);
    }
    default: break;  // '/'
  }
  nb::object ends[3];
  for (nb::object& end : ends) end = read_operand(values);
  return nb::steal(PySlice_New(ends[0].ptr(), ends[1].ptr(), ends[2].ptr()));
}

nb::object Steps::run_step(std::uint8_t operation, const nb::list& values) {
  if (operation < Operation::function) {
    const nb::object first = read_operand(values);
    if (operation >= Operation::negative) return operator_of(operation)(first);
    return operator_of(operation)(first, read_operand(values));
  }
  nb::object called = read_object();
  ++read_;  // the tag of the arguments
  nb::tuple arguments = nb::borrow<nb::tuple>(read_sequence(values, true));
  nb::dict named;
  for (std::uint64_t left = read_number(4); left > 0; --left) {
    const nb::object name = read_object();
    named[name] = read_operand(values);
  }
  if (operation == Operation::named_method) {
    called = nb::getattr(arguments[0], called);
    arguments = nb::steal<nb::tuple>(PyTuple_GetSlice(arguments.ptr(), 1, PY_SSIZE_T_MAX));
  }
  return called(*arguments, **named);
}

nb::object Steps::replay(const nb::list& values, const nb::object& shift) {
  nb::list into = values;
  shift_ = shift;
  while (read_ < text_.size()) {
    const auto operation = static_cast<std::uint8_t>(text_[read_++]);
    if (operation == Operation::finished) {
      const bool is_function = text_[read_++] == '1';
      return nb::make_tuple(is_function, read_operand(values));
    }
    into.append(run_step(operation, values));
  }
  return nb::none();
}

nb::object Steps::known_value(const nb::handle& self, std::uint32_t symbol) const {
  return hooks_.attr("known_value")(self, symbol);
}

bool Steps::is_method(const nb::handle& name) const {
  return PySet_Contains(methods_.ptr(), name.ptr()) == 1;
}

void define_steps(nb::module_& module) {
  nb::class_<Steps>(module, "Steps", "What modifiers do to symbols, step by step.")
      .def(nb::init<nb::object, nb::object, bool, bool>(), "hooks"_a, "like"_a, "on_host"_a,
           "binds_shifts"_a,
           "hooks: an object as fovea.torch.steps.Hooks. on_host: does the call run on the host?")
      .def(
          "run",
          [](const nb::handle& self, const nb::tuple& modifiers) {
            nb::inst_ptr<Steps>(self)->run(self, modifiers);
          },
          "modifiers"_a,
          "Runs score_mod, mask_mod and a derivative by hand, and writes down what they do.")
      .def(
          "call",
          [](const nb::handle& self, const nb::object& function, const nb::tuple& arguments,
             const nb::handle& named, bool always) {
            return nb::inst_ptr<Steps>(self)->call(self, function, arguments, named, always);
          },
          "function"_a, "arguments"_a, "named"_a.none(), "always"_a = false,
          "Writes a call down and gives its symbol; None if no argument is a symbol.")
      .def(
          "method",
          [](const nb::handle& self, const nb::str& name, const nb::args& arguments,
             const nb::kwargs& named) {
            return nb::inst_ptr<Steps>(self)->method(self, name, arguments, named);
          },
          "Writes a call of a method down; the first argument is whose.")
      .def(
          "replay", &Steps::replay, "values"_a, "shift"_a,
          "Does the steps up to the end of a modifier on the objects in `values`; (is it a function?, what it returned), "
          "or None at the end of the steps. shift: a function of a number that moves a position.")
      .def(
          "key",
          [](const Steps& self) {
            nb::list key;
            self.add_to(key);
            return nb::tuple(key);
          },
          "What identifies the steps, but for their tensors.")
      .def_rw("replayed", &Steps::replayed)
      .def_prop_ro("like", [](const Steps& self) { return self.like(); })
      .def_prop_ro("tensors", [](const Steps& self) { return self.tensors(); })
      .def_prop_ro("shifts", [](const Steps& self) { return nb::tuple(nb::cast(self.shifts())); });
}

}  // namespace fovea_python
