#include "bind.h"

#include <cstring>
#include <stdexcept>

namespace fovea_jax {
namespace {

using xla::ffi::AnyBuffer;

// An empty buffer may have no address; the library wants one wherever something is bound.
void* address(AnyBuffer buffer) {
  alignas(64) static char nothing[64];
  return buffer.untyped_data() ? buffer.untyped_data() : nothing;
}

// Part i of q, k, v that lie side by side in one buffer [..., parts, heads, features].
void* part(AnyBuffer buffer, int i) {
  const auto dims = buffer.dimensions();
  const std::size_t elements =
      static_cast<std::size_t>(dims[dims.size() - 2] * dims[dims.size() - 1]);
  return static_cast<char*>(address(buffer)) +
         i * elements * xla::ffi::ByteWidth(buffer.element_type());
}

template <typename T>
T host_value(AnyBuffer buffer) {
  T value;
  std::memcpy(&value, buffer.untyped_data(), sizeof value);
  return value;
}

template <typename Value, typename T>
void bind_value(Value& value, AnyBuffer buffer, Memory memory) {
  if (memory == Memory::device) {
    value.device = static_cast<const T*>(buffer.untyped_data());
    return;
  }
  value.value = host_value<T>(buffer);
  if constexpr (requires { value.is_set; }) value.is_set = 1;
}

[[noreturn]] void misplaced(const Slot& slot) {
  throw std::invalid_argument("role " + std::to_string(static_cast<int>(slot.role)) +
                              " stands on the wrong side of a call");
}

}  // namespace

Binder::Binder(Memory memory) : memory_(memory) { bindings_.struct_size = sizeof bindings_; }

void Binder::operand(const Slot& slot, AnyBuffer buffer) {
  void* data = address(buffer);
  const auto* numbers = static_cast<const std::int32_t*>(data);
  fovea_bindings& b = bindings_;
  switch (slot.role) {
    case Role::q: b.q.data = data; return;
    case Role::k: b.k.data = data; return;
    case Role::v: b.v.data = data; return;
    case Role::qkv:
      b.q.data = data;
      b.k.data = part(buffer, 1);
      b.v.data = part(buffer, 2);
      return;
    case Role::kv:
      b.k.data = data;
      b.v.data = part(buffer, 1);
      return;
    case Role::o: b.o.data = data; return;
    case Role::grad_o: b.grad_o.data = data; return;
    case Role::lse: b.lse = data; return;
    case Role::grad_lse: b.grad_lse = data; return;
    case Role::sink: b.sink = data; return;
    case Role::q_lengths: b.q_lengths = numbers; return;
    case Role::k_lengths: b.k_lengths = numbers; return;
    case Role::q_starts: b.q_starts = numbers; return;
    case Role::k_starts: b.k_starts = numbers; return;
    case Role::q_offsets: b.q_offsets = numbers; return;
    case Role::k_offsets: b.k_offsets = numbers; return;
    case Role::scale: bind_value<fovea_f32_value, float>(b.scale, buffer, memory_); return;
    case Role::seed: bind_value<fovea_u64_value, std::uint64_t>(b.seed, buffer, memory_); return;
    case Role::offset:
      bind_value<fovea_u64_value, std::uint64_t>(b.offset, buffer, memory_);
      return;
    case Role::b_offset:
      bind_value<fovea_i32_value, std::int32_t>(b.b_offset, buffer, memory_);
      return;
    case Role::h_offset:
      bind_value<fovea_i32_value, std::int32_t>(b.h_offset, buffer, memory_);
      return;
    case Role::q_offset:
      bind_value<fovea_i32_value, std::int32_t>(b.q_offset, buffer, memory_);
      return;
    case Role::k_offset:
      bind_value<fovea_i32_value, std::int32_t>(b.k_offset, buffer, memory_);
      return;
    case Role::tensor: tensor(slot).array.data = data; return;
    case Role::scalar: bind_scalar(slot, buffer); return;
    case Role::row_max:
    case Role::max_logit:
    case Role::grad_q:
    case Role::grad_k:
    case Role::grad_v:
    case Role::grad_qkv:
    case Role::grad_kv:
    case Role::grad_sink:
    case Role::grad_tensor:
    case Role::grad_scalar:
    case Role::workspace: misplaced(slot);
  }
}

void Binder::result(const Slot& slot, AnyBuffer buffer) {
  void* data = address(buffer);
  fovea_bindings& b = bindings_;
  switch (slot.role) {
    case Role::o: b.o.data = data; return;
    case Role::lse: b.lse = data; return;
    case Role::row_max: b.row_max = data; return;
    case Role::max_logit: b.max_logit = data; return;
    case Role::grad_q: b.grad_q.data = data; return;
    case Role::grad_k: b.grad_k.data = data; return;
    case Role::grad_v: b.grad_v.data = data; return;
    case Role::grad_qkv:
      b.grad_q.data = data;
      b.grad_k.data = part(buffer, 1);
      b.grad_v.data = part(buffer, 2);
      return;
    case Role::grad_kv:
      b.grad_k.data = data;
      b.grad_v.data = part(buffer, 1);
      return;
    case Role::grad_sink: b.grad_sink = data; return;
    case Role::grad_tensor: tensor(slot).gradient.data = data; return;
    case Role::grad_scalar: scalar(slot).gradient = data; return;
    case Role::workspace:
      b.workspace = data;
      b.workspace_bytes = buffer.size_bytes();
      return;
    case Role::q:
    case Role::k:
    case Role::v:
    case Role::qkv:
    case Role::kv:
    case Role::grad_o:
    case Role::grad_lse:
    case Role::sink:
    case Role::q_lengths:
    case Role::k_lengths:
    case Role::q_starts:
    case Role::k_starts:
    case Role::q_offsets:
    case Role::k_offsets:
    case Role::scale:
    case Role::seed:
    case Role::offset:
    case Role::b_offset:
    case Role::h_offset:
    case Role::q_offset:
    case Role::k_offset:
    case Role::tensor:
    case Role::scalar: misplaced(slot);
  }
}

fovea_tensor_binding& Binder::tensor(const Slot& slot) {
  for (fovea_tensor_binding& bound : tensors_) {
    if (slot.name == bound.name) return bound;
  }
  fovea_tensor_binding bound{};
  bound.name = slot.name.c_str();
  return tensors_.emplace_back(bound);
}

fovea_scalar_binding& Binder::scalar(const Slot& slot) {
  for (fovea_scalar_binding& bound : scalars_) {
    if (slot.name == bound.name) return bound;
  }
  fovea_scalar_binding bound{};
  bound.name = slot.name.c_str();
  return scalars_.emplace_back(bound);
}

void Binder::bind_scalar(const Slot& slot, AnyBuffer buffer) {
  fovea_scalar_binding& bound = scalar(slot);
  if (memory_ == Memory::device) {
    bound.device = buffer.untyped_data();
  } else if (buffer.element_type() == xla::ffi::DataType::S32) {
    bound.value = host_value<std::int32_t>(buffer);
  } else {
    bound.value = host_value<float>(buffer);
  }
}

fovea_bindings& Binder::bindings() {
  bindings_.tensors = tensors_.data();
  bindings_.tensor_count = tensors_.size();
  bindings_.scalars = scalars_.data();
  bindings_.scalar_count = scalars_.size();
  return bindings_;
}

}  // namespace fovea_jax
