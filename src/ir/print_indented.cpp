// The form for people: works on the canonical text, so that it can't say anything else.
#include <algorithm>
#include <string_view>

#include "ir/print.h"
#include "ir/syntax.h"

namespace fovea::ir {
namespace {

constexpr std::size_t width = 88;

// Where a text can be broken: before the operators that bind weakest, outside all brackets.
struct Breaks {
  int level = atom_precedence;
  std::vector<std::size_t> at;

  void offer(int offered, std::size_t position) {
    if (offered < level) {
      level = offered;
      at.clear();
    }
    if (offered == level) at.push_back(position);
  }
};

// Operators stand between spaces in canonical text; prefixes do not.
Breaks find_breaks(std::string_view text) {
  Breaks breaks;
  int open = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[') ++open;
    if (text[i] == ')' || text[i] == ']') --open;
    if (open != 0 || text[i] != ' ') continue;
    const std::size_t end = std::min(text.find(' ', i + 1), text.size());
    const std::string_view word = text.substr(i + 1, end - i - 1);
    if (word == "?" || word == ":") breaks.offer(choice_precedence, i);
    if (precedence(word) != 0) breaks.offer(precedence(word), i);
  }
  return breaks;
}

std::string broken(const std::string& text, std::size_t indent) {
  const Breaks breaks = find_breaks(text);
  if (indent + text.size() <= width || breaks.at.empty()) return text;
  std::string out;
  std::size_t from = 0;
  for (const std::size_t at : breaks.at) {
    out += text.substr(from, at - from) + "\n" + std::string(indent + 2, ' ');
    from = at + 1;
  }
  return out + text.substr(from);
}

}  // namespace

std::string print_indented(const Expr& expr, const Declarations& names, int indent) {
  const auto spaces = static_cast<std::size_t>(indent);
  std::string out;
  for (const PrintedLet& let : print_lets(expr, names)) {
    const std::string head = let.name.empty() ? "" : "let " + let.name + " = ";
    out += std::string(spaces, ' ') + head + broken(let.value, spaces + head.size());
    out += let.name.empty() ? "\n" : ";\n";
  }
  return out;
}

std::string print_indented(const Program& program) {
  std::string out;
  const auto formula = [&](const std::string& name, const Expr& expr) {
    if (expr) out += name + " =\n" + print_indented(expr, program.declarations());
  };
  formula("mod", program.mod());
  formula("mask", program.mask());
  formula("bprop", program.bprop());
  for (const TensorDecl& tensor : program.tensors()) out += "tensor  " + print(tensor) + "\n";
  for (const ScalarDecl& scalar : program.scalars()) out += "scalar  " + print(scalar) + "\n";
  return out;
}

}  // namespace fovea::ir
