// What a modifier runs on: an object that stands for a number and records in Steps every operator,
// index, method and function that it meets. It has no type and no value. Questions that a step
// cannot answer (its dtype, its truth, its length) go to the symbol that replaying gives.
#pragma once

#include <cstdint>
#include <exception>

#include "module.h"

namespace fovea_python {

class Steps;

// In the order of the operators in steps.cpp; the last ones are not operators.
// clang-format off
enum Operation : std::uint8_t {
  add, sub, mul, truediv, floordiv, mod, power, conjunction, disjunction, exclusive, lshift, rshift,
  lt, le, eq, ne, gt, ge, item, negative, positive, absolute, inverse,
  function, named_method, finished,
};
// clang-format on

struct Symbol {
  PyObject head;
  PyObject* steps;  // the object of Python, which is kept alive
  Steps* written;   // the same
  std::uint32_t number;
};

// Thrown for what has no step.
struct Unwritable : std::exception {
  const char* what() const noexcept override { return "a modifier meets what no step can hold"; }
};

bool is_symbol(PyObject* x);
inline Symbol& symbol_of(PyObject* x) { return *reinterpret_cast<Symbol*>(x); }

// The first symbol in an object or in the sequences and dicts that it is made of; or nullptr.
PyObject* find_symbol(PyObject* x);

nb::object make_symbol(const nb::handle& steps, Steps& written, std::uint32_t number);

}  // namespace fovea_python
