// Values of captured tensors and scalars for one call: fovea::value(slopes, data),
// fovea::value(softcap, 25).
#pragma once

#include <algorithm>
#include <cstddef>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/handle.hpp"

namespace fovea {
inline namespace api {

// A captured tensor or scalar with its value in this call, or with the memory of its gradient.
struct Binding {
  std::string name{};
  std::string word{};  // tensor="slopes:f32[H]", if it was declared in C++
  bool is_tensor = false;
  fovea_array array{};       // of a tensor
  std::size_t elements = 0;  // in its memory, and the size of one, if these are known
  std::size_t element_bytes = 0;
  double value = 0;  // of a scalar
  void* gradient = nullptr;
};

namespace detail {

template <class Range>
Binding tensor_binding(const Tensor& tensor, Range& data) {
  using T = std::remove_pointer_t<decltype(std::ranges::data(data))>;
  Binding binding;
  binding.name = tensor.name();
  binding.is_tensor = true;
  binding.array.data = const_cast<std::remove_const_t<T>*>(std::ranges::data(data));
  binding.elements = std::ranges::size(data);
  binding.element_bytes = sizeof(T);
  return binding;
}

}  // namespace detail

// Data in the declared extents, dense: a vector, array or span. A text formula may name it, too.
template <memory::Memory Range>
Binding value(const Tensor& tensor, Range&& data) {
  Binding binding = detail::tensor_binding(tensor, data);
  binding.word = "tensor=\"" + tensor.declaration() + "\"";
  return binding;
}
// Data in extents and strides of its own.
inline Binding value(const Tensor& tensor, const fovea_array& array) {
  Binding binding = value(tensor, std::span<std::byte>());
  binding.array = array;
  binding.element_bytes = 0;
  return binding;
}
inline Binding value(const Scalar& scalar, double number) {
  Binding binding;
  binding.name = scalar.name();
  binding.word = "scalar=\"" + scalar.declaration() + "\"";
  binding.value = number;
  return binding;
}

// Where the gradient of a captured thing is written: as many elements as it has, dense.
template <memory::Memory Range>
Binding gradient(const Tensor& tensor, Range&& into) {
  static_assert(!std::is_const_v<std::remove_reference_t<decltype(*std::ranges::data(into))>>,
                "fovea: a gradient is written");
  return detail::tensor_binding(tensor, into);
}
template <class T>
Binding gradient(const Scalar& scalar, T& into) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "fovea: the gradient of a scalar is a float (a double if q is f64)");
  Binding binding;
  binding.name = scalar.name();
  binding.gradient = &into;
  return binding;
}

// A formula: traced, or as text.
class FormulaText {
 public:
  FormulaText() = default;
  FormulaText(const char* text) : text_(text) {}
  FormulaText(std::string text) : text_(std::move(text)) {}
  FormulaText(const Formula& formula) : text_(formula.text()), words_(formula.declarations()) {}

  bool empty() const { return text_.empty(); }
  const std::vector<std::string>& declarations() const { return words_; }
  std::string word(const char* key) const {
    std::string quoted;
    for (const char c : text_) quoted += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
    return std::string(key) + "=\"" + quoted + "\"";
  }

 private:
  std::string text_;
  std::vector<std::string> words_;
};

namespace detail {

// Bindings as the C interface takes them: values and the memory of gradients, by name. Filled again
// for each call, so that its memory is kept.
class BindingLists {
 public:
  void fill(const std::vector<Binding>& values, const std::vector<Binding>& gradients) {
    tensors_.clear();
    scalars_.clear();
    for (const Binding& value : values) add(value);
    for (const Binding& one : gradients) add_gradient(one);
  }
  void set(fovea_bindings& bindings) const {
    bindings.tensors = tensors_.data();
    bindings.tensor_count = tensors_.size();
    bindings.scalars = scalars_.data();
    bindings.scalar_count = scalars_.size();
  }

 private:
  template <class List>
  static auto& find(List& list, const std::string& name) {
    const auto at = std::ranges::find_if(list, [&](const auto& one) { return name == one.name; });
    if (at != list.end()) return *at;
    throw Error(FOVEA_INVALID_ARGUMENT,
                "gradients.captured: '" + name + "' is not among the bound values (captured)");
  }

  void add(const Binding& value) {
    if (value.is_tensor) {
      tensors_.push_back({value.name.c_str(), value.array, {}});
    } else {
      scalars_.push_back({value.name.c_str(), value.value, nullptr, nullptr});
    }
  }
  void add_gradient(const Binding& one) {
    if (one.is_tensor) {
      find(tensors_, one.name).gradient = one.array;
    } else {
      find(scalars_, one.name).gradient = one.gradient;
    }
  }

  std::vector<fovea_tensor_binding> tensors_;
  std::vector<fovea_scalar_binding> scalars_;
};

}  // namespace detail
}  // namespace api
}  // namespace fovea
