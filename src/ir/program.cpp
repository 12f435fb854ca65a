#include "ir/program.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/hash.h"
#include "base/words.h"
#include "ir/build.h"
#include "ir/language.h"
#include "ir/lexer.h"
#include "ir/numbering.h"
#include "ir/parse.h"

namespace fovea::ir {
namespace {

bool same_type(const TensorDecl& a, const TensorDecl& b) {
  return a.dtype == b.dtype && a.extents == b.extents;
}

}  // namespace

Type loaded_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::F64: return Type::F32;
    case DType::I32:
    case DType::I64:
    case DType::U8: return Type::I32;
    case DType::Bool: return Type::Bool;
  }
  throw InternalError("unknown element type");
}

Program::Program(Declarations declarations, Expr mod, Expr mask, Expr bprop) {
  if (mod && mod->type() == Type::I32) mod = to_f32(mod);
  if (bprop && bprop->type() == Type::I32) bprop = to_f32(bprop);
  verify_formulas(mod, mask, bprop);
  formulas_ = {std::move(mod), std::move(mask), std::move(bprop)};
  const Slots slots = canonical_slots(formulas_, declarations);
  declarations_.tensors = reordered(declarations.tensors, slots.tensors);
  declarations_.scalars = reordered(declarations.scalars, slots.scalars);
  for (Expr& formula : formulas_) {
    if (formula) formula = renumber(formula, slots.tensors, slots.scalars);
  }
}

Program Program::with_slots(Declarations declarations, Expr mod, Expr mask, Expr bprop) {
  verify_formulas(mod, mask, bprop);
  Program program;
  program.declarations_ = std::move(declarations);
  program.formulas_ = {std::move(mod), std::move(mask), std::move(bprop)};
  return program;
}

bool Program::operator==(const Program& other) const {
  return formulas_ == other.formulas_ &&
         std::ranges::equal(tensors(), other.tensors(), same_type) &&
         std::ranges::equal(scalars(), other.scalars(), {}, &ScalarDecl::type, &ScalarDecl::type);
}

std::uint64_t Program::hash() const {
  std::uint64_t hash = 0;
  for (const Expr& e : formulas_) hash = hash_combine(hash, e ? e->hash() : 0);
  for (const TensorDecl& tensor : tensors()) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(tensor.dtype));
    for (const Extent& extent : tensor.extents) {
      hash = hash_combine(hash, static_cast<std::uint64_t>(extent.kind));
      hash = hash_combine(hash, static_cast<std::uint64_t>(extent.number));
    }
  }
  for (const ScalarDecl& scalar : scalars()) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(scalar.type));
  }
  return hash;
}

namespace {

const std::vector<std::string> tensor_types{"f32", "f16", "bf16", "f64",
                                            "i32", "i64", "u8",   "bool"};
const std::vector<std::string> scalar_types{"f32", "i32"};
const std::vector<std::string> size_names{"B", "H", "Hkv", "Sq", "Skv"};  // as Extent::Kind

// The text before the first '=' at the top level, and what follows it.
struct Halves {
  std::string_view left, right;
  bool has_right = false;
};
Halves split_at_equals(std::string_view text) {
  const std::size_t at = text.find('=');
  if (at == std::string_view::npos) return {text, {}, false};
  std::string_view right = text.substr(at + 1);
  while (!right.empty() && right.front() == ' ') right.remove_prefix(1);
  while (!right.empty() && right.back() == ' ') right.remove_suffix(1);
  return {text.substr(0, at), right, true};
}

std::string declared_name(Lexer& lexer) {
  const Token name = lexer.take();
  if (name.kind != TokenKind::Name) {
    lexer.fail(name, "expected a name to declare, got " + describe(name));
  }
  if (is_reserved(name.text)) {
    lexer.fail(name, "'" + std::string(name.text) + "' is a word of the language; choose another");
  }
  return std::string(name.text);
}

std::string declared_type(Lexer& lexer, const std::vector<std::string>& types) {
  const Token token = lexer.take();
  const std::string text(token.text);
  if (std::ranges::find(types, text) == types.end()) {
    lexer.fail(token, "expected a type (" + joined(types) + "), got " + describe(token) +
                          did_you_mean(text, types));
  }
  return text;
}

Extent declared_extent(Lexer& lexer) {
  const Token token = lexer.take();
  if (token.kind == TokenKind::Number) {
    Extent extent;
    const char* const last = token.text.data() + token.text.size();
    const auto [end, error] = std::from_chars(token.text.data(), last, extent.number);
    if (end != last || error != std::errc{}) {
      lexer.fail(token, "an extent must be a whole number below 2^63, got " + describe(token));
    }
    return extent;
  }
  const auto at = std::ranges::find(size_names, token.text);
  if (at == size_names.end()) {
    lexer.fail(token, "expected an extent (a number or one of " + joined(size_names) + "), got " +
                          describe(token) + did_you_mean(token.text, size_names));
  }
  return {static_cast<Extent::Kind>(1 + (at - size_names.begin())), 0};
}

double scalar_value(std::string_view text, const ScalarDecl& scalar, Literals literals) {
  const auto refuse = [&](const std::string& rule) {
    throw InvalidArgument("scalar: the value '" + std::string(text.substr(0, 64)) + "' of '" +
                          scalar.name + "' " + rule);
  };
  // Read as the type that it has: through double it would be rounded twice.
  const auto read = [&](auto value) {
    const bool plus = text.starts_with('+') && !text.starts_with("+-");
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + (plus ? 1 : 0), last, value);
    if (end != last || error == std::errc::invalid_argument) refuse("is not a number");
    if (error != std::errc{}) refuse("does not fit f32");
    return static_cast<double>(value);
  };
  if (scalar.type == Type::F32) {
    const double rounded = read(0.0f);
    return literals == Literals::F32 ? rounded : read(0.0);
  }
  const double value = read(0.0);  // 1e3 is an i32
  const bool fits = value >= std::numeric_limits<std::int32_t>::min() &&
                    value <= std::numeric_limits<std::int32_t>::max();
  if (!fits || value != static_cast<std::int32_t>(value)) refuse("is not an i32");
  return value;
}

void check_name_is_new(const Declarations& declarations, const std::string& name) {
  const auto called = [&](const auto& decl) { return decl.name == name; };
  if (std::ranges::any_of(declarations.tensors, called) ||
      std::ranges::any_of(declarations.scalars, called)) {
    throw InvalidArgument("the captured name '" + name + "' is declared twice");
  }
}

void check_count(std::size_t count, const std::string& what) {
  if (count < limits::captured) return;
  throw InvalidArgument("more than " + std::to_string(limits::captured) + " captured " + what);
}

}  // namespace

std::string extent_text(const Extent& extent) {
  if (extent.kind == Extent::Kind::Number) return std::to_string(extent.number);
  return size_names[static_cast<std::size_t>(extent.kind) - 1];
}

TensorDecl parse_tensor(std::string_view text) {
  const Halves halves = split_at_equals(text);
  Lexer lexer({"tensor", halves.left});
  TensorDecl tensor;
  tensor.name = declared_name(lexer);
  lexer.expect_symbol(":", "the name");
  tensor.dtype = *dtype_from_name(declared_type(lexer, tensor_types));
  lexer.expect_symbol("[", "the type");
  if (!lexer.take_symbol("]")) {
    do {
      if (tensor.extents.size() == limits::rank) {
        lexer.fail(lexer.peek(), "more than " + std::to_string(limits::rank) + " dimensions");
      }
      tensor.extents.push_back(declared_extent(lexer));
    } while (lexer.take_symbol(","));
    lexer.expect_symbol("]", "the extents");
  }
  if (lexer.peek().kind != TokenKind::End) {
    lexer.fail(lexer.peek(), "expected the end or '=', got " + describe(lexer.peek()));
  }
  tensor.data = std::string(halves.right);
  return tensor;
}

ScalarDecl parse_scalar(std::string_view text, Literals literals) {
  const Halves halves = split_at_equals(text);
  Lexer lexer({"scalar", halves.left});
  ScalarDecl scalar;
  scalar.name = declared_name(lexer);
  if (lexer.take_symbol(":") && declared_type(lexer, scalar_types) == "i32") {
    scalar.type = Type::I32;
  }
  if (lexer.peek().kind != TokenKind::End) {
    lexer.fail(lexer.peek(), "expected ':', '=' or the end, got " + describe(lexer.peek()));
  }
  if (halves.has_right) scalar.value = scalar_value(halves.right, scalar, literals);
  return scalar;
}

void declare(Declarations& declarations, TensorDecl tensor) {
  check_name_is_new(declarations, tensor.name);
  check_count(declarations.tensors.size(), "tensors");
  declarations.tensors.push_back(std::move(tensor));
}

void declare(Declarations& declarations, ScalarDecl scalar) {
  check_name_is_new(declarations, scalar.name);
  check_count(declarations.scalars.size(), "scalars");
  declarations.scalars.push_back(std::move(scalar));
}

Program parse_program(std::string_view line, Literals literals) {
  const WithLiterals scope(literals);
  static const std::vector<std::string> keys{"mod", "mask", "bprop", "tensor", "scalar"};
  struct Formula {
    Role role;
    std::string text;
    bool given = false;
  };
  Formula formulas[] = {{Role::Mod, {}}, {Role::Mask, {}}, {Role::Bprop, {}}};
  Declarations declarations;
  for (Word& word : split_words(line)) {
    const auto key = std::ranges::find(keys, word.key);
    if (key == keys.end()) {
      throw InvalidArgument("unknown key '" + word.key + "'" + did_you_mean(word.key, keys) +
                            " (a program has " + joined(keys) + ")");
    }
    if (word.key == "tensor") {
      declare(declarations, parse_tensor(word.value));
    } else if (word.key == "scalar") {
      declare(declarations, parse_scalar(word.value, literals));
    } else {
      Formula& formula = formulas[key - keys.begin()];
      if (formula.given) throw InvalidArgument("'" + word.key + "' is given twice");
      formula.given = true;
      formula.text = std::move(word.value);
    }
  }
  Expr parsed[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const Formula& formula = formulas[i];
    if (formula.given) parsed[i] = parse_formula(formula.text, declarations, formula.role);
  }
  return Program(std::move(declarations), parsed[0], parsed[1], parsed[2]);
}

}  // namespace fovea::ir
