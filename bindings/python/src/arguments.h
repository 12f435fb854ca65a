// Python arguments as the C interface takes them. Only exact types are accepted: the callers are
// Fovea's own, which have converted what users pass, and this runs in every call.
#pragma once

#include <fovea/fovea.h>

#include <string>
#include <vector>

#include "module.h"

namespace fovea_python {

// A value with the name that errors give it.
struct Given {
  const char* name;
  PyObject* value;
};

void* pointer_of(const Given& given);
std::int64_t integer_of(const Given& given);
double number_of(const Given& given);
const char* text_of(const Given& given);  // lives as long as the string

// A pointer, or (pointer, (stride, stride, stride, stride)).
fovea_tensor tensor_of(const Given& given);
// (b, h, hkv, sq, skv, d, dv, t_q, t_k); the last two may be left out.
fovea_sizes sizes_of(const Given& given);

// The captured tensors and scalars of one call. Holds references to the tuples it was read from:
// names live in them.
struct CapturedArguments {
  std::vector<fovea_tensor_binding> tensors;
  std::vector<fovea_scalar_binding> scalars;
  nb::object tensor_tuple, scalar_tuple;

  // (name, pointer, dtype, extents, strides[, gradient pointer, gradient dtype, gradient strides])
  // each.
  void set_tensors(const Given& given);
  // (name, value[, device pointer[, gradient pointer]]) each.
  void set_scalars(const Given& given);

  // As tangents of a call.
  void fill_tangents(fovea_bindings& into) const {
    into.tensor_tangents = tensors.data();
    into.tensor_tangent_count = tensors.size();
    into.scalar_tangents = scalars.data();
    into.scalar_tangent_count = scalars.size();
  }
  template <class Struct>
  void fill(Struct& into) const {
    into.tensors = tensors.data();
    into.tensor_count = tensors.size();
    into.scalars = scalars.data();
    into.scalar_count = scalars.size();
  }
};

}  // namespace fovea_python
