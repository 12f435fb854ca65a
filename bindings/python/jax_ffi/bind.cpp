#include "bind.h"

#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <utility>

namespace fovea_jax {
namespace {

using xla::ffi::AnyBuffer;

constexpr std::pair<std::string_view, Role> role_names[] = {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) {#field, Role::field},
#define FOVEA_POINTER(type, name, extent, needed, written) {#name, Role::name},
#define FOVEA_VALUE(type, name) {#name, Role::name},
#include <fovea/fields.def>
    {"qkv", Role::qkv},
    {"kv", Role::kv},
    {"grad_qkv", Role::grad_qkv},
    {"grad_kv", Role::grad_kv},
    {"tensor", Role::tensor},
    {"scalar", Role::scalar},
    {"grad_tensor", Role::grad_tensor},
    {"grad_scalar", Role::grad_scalar},
    {"tangent_tensor", Role::tangent_tensor},
    {"tangent_scalar", Role::tangent_scalar},
    {"workspace", Role::workspace},
};

Slot parse_slot(std::string_view word) {
  const std::size_t colon = word.find(':');
  const std::string_view role = word.substr(0, colon);
  for (const auto& [name, value] : role_names) {
    if (name != role) continue;
    return {value, colon == word.npos ? "" : std::string(word.substr(colon + 1))};
  }
  throw std::invalid_argument("'" + std::string(word) + "' is no operand or result of attention");
}

// An empty buffer may have no address, but the library needs one for what is bound.
void* address(AnyBuffer buffer) {
  alignas(64) static char nothing[64];
  return buffer.untyped_data() ? buffer.untyped_data() : nothing;
}

// Tensors that lie side by side in one buffer [..., parts, heads, features].
void set_parts(AnyBuffer buffer, std::initializer_list<fovea_tensor*> tensors) {
  const auto dims = buffer.dimensions();
  const auto elements = static_cast<std::size_t>(dims[dims.size() - 2] * dims[dims.size() - 1]);
  char* data = static_cast<char*>(address(buffer));
  for (fovea_tensor* const tensor : tensors) {
    tensor->data = data;
    data += elements * xla::ffi::ByteWidth(buffer.element_type());
  }
}

template <typename T>
T host_value(AnyBuffer buffer) {
  T value;
  std::memcpy(&value, buffer.untyped_data(), sizeof value);
  return value;
}

template <typename T, typename Value>
void bind_value(Value& value, AnyBuffer buffer, Memory memory) {
  if (memory == Memory::device) {
    value.device = static_cast<const T*>(buffer.untyped_data());
    return;
  }
  value.value = host_value<T>(buffer);
  if constexpr (requires { value.is_set; }) value.is_set = 1;
}

// The entry of that name, made if there is none.
template <typename Binding>
Binding& named(std::vector<Binding>& bindings, const Slot& slot) {
  for (Binding& bound : bindings) {
    if (slot.name == bound.name) return bound;
  }
  Binding bound{};
  bound.name = slot.name.c_str();
  return bindings.emplace_back(bound);
}

}  // namespace

std::vector<Slot> parse_slots(std::string_view text) {
  std::vector<Slot> slots;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    slots.push_back(parse_slot(text.substr(0, comma)));
    text = comma == text.npos ? "" : text.substr(comma + 1);
  }
  return slots;
}

Binder::Binder(Memory memory) : memory_(memory) { bindings_.struct_size = sizeof bindings_; }

void Binder::bind(const Slot& slot, AnyBuffer buffer) {
  void* data = address(buffer);
  fovea_bindings& b = bindings_;
  if (slot.role == Role::scale && buffer.element_type() == xla::ffi::DataType::F64) {
    b.scale_f64 = host_value<double>(buffer);  // engines of f64 run on the host
    b.scale = {static_cast<float>(b.scale_f64), 1, nullptr};
    return;
  }
  switch (slot.role) {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) \
  case Role::field: b.field.data = data; return;
#define FOVEA_POINTER(type, name, extent, needed, written) \
  case Role::name: b.name = static_cast<type*>(data); return;
#define FOVEA_VALUE(type, name) \
  case Role::name: bind_value<type>(b.name, buffer, memory_); return;
#include <fovea/fields.def>
    case Role::qkv: set_parts(buffer, {&b.q, &b.k, &b.v}); return;
    case Role::kv: set_parts(buffer, {&b.k, &b.v}); return;
    case Role::grad_qkv: set_parts(buffer, {&b.grad_q, &b.grad_k, &b.grad_v}); return;
    case Role::grad_kv: set_parts(buffer, {&b.grad_k, &b.grad_v}); return;
    case Role::tensor: named(tensors_, slot).array.data = data; return;
    case Role::scalar: bind_scalar(named(scalars_, slot), buffer); return;
    case Role::grad_tensor: named(tensors_, slot).gradient.data = data; return;
    case Role::grad_scalar: named(scalars_, slot).gradient = data; return;
    case Role::tangent_tensor: named(tensor_tangents_, slot).array.data = data; return;
    case Role::tangent_scalar: bind_scalar(named(scalar_tangents_, slot), buffer); return;
    case Role::workspace:
      b.workspace = data;
      b.workspace_bytes = buffer.size_bytes();
      return;
  }
}

void Binder::bind_scalar(fovea_scalar_binding& bound, AnyBuffer buffer) const {
  if (memory_ == Memory::device) {
    bound.device = buffer.untyped_data();
  } else if (buffer.element_type() == xla::ffi::DataType::S32) {
    bound.value = host_value<std::int32_t>(buffer);
  } else if (buffer.element_type() == xla::ffi::DataType::F64) {
    bound.value = host_value<double>(buffer);
  } else {
    bound.value = host_value<float>(buffer);
  }
}

fovea_bindings& Binder::bindings() {
  bindings_.tensors = tensors_.data();
  bindings_.tensor_count = tensors_.size();
  bindings_.scalars = scalars_.data();
  bindings_.scalar_count = scalars_.size();
  bindings_.tensor_tangents = tensor_tangents_.data();
  bindings_.tensor_tangent_count = tensor_tangents_.size();
  bindings_.scalar_tangents = scalar_tangents_.data();
  bindings_.scalar_tangent_count = scalar_tangents_.size();
  return bindings_;
}

}  // namespace fovea_jax
