// The role of each operand and result of a custom call, and its buffers as the bindings of a plan.
// The Python side sends the roles as an attribute ("q,k,v,tensor:a0,scalar:s1"), which is read
// once, when the call is instantiated; binding happens in every call, and reads no data but host
// scalars.
#pragma once

#include <fovea/fovea.h>
#include <string>
#include <string_view>
#include <vector>

#include <xla/ffi/api/ffi.h>

namespace fovea_jax {

enum class Role {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) field,
#define FOVEA_POINTER(type, name, extent, needed, written) name,
#define FOVEA_VALUE(type, name) name,
#include <fovea/fields.def>
  qkv,
  kv,
  grad_qkv,
  grad_kv,
  tensor,
  scalar,
  grad_tensor,
  grad_scalar,
  tangent_tensor,
  tangent_scalar,
  workspace
};

struct Slot {
  Role role;
  std::string name;  // of a captured tensor or scalar
};

// Throws std::invalid_argument at a word that is no role.
std::vector<Slot> parse_slots(std::string_view text);

// Where the buffers of a call live: per-call values are read now, or by the device later.
enum class Memory { host, device };

class Binder {
 public:
  explicit Binder(Memory memory);

  void bind(const Slot& slot, xla::ffi::AnyBuffer buffer);  // an operand or a result

  // The bindings; valid as long as this object, and until the next call of bind().
  fovea_bindings& bindings();

 private:
  void bind_scalar(fovea_scalar_binding& bound, xla::ffi::AnyBuffer buffer) const;

  Memory memory_;
  fovea_bindings bindings_{};
  std::vector<fovea_tensor_binding> tensors_;
  std::vector<fovea_scalar_binding> scalars_;
  std::vector<fovea_tensor_binding> tensor_tangents_;
  std::vector<fovea_scalar_binding> scalar_tangents_;
};

}  // namespace fovea_jax
