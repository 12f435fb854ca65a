// Reads address, type, extents and strides of a framework's tensors through the table of C
// functions that DLPack 1.3 defines for their type (__dlpack_c_exchange_api__), without creating an
// object. fovea.torch makes the keys of its calls from them.
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>
#include <string>
#include <vector>

#include "module.h"

namespace fovea_python {

// Where the memory of tensors begins, in their order, and whether the first lies on the host.
struct Seen {
  std::vector<void*> pointers;
  bool on_host = false;
};

class Viewer {
 public:
  // types: the classes whose objects are accepted, without subclasses. is_altered: a function of a
  // tensor, true if its values are not those in its memory.
  Viewer(const nb::object& table, nb::tuple types, nb::object is_altered);

  // Device, type, extents and strides of each tensor of a list, which of them are the same object,
  // and whether each requires a gradient if that is asked for; as bytes. None if one of them
  // can't be read like this.
  nb::object signature(const nb::list& tensors, bool with_gradients, Seen* seen = nullptr) const;

  // The memory of a tensor that was just made; throws what the framework raises.
  void* pointer(const nb::object& tensor) const;

 private:
  bool is_of_types(PyObject* tensor) const;
  bool look(PyObject* tensor, nb::dlpack::dltensor& view) const;

  using View = nb::dlpack::dltensor;
  int (*look_)(void* tensor, View* out) = nullptr;
  nb::object table_, is_altered_;
  nb::tuple types_;
  PyObject* requires_grad_;  // its name, interned
};

}  // namespace fovea_python
