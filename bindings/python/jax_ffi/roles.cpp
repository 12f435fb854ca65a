#include "roles.h"

#include <stdexcept>
#include <utility>

namespace fovea_jax {
namespace {

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
