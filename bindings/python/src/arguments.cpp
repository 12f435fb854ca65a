#include "arguments.h"

#include <cstdint>

namespace fovea_python {
namespace {

[[noreturn]] void refuse(const Given& given, const char* rule) {
  PyErr_Clear();
  const nb::object shown = nb::steal(PyObject_Repr(given.value));
  std::string text = shown.is_valid() ? nb::str(shown).c_str() : "?";
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  throw BadArgument(std::string(given.name) + " is " + text + "; it must be " + rule);
}

// The items of a tuple. Lists are not taken: another thread could change one while the call reads
// it.
struct Items {
  Items(const Given& given, const char* rule) : tuple(given.value) {
    if (!PyTuple_Check(tuple)) refuse(given, rule);
  }
  Py_ssize_t size() const { return PyTuple_GET_SIZE(tuple); }
  PyObject* operator[](Py_ssize_t i) const { return PyTuple_GET_ITEM(tuple, i); }
  PyObject* tuple;
};

// All zero means "not given" to the library, so that one zero is written in its other form.
template <std::size_t n>
void write_strides(const Given& given, std::int64_t (&into)[n], Py_ssize_t rank) {
  const Items items(given, "a tuple of strides");
  if (items.size() != rank) {
    throw BadArgument(std::string(given.name) + ": there must be " + std::to_string(rank) +
                      " strides, got " + std::to_string(items.size()));
  }
  bool all_zero = rank > 0;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    into[i] = integer_of({given.name, items[i]});
    all_zero = all_zero && into[i] == 0;
  }
  if (all_zero) into[0] = FOVEA_ZERO_STRIDE;
}

fovea_dtype dtype_of(const Given& given) { return static_cast<fovea_dtype>(integer_of(given)); }

fovea_tensor_binding tensor_binding(const Given& given) {
  constexpr const char* rule =
      "(name, pointer, dtype, extents, strides) or the same with (gradient, dtype, strides) behind";
  const Items items(given, rule);
  if (items.size() != 5 && items.size() != 8) refuse(given, rule);
  fovea_tensor_binding binding{};
  binding.name = text_of({given.name, items[0]});
  const Given named{binding.name, nullptr};
  const auto item = [&](Py_ssize_t i) { return Given{named.name, items[i]}; };
  fovea_array& array = binding.array;
  array.data = pointer_of(item(1));
  array.dtype = dtype_of(item(2));
  const Items extents(item(3), "a tuple of extents");
  if (extents.size() > 8) refuse(item(3), "a tuple of at most 8 extents");
  array.rank = static_cast<std::int32_t>(extents.size());
  for (Py_ssize_t i = 0; i < extents.size(); ++i) {
    array.extent[i] = integer_of({named.name, extents[i]});
  }
  if (items[4] != Py_None) write_strides(item(4), array.stride, extents.size());
  if (items.size() == 8) {
    binding.gradient.data = pointer_of(item(5));
    binding.gradient.dtype = dtype_of(item(6));
    if (items[7] != Py_None) {
      binding.gradient.rank = array.rank;
      for (int i = 0; i < array.rank; ++i) binding.gradient.extent[i] = array.extent[i];
      write_strides(item(7), binding.gradient.stride, extents.size());
    }
  }
  return binding;
}

fovea_scalar_binding scalar_binding(const Given& given) {
  constexpr const char* rule =
      "(name, value), (name, value, device pointer) or (name, value, "
      "device pointer, gradient pointer)";
  const Items items(given, rule);
  if (items.size() < 2 || items.size() > 4) refuse(given, rule);
  fovea_scalar_binding binding{};
  binding.name = text_of({given.name, items[0]});
  binding.value = number_of({binding.name, items[1]});
  if (items.size() > 2) binding.device = pointer_of({binding.name, items[2]});
  if (items.size() > 3) binding.gradient = pointer_of({binding.name, items[3]});
  return binding;
}

template <class Binding>
void read_all(const Given& given, nb::object& held, std::vector<Binding>& into,
              Binding (*read)(const Given&)) {
  held = PyTuple_Check(given.value) ? nb::borrow(given.value)
                                    : nb::steal(PySequence_Tuple(given.value));
  if (!held.is_valid()) refuse(given, "a sequence of tuples");
  const Items items({given.name, held.ptr()}, "");
  into.clear();
  into.reserve(static_cast<std::size_t>(items.size()));
  for (Py_ssize_t i = 0; i < items.size(); ++i) into.push_back(read({given.name, items[i]}));
}

}  // namespace

std::int64_t integer_of(const Given& given) {
  const long long value = PyLong_AsLongLong(given.value);
  if (value == -1 && PyErr_Occurred() != nullptr) refuse(given, "an integer of 64 bits");
  return value;
}

void* pointer_of(const Given& given) {
  if (given.value == Py_None) return nullptr;
  void* const value = PyLong_AsVoidPtr(given.value);
  if (value == nullptr && PyErr_Occurred() != nullptr) refuse(given, "an address as an integer");
  return value;
}

double number_of(const Given& given) {
  const double value = PyFloat_AsDouble(given.value);
  if (value == -1 && PyErr_Occurred() != nullptr) refuse(given, "a number");
  return value;
}

const char* text_of(const Given& given) {
  const char* const text = PyUnicode_Check(given.value) ? PyUnicode_AsUTF8(given.value) : nullptr;
  if (text == nullptr) refuse(given, "a text");
  return text;
}

fovea_tensor tensor_of(const Given& given) {
  if (PyLong_CheckExact(given.value)) return {pointer_of(given), {}};
  constexpr const char* rule = "a pointer or (pointer, strides)";
  const Items items(given, rule);
  if (items.size() != 2) refuse(given, rule);
  fovea_tensor tensor{pointer_of({given.name, items[0]}), {}};
  write_strides({given.name, items[1]}, tensor.stride, 4);
  return tensor;
}

fovea_sizes sizes_of(const Given& given) {
  constexpr const char* rule =
      "(b, h, hkv, sq, skv, d, dv) or (b, h, hkv, sq, skv, d, dv, t_q, t_k)";
  const Items items(given, rule);
  if (items.size() != 7 && items.size() != 9) refuse(given, rule);
  fovea_sizes sizes{};
  std::int64_t* const fields[] = {&sizes.b, &sizes.h,  &sizes.hkv, &sizes.sq, &sizes.skv,
                                  &sizes.d, &sizes.dv, &sizes.t_q, &sizes.t_k};
  for (Py_ssize_t i = 0; i < items.size(); ++i) *fields[i] = integer_of({given.name, items[i]});
  return sizes;
}

void CapturedArguments::set_tensors(const Given& given) {
  read_all(given, tensor_tuple, tensors, tensor_binding);
}

void CapturedArguments::set_scalars(const Given& given) {
  read_all(given, scalar_tuple, scalars, scalar_binding);
}

}  // namespace fovea_python
