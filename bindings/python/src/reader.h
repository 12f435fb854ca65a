// What modifiers read from outside: the walk of reader.cpp. Who uses it: Python, and front.cpp.
#pragma once

#include "module.h"

namespace fovea_python {

// What there is to know of kinds of values and of code; fovea/torch/memory.py makes it.
struct Rules {
  nb::object tensors, numbers, functions, containers;  // types: frozensets
  nb::object always_walked;                  // of `functions`: those that are never known as such
  nb::object known;                          // functions that are what they are: a frozenset
  nb::object of_tensors;                     // attributes of tensors that signatures hold
  nb::object computed;                       // types of descriptors that compute: a tuple
  nb::object records;                        // id of code -> Record
  nb::object record_of, reads_of, parts_of;  // functions
  nb::object unknown;                        // Record.plain before reads_of was asked
  nb::str code{"code"}, plain{"plain"}, builtins{"__builtins__"};

  explicit Rules(const nb::object& from);
};

class Reader {
 public:
  explicit Reader(const nb::object& rules) : rules_(rules) {}

  // Adds what these functions, texts or Nones read to `key`, and the tensors among it to `tensors`.
  // False where something can't be compared; the lists are then of no use.
  bool look(const nb::tuple& modifiers, const nb::list& key, const nb::list& tensors) const;

 private:
  Rules rules_;
};

}  // namespace fovea_python
