#include "ir/syntax.h"

#include <charconv>
#include <cmath>

namespace fovea::ir {

std::string literal_text(const Node& constant) {
  switch (constant.type()) {
    case Type::Bool: return constant.bool_value() ? "true" : "false";
    case Type::I32: return std::to_string(constant.int_value());
    case Type::F32: break;
  }
  const float value = constant.float_value();
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  const bool looks_integer = text.find_first_of(".e") == std::string::npos;
  return looks_integer ? text + ".0" : text;
}

}  // namespace fovea::ir
