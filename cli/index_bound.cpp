// Which tensors index which, read off the printed formulas: `data[b, table[q]]` bounds the values
// of `table` by the second extent of `data`.
#include <algorithm>
#include <cctype>
#include <map>

#include "captured.h"

namespace fovea::cli {
namespace {

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// A load as text: its tensor, its indices, and where it ends.
struct Load {
  std::string tensor;
  std::vector<std::string> indices;
  std::size_t end = 0;
};

Load read_load(const std::string& text, std::size_t name, std::size_t open) {
  Load load{text.substr(name, open - name), {""}, open + 1};
  for (int depth = 1; load.end < text.size() && depth > 0; ++load.end) {
    const char c = text[load.end];
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == ',' && depth == 1) {
      load.indices.emplace_back();
    } else if (depth > 0) {
      load.indices.back() += c;
    }
  }
  for (std::string& index : load.indices) index = trim(index);
  return load;
}

// The tensor that a text is a load of and nothing more; "" if it is none.
std::string whole_load(const std::string& text) {
  std::size_t open = 0;
  while (open < text.size() && in_name(text[open])) ++open;
  if (open == 0 || open >= text.size() || text[open] != '[') return "";
  const Load load = read_load(text, 0, open);
  return load.end == text.size() ? load.tensor : "";
}

// What `let name = tensor[...];` calls by another name.
std::map<std::string, std::string> aliases(const std::string& text) {
  std::map<std::string, std::string> out;
  for (std::size_t at = text.find("let "); at != std::string::npos;
       at = text.find("let ", at + 4)) {
    const std::size_t equals = text.find('=', at);
    const std::size_t end = text.find(';', at);
    if (equals == std::string::npos || end == std::string::npos || equals > end) break;
    const std::string tensor = whole_load(trim(text.substr(equals + 1, end - equals - 1)));
    if (!tensor.empty()) out[trim(text.substr(at + 4, equals - at - 4))] = tensor;
  }
  return out;
}

std::map<std::string, std::vector<std::int64_t>> all_extents(fovea_program program,
                                                             const fovea_sizes& sizes) {
  std::map<std::string, std::vector<std::int64_t>> out;
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    out[info.name] = extents_of(info.extents, sizes);
  }
  return out;
}

}  // namespace

std::int64_t index_bound(fovea_program program, const std::string& tensor,
                         const fovea_sizes& sizes) {
  const auto extents = all_extents(program, sizes);
  const std::string line = text_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  std::int64_t bound = 0;
  for (const char* key : {"mod", "mask", "bprop"}) {
    const std::string text = line_value(line, key);
    const auto named = aliases(text);
    for (std::size_t open = text.find('['); open != std::string::npos;
         open = text.find('[', open + 1)) {
      std::size_t name = open;
      while (name > 0 && in_name(text[name - 1])) --name;
      const Load load = read_load(text, name, open);
      const auto outer = extents.find(load.tensor);
      if (outer == extents.end() || outer->second.size() != load.indices.size()) continue;
      for (std::size_t i = 0; i < load.indices.size(); ++i) {
        const auto alias = named.find(load.indices[i]);
        const std::string inner =
            alias != named.end() ? alias->second : whole_load(load.indices[i]);
        if (inner != tensor) continue;
        bound = bound == 0 ? outer->second[i] : std::min(bound, outer->second[i]);
      }
    }
  }
  constexpr std::int64_t indexes_nothing = 8;
  return bound == 0 ? indexes_nothing : bound;
}

}  // namespace fovea::cli
