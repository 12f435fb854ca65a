// Arrays of any library on the host, read through DLPack or the buffer protocol: address, type,
// extents and strides.
#include <nanobind/ndarray.h>

#include "module.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

using Array = nb::ndarray<nb::ro>;

// Holds the array as long as it lives.
struct HostView {
  Array array;
};

const char* dtype_name(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1) return "";
  switch (static_cast<Code>(type.code)) {
    case Code::Float:
      return type.bits == 32 ? "f32" : type.bits == 16 ? "f16" : type.bits == 64 ? "f64" : "";
    case Code::Bfloat: return type.bits == 16 ? "bf16" : "";
    case Code::Int: return type.bits == 32 ? "i32" : type.bits == 64 ? "i64" : "";
    case Code::UInt: return type.bits == 8 ? "u8" : "";
    case Code::Bool: return type.bits == 8 ? "bool" : "";
    default: return "";
  }
}

nb::tuple shape(const HostView& self) {
  nb::list out;
  for (std::size_t i = 0; i < self.array.ndim(); ++i) out.append(self.array.shape(i));
  return nb::tuple(out);
}

nb::tuple strides(const HostView& self) {
  nb::list out;
  for (std::size_t i = 0; i < self.array.ndim(); ++i) out.append(self.array.stride(i));
  return nb::tuple(out);
}

}  // namespace

void define_host_view(nb::module_& module) {
  nb::class_<HostView>(module, "HostView",
                       "An array of another library, in place; by DLPack or the buffer protocol.")
      .def(
          "__init__", [](HostView* self, const Array& array) { new (self) HostView{array}; },
          "array"_a)
      .def_prop_ro(
          "pointer",
          [](const HostView& self) { return reinterpret_cast<std::uintptr_t>(self.array.data()); })
      .def_prop_ro("shape", shape)
      .def_prop_ro("strides", strides, "In elements.")
      .def_prop_ro(
          "dtype", [](const HostView& self) { return dtype_name(self.array.dtype()); },
          "'f32', 'bf16' ...; '' for one that Fovea does not know.")
      .def_prop_ro("on_host", [](const HostView& self) {
        return self.array.device_type() == nb::device::cpu::value;
      });
}

}  // namespace fovea_python
