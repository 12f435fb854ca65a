// What each operand and result of a custom call is. The Python side sends the list as an attribute
// ("q,k,v,tensor:a0,scalar:s1"); it is read once, when the call is instantiated.
// Not here: what is done with them (bind.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea_jax {

enum class Role {
  q,
  k,
  v,
  qkv,
  kv,
  o,
  grad_o,
  lse,
  grad_lse,
  row_max,
  max_logit,
  sink,
  q_lengths,
  k_lengths,
  q_starts,
  k_starts,
  q_offsets,
  k_offsets,
  scale,
  seed,
  offset,
  b_offset,
  h_offset,
  q_offset,
  k_offset,
  tensor,
  scalar,
  grad_q,
  grad_k,
  grad_v,
  grad_qkv,
  grad_kv,
  grad_sink,
  grad_tensor,
  grad_scalar,
  workspace
};

struct Slot {
  Role role;
  std::string name;  // of a captured tensor or scalar
};

// Throws std::invalid_argument at a word that is no role.
std::vector<Slot> parse_slots(std::string_view text);

}  // namespace fovea_jax
