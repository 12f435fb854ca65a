// What each operand and result of a custom call is. The Python side sends the list as an attribute
// ("q,k,v,tensor:a0,scalar:s1"); it is read once, when the call is instantiated.
// Not here: what is done with them (bind.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

}  // namespace fovea_jax
