// What a modifier does to symbols, recorded step by step: operators, functions of the framework and
// indices, with the values of numbers and the positions of tensors. Two runs with the same steps
// compute the same. Types and rules of the formula language are not part of this: to get a formula,
// the steps are replayed on symbols that know them (fovea/torch/steps.py).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "module.h"

namespace fovea_python {

class Steps {
 public:
  // hooks: an object with the attributes that fovea.torch.steps.Hooks has. like: the query, which
  // hooks may ask for. on_host: does the call run on the host? Elsewhere, tensors of one number on
  // the host are written as that number. binds_shifts: are numbers that move positions bound?
  Steps(nb::object hooks, nb::object like, bool on_host, bool binds_shifts);

  // Runs score_mod, mask_mod and a derivative by hand, each a function, a text or None, on symbols
  // whose first six are score, grad, b, h, q and k.
  void run(const nb::handle& self, const nb::tuple& modifiers);

  // A call of one of the framework's functions; None if no argument is a symbol, unless `always`.
  nb::object call(const nb::handle& self, const nb::object& function, const nb::tuple& arguments,
                  const nb::handle& named, bool always);
  // value.name(...)
  nb::object method(const nb::handle& self, const nb::str& name, const nb::args& arguments,
                    const nb::kwargs& named);
  // Runs the steps on other objects, from where the last replay ended to the end of a modifier or
  // of the steps. `values` has an object for each symbol, and gets one for each step. Returns (is
  // the modifier a function?, its result, or its text), or None at the end of the steps. A number
  // that moves a position is replaced by shift(number).
  nb::object replay(const nb::list& values, const nb::object& shift);

  // Adds what identifies these steps to a key that is being made.
  void add_to(const nb::list& key) const;
  const nb::list& tensors() const { return tensors_; }
  // Numbers that move a position: not part of what identifies the steps, but for their signs.
  const std::vector<double>& shifts() const { return shifts_; }
  const nb::object& like() const { return like_; }

  nb::object replayed = nb::none();  // for the hooks: where the objects of a replay are kept

  // For the symbols' operators, by number in `operators` (steps.cpp).
  PyObject* write(PyObject* self, std::uint8_t operation, PyObject* first, PyObject* second);
  nb::object known_value(const nb::handle& self, std::uint32_t symbol) const;
  bool is_method(const nb::handle& name) const;

 private:
  void begin_step();
  void finish(PyObject* result, bool is_function);
  void add_number(std::uint64_t number, int bytes);
  void add_object(PyObject* object);
  void add_call(const nb::object& function, const nb::tuple& arguments, const nb::handle& named,
                std::uint8_t operation);
  void add_operand(PyObject* x);
  void add_sum(PyObject* first, PyObject* second);
  void add_comparison(PyObject* first, PyObject* second);
  bool add_shift(PyObject* x);
  void add_tensor(PyObject* x);
  void add_foreign(PyObject* x);
  void add_sequence(char tag, PyObject* items);
  nb::object next_symbol(const nb::handle& self);

  std::uint64_t read_number(int bytes);
  nb::object read_object();
  nb::object read_operand(const nb::list& values);
  nb::object read_sequence(const nb::list& values, bool as_tuple);
  nb::object run_step(std::uint8_t operation, const nb::list& values);

  nb::object hooks_, like_, methods_, constants_, is_grad_enabled_;
  nb::tuple types_;
  bool on_host_, binds_shifts_, with_gradients_;
  std::uint32_t count_ = 0;
  std::string text_;
  nb::list objects_, tensors_;
  nb::list host_numbers_;  // tensors of one element on the host, if the query is elsewhere
  std::vector<double> shifts_;
  std::set<std::uint32_t> moved_;  // symbols that are sums with a shift
  nb::object shift_;               // while steps are replayed
  std::size_t read_ = 0, read_shifts_ = 0;
  bool broken_ = false;  // a step was begun and not finished: the steps can't be used
};

}  // namespace fovea_python
