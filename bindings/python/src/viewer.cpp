#include "viewer.h"

#include <cstring>

using namespace nanobind::literals;

namespace fovea_python {
namespace {

// As DLPack defines it. The order of the functions is part of major version 1.
struct ExchangeTable {
  struct {
    std::uint32_t major, minor;
  } version;
  ExchangeTable* previous;
  void *allocate, *from_object, *to_object;
  int (*look)(void* tensor, nb::dlpack::dltensor* out);
  void* current_stream;
};

const ExchangeTable& table_of(const nb::object& capsule) {
  const auto* table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) nb::raise_python_error();
  while (table != nullptr && table->version.major != 1) table = table->previous;
  if (table == nullptr || table->look == nullptr) {
    throw BadArgument("table has no way to look at a tensor, or is of another version than 1");
  }
  return *table;
}

// A sequence of 64-bit words. Each tensor begins with its rank, so the sequence is unambiguous.
class Words {
 public:
  void add(std::int64_t word) { text_.append(reinterpret_cast<const char*>(&word), sizeof word); }
  void add(const nb::dlpack::dltensor& view) {
    add(view.ndim);
    add(std::int64_t{view.device.device_type} << 32 | view.device.device_id);
    add(std::int64_t{view.dtype.code} << 32 | view.dtype.bits << 16 | view.dtype.lanes);
    const std::size_t bytes = static_cast<std::size_t>(view.ndim) * sizeof(std::int64_t);
    text_.append(reinterpret_cast<const char*>(view.shape), bytes);
    text_.append(reinterpret_cast<const char*>(view.strides), bytes);
  }
  nb::object bytes() const { return nb::bytes(text_.data(), text_.size()); }

 private:
  std::string text_;
};

// Takes the reference; an error counts as true.
bool is_true(PyObject* made) {
  if (made == nullptr) {
    PyErr_Clear();
    return true;
  }
  const bool answer = made != Py_False && made != Py_None && PyObject_IsTrue(made) != 0;
  Py_DECREF(made);
  return answer;
}

// --- arrays of any library on the host, by DLPack or the buffer protocol ---

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

Viewer::Viewer(const nb::object& table, nb::tuple types, nb::object is_altered)
    : look_(table_of(table).look),
      table_(table),
      is_altered_(std::move(is_altered)),
      types_(std::move(types)),
      requires_grad_(PyUnicode_InternFromString("requires_grad")) {}

bool Viewer::is_of_types(PyObject* tensor) const {
  for (const nb::handle type : types_) {
    if (type.ptr() == reinterpret_cast<PyObject*>(Py_TYPE(tensor))) return true;
  }
  return false;
}

bool Viewer::look(PyObject* tensor, View& view) const {
  if (!is_of_types(tensor)) return false;
  if (look_(tensor, &view) != 0) {
    PyErr_Clear();
    return false;
  }
  // Wrappers of torch.func's transforms have no memory. An empty tensor goes the long way, too.
  return view.data != nullptr && !is_true(PyObject_CallOneArg(is_altered_.ptr(), tensor));
}

nb::object Viewer::signature(const nb::list& tensors, bool with_gradients, Seen* seen) const {
  Words words;
  const auto count = static_cast<Py_ssize_t>(tensors.size());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const tensor = PyList_GET_ITEM(tensors.ptr(), i);
    View view;
    if (!look(tensor, view)) return nb::none();
    words.add(view);
    if (seen != nullptr) {
      if (i == 0) seen->on_host = view.device.device_type == nb::device::cpu::value;
      seen->pointers.push_back(static_cast<std::byte*>(view.data) + view.byte_offset);
    }
    Py_ssize_t first = 0;
    while (PyList_GET_ITEM(tensors.ptr(), first) != tensor) ++first;
    words.add(first);
    if (with_gradients) words.add(is_true(PyObject_GetAttr(tensor, requires_grad_)) ? 1 : 0);
  }
  return words.bytes();
}

void* Viewer::pointer(const nb::object& tensor) const {
  View view;
  if (look_(tensor.ptr(), &view) != 0) nb::raise_python_error();
  return static_cast<std::byte*>(view.data) + view.byte_offset;
}

void define_viewer(nb::module_& module) {
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
  nb::class_<Viewer>(module, "Viewer", "Looks at the tensors of a framework as they lie in memory.")
      .def(
          nb::init<const nb::object&, nb::tuple, nb::object>(), "table"_a, "types"_a,
          "is_altered"_a,
          "table: DLPack's __dlpack_c_exchange_api__ of the tensors' type. types: those it is used for, "
          "without subclasses. is_altered: a function; a tensor for which it is true holds something else "
          "than its memory.")
      .def(
          "signature",
          [](const Viewer& self, const nb::list& tensors, bool with_gradients) {
            return self.signature(tensors, with_gradients);
          },
          "tensors"_a, "with_gradients"_a,
          "Device, type, extents and strides of each, which are the same object, and whether each requires "
          "a gradient; as bytes. None if one can't be looked at.");
}

}  // namespace fovea_python
