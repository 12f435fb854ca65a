#include "roles.h"

#include <array>
#include <stdexcept>
#include <utility>

namespace fovea_jax {
namespace {

constexpr std::array<std::pair<std::string_view, Role>, 36> role_names{{
    {"q", Role::q},
    {"k", Role::k},
    {"v", Role::v},
    {"qkv", Role::qkv},
    {"kv", Role::kv},
    {"o", Role::o},
    {"grad_o", Role::grad_o},
    {"lse", Role::lse},
    {"grad_lse", Role::grad_lse},
    {"row_max", Role::row_max},
    {"max_logit", Role::max_logit},
    {"sink", Role::sink},
    {"q_lengths", Role::q_lengths},
    {"k_lengths", Role::k_lengths},
    {"q_starts", Role::q_starts},
    {"k_starts", Role::k_starts},
    {"q_offsets", Role::q_offsets},
    {"k_offsets", Role::k_offsets},
    {"scale", Role::scale},
    {"seed", Role::seed},
    {"offset", Role::offset},
    {"b_offset", Role::b_offset},
    {"h_offset", Role::h_offset},
    {"q_offset", Role::q_offset},
    {"k_offset", Role::k_offset},
    {"tensor", Role::tensor},
    {"scalar", Role::scalar},
    {"grad_q", Role::grad_q},
    {"grad_k", Role::grad_k},
    {"grad_v", Role::grad_v},
    {"grad_qkv", Role::grad_qkv},
    {"grad_kv", Role::grad_kv},
    {"grad_sink", Role::grad_sink},
    {"grad_tensor", Role::grad_tensor},
    {"grad_scalar", Role::grad_scalar},
    {"workspace", Role::workspace},
}};

Slot parse_slot(std::string_view word) {
  const std::size_t colon = word.find(':');
  const std::string_view role = word.substr(0, colon);
  for (const auto& [name, value] : role_names) {
    if (name != role) continue;
    return {value, colon == word.npos ? "" : std::string(word.substr(colon + 1))};
  }
  throw std::invalid_argument("'" + std::string(word) + "' is no operand or result of attention");
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

}  // namespace fovea_jax
