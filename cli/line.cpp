#include "line.h"

#include <cctype>

#include "handles.h"

namespace fovea::cli {
namespace {

// A line starts with `key=`; `q == k ? ...` and `let t = ...` do not.
bool starts_with_key(const std::string& text) {
  std::size_t at = text.find_first_not_of(" \t\n");
  if (at == std::string::npos) return true;
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (at < text.size() && is_name(text[at])) ++at;
  return at < text.size() && text[at] == '=' && (at + 1 == text.size() || text[at + 1] != '=');
}

}  // namespace

std::string line_of(const std::string& text) {
  return starts_with_key(text) ? text : "mod=\"" + text + "\"";
}

std::string with_sizes_to_show(const std::string& line) {
  std::string out = line;
  const bool packed = line_value(line, "layout") == "thd";
  if (line_value(line, "h").empty() && line_value(line, "hkv").empty()) out += " h=8";
  if (!packed && line_value(line, "sq").empty()) out += " sq=256";
  return out;
}

}  // namespace fovea::cli
