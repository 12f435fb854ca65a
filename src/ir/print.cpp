#include "ir/print.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "ir/lexer.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

// Deeper than this an expression is cut by a `let`, well below what the parser nests.
constexpr int deepest_inline = 40;

// A piece of text and how tightly it holds together.
struct Piece {
  std::string text;
  int precedence = atom_precedence;

  std::string within(int weakest) const { return precedence < weakest ? "(" + text + ")" : text; }
};

// True if the parser turns this i32 operand into f32 by itself, so that f32(...) need not show.
bool widens_unasked(const Node& user, std::size_t operand) {
  const auto is_widened = [](const Expr& e) { return e->op() == Op::FloatOfInt; };
  if (!is_widened(user.arg(operand))) return false;
  const OpInfo& row = info(user.op());
  if (is_cast_text(row.text)) return false;
  const bool knows_i32 = std::ranges::any_of(all_ops, [&](const OpInfo& other) {
    return other.text == row.text && other.form == row.form && other.arity() == row.arity() &&
           other.argument(other.arity() - 1) == Type::I32;
  });
  if (!knows_i32) return true;
  // Otherwise an f32 beside it must show.
  for (std::size_t i = 0; i < user.args().size(); ++i) {
    const bool real = row.argument(i) == Type::F32 && !is_widened(user.arg(i));
    if (i != operand && real) return true;
  }
  return false;
}

// `let name = value;`. The last one is the value of the whole and has no name.
struct PrintedLet {
  std::string name;
  std::string value;
};

class Printer {
 public:
  Printer(const Expr& root, const Declarations& names, Literals literals)
      : names_(names), literals_(literals), order_(operands_first({&root, 1})) {
    for (const TensorDecl& tensor : names.tensors) taken_.insert(tensor.name);
    for (const ScalarDecl& scalar : names.scalars) taken_.insert(scalar.name);
  }

  std::vector<PrintedLet> run() {
    const std::size_t count = order_.nodes.size();
    std::vector<int> uses(count, 0);
    for (const Node* node : order_.nodes) {
      for (const Expr& arg : node->args()) ++uses[number(arg)];
    }
    pieces_.resize(count);
    depth_.assign(count, 0);
    named_.assign(count, false);
    std::vector<PrintedLet> lets;
    for (std::size_t i = 0; i < count; ++i) {
      const Node& node = *order_.nodes[i];
      for (const Expr& arg : node.args()) depth_[i] = std::max(depth_[i], depth_[number(arg)] + 1);
      Piece piece = print_node(node);
      const bool last = i + 1 == count;
      const bool name_it = (uses[i] > 1 && !is_trivial(node)) || depth_[i] > deepest_inline;
      if (name_it && !last) {
        lets.push_back({fresh_name(), std::move(piece.text)});
        piece = {lets.back().name};
        depth_[i] = 0;
        named_[i] = true;
      }
      pieces_[i] = std::move(piece);
    }
    lets.push_back({"", pieces_.back().text});
    return lets;
  }

 private:
  std::uint32_t number(const Expr& e) const { return order_.number.find(e.get()); }

  // Short enough to be repeated instead of named.
  static bool is_trivial(const Node& node) {
    return std::ranges::all_of(node.args(), [](const Expr& arg) { return arg->args().empty(); }) &&
           (node.args().empty() || info(node.op()).form == Form::Load ||
            node.op() == Op::FloatOfInt);
  }

  std::string fresh_name() {
    std::string name;
    do {
      name = "t" + std::to_string(next_name_++);
    } while (taken_.contains(name));
    return name;
  }

  Piece print_node(const Node& node) {
    const OpInfo& row = info(node.op());
    switch (row.form) {
      case Form::Leaf: return {std::string(row.text)};
      case Form::Const: return print_constant(node);
      case Form::Scalar: return {names_.scalars[node.slot()].name};
      case Form::Load: return {names_.tensors[node.slot()].name + "[" + arguments(node) + "]"};
      case Form::Call: return {std::string(row.text) + "(" + arguments(node) + ")"};
      case Form::Prefix: return print_prefix(node);
      case Form::Infix: return print_infix(node);
      case Form::Choice: return print_choice(node);
    }
    return {};
  }

  Piece print_constant(const Node& node) const {
    std::string text = literal_text(node, literals_);
    const bool negative = text[0] == '-';
    return {std::move(text), negative ? prefix_precedence : atom_precedence};
  }

  std::string arguments(const Node& node) const {
    std::string out;
    for (std::size_t i = 0; i < node.args().size(); ++i) {
      out += (i == 0 ? "" : ", ") + operand(node, i).text;
    }
    return out;
  }

  Piece print_prefix(const Node& node) const {
    std::string inner = operand(node, 0).within(prefix_precedence);
    // A literal right behind a minus would be read as a negative literal.
    const bool digit = inner[0] == '.' || (inner[0] >= '0' && inner[0] <= '9');
    if (digit) inner = "(" + inner + ")";
    return {std::string(info(node.op()).text) + inner, prefix_precedence};
  }

  Piece print_infix(const Node& node) const {
    const std::string_view text = info(node.op()).text;
    const int level = precedence(text);
    // People write q >= k where the canonical form has k <= q.
    const bool flip = (text == "<" || text == "<=") && flipped(node);
    const std::string shown = flip ? (text == "<" ? ">" : ">=") : std::string(text);
    const Piece left = operand(node, flip ? 1 : 0);
    const Piece right = operand(node, flip ? 0 : 1);
    return {left.within(level) + " " + shown + " " + right.within(level + 1), level};
  }

  // Shown as a > b when the right operand would come first in canonical order.
  static bool flipped(const Node& node) { return compare(node.arg(1), node.arg(0)) < 0; }

  Piece print_choice(const Node& node) const {
    return {operand(node, 0).within(choice_precedence + 1) + " ? " +
                operand(node, 1).within(choice_precedence) + " : " +
                operand(node, 2).within(choice_precedence),
            choice_precedence};
  }

  // The text of an operand; a conversion that the parser makes by itself is left out.
  Piece operand(const Node& node, std::size_t i) const {
    const std::uint32_t at = number(node.arg(i));
    const bool hidden = !named_[at] && widens_unasked(node, i);
    return hidden ? pieces_[number(node.arg(i)->arg(0))] : pieces_[at];
  }

  const Declarations& names_;
  Literals literals_;
  Order order_;
  std::set<std::string> taken_;
  std::vector<Piece> pieces_;
  std::vector<int> depth_;
  std::vector<bool> named_;
  int next_name_ = 0;
};

}  // namespace

std::string print(const Expr& expr, const Declarations& names, Literals literals) {
  std::string out;
  for (const PrintedLet& let : Printer(expr, names, literals).run()) {
    out += let.name.empty() ? let.value : "let " + let.name + " = " + let.value + "; ";
  }
  return out;
}

std::string print(const TensorDecl& tensor) {
  std::string out = tensor.name + ":" + std::string(dtype_name(tensor.dtype)) + "[";
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    out += (i == 0 ? "" : ",") + extent_text(tensor.extents[i]);
  }
  return out + "]" + (tensor.data.empty() ? "" : "=" + tensor.data);
}

std::string print(const ScalarDecl& scalar, Literals literals) {
  std::string out = scalar.name + ":" + std::string(type_name(scalar.type));
  if (!scalar.value) return out;
  char buffer[64];
  const auto write = [&](auto value) { return std::to_chars(buffer, std::end(buffer), value).ptr; };
  const char* const end = scalar.type == Type::I32 ? write(static_cast<std::int32_t>(*scalar.value))
                          : literals == Literals::F32 ? write(static_cast<float>(*scalar.value))
                                                      : write(*scalar.value);
  return out + "=" + std::string(static_cast<const char*>(buffer), end);
}

std::string print(const Program& program, Literals literals) {
  std::string out;
  const auto add = [&](std::string_view key, const std::string& value) {
    out += (out.empty() ? "" : " ") + join_word(key, value);
  };
  const auto formula = [&](std::string_view key, const Expr& expr) {
    if (expr) add(key, print(expr, program.declarations(), literals));
  };
  formula("mod", program.mod());
  formula("mask", program.mask());
  formula("bprop", program.bprop());
  for (const TensorDecl& tensor : program.tensors()) add("tensor", print(tensor));
  for (const ScalarDecl& scalar : program.scalars()) add("scalar", print(scalar, literals));
  return out;
}

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

std::string print_indented(const Expr& expr, const Declarations& names) {
  std::string out;
  for (const PrintedLet& let : Printer(expr, names, Literals::F32).run()) {
    const std::string head = let.name.empty() ? "  " : "  let " + let.name + " = ";
    out += head + broken(let.value, head.size());
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
