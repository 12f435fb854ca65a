// A Program: the formulas of one attention with what they capture. Immutable once made. Two
// Programs are equal if their canonical formulas and declared types are equal: names, default
// values and test data do not count.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "ir/expr.h"

namespace fovea::ir {

// How much text the parser takes, so that nothing it reads can exhaust the stack or the memory.
// Each bound has its own message. Generous: a traced graph of thousands of operations fits.
namespace limits {
inline constexpr std::size_t text_bytes = std::size_t{1} << 20;
inline constexpr std::size_t nesting = 200;       // parentheses, calls, prefixes inside one another
inline constexpr std::size_t operations = 20000;  // in one formula, counted as written
inline constexpr std::size_t depth = 4000;        // operations on one path, through `let` too
inline constexpr std::size_t name_length = 64;
inline constexpr std::size_t captured = 256;  // tensors and scalars, each
inline constexpr std::size_t rank = 8;        // of a captured tensor
}  // namespace limits

// One extent of a captured tensor: a size of the attention problem, or a number.
struct Extent {
  enum class Kind : std::uint8_t { Number, B, H, Hkv, Sq, Skv };
  Kind kind = Kind::Number;
  std::int64_t number = 0;
  bool operator==(const Extent&) const = default;
};

struct TensorDecl {
  std::string name;
  DType dtype = DType::F32;
  std::vector<Extent> extents;
  std::string data;  // the text after '=': test data for the command line; may be empty
};

struct ScalarDecl {
  std::string name;
  Type type = Type::F32;        // F32 or I32
  std::optional<double> value;  // the default
};

// What formulas may name. A load or scalar node's slot is an index into these.
struct Declarations {
  std::vector<TensorDecl> tensors;
  std::vector<ScalarDecl> scalars;
};

// The type that a load of such elements has in formulas.
Type loaded_type(DType dtype);

std::string extent_text(const Extent& extent);  // "64", "Skv"

// `name:dtype[extents]`, optionally `=data`; `name`, `name:type`, `name=value`, `name:type=value`.
TensorDecl parse_tensor(std::string_view text);
ScalarDecl parse_scalar(std::string_view text, Literals literals = Literals::F32);
void declare(Declarations& declarations, TensorDecl tensor);  // checks names and counts
void declare(Declarations& declarations, ScalarDecl scalar);

class Program {
 public:
  Program() = default;  // identity: no modifier, no mask
  // Renumbers captured things by structure, so that the order of declaration does not count.
  // Checks the types: mod and bprop f32, mask bool; any may be null.
  Program(Declarations declarations, Expr mod, Expr mask, Expr bprop);

  // Keeps the slots as they are: for programs made from programs.
  static Program with_slots(Declarations declarations, Expr mod, Expr mask, Expr bprop);

  const Expr& mod() const { return formulas_[0]; }
  const Expr& mask() const { return formulas_[1]; }
  const Expr& bprop() const { return formulas_[2]; }
  std::span<const Expr> formulas() const { return formulas_; }  // the three; any may be null
  const std::vector<TensorDecl>& tensors() const { return declarations_.tensors; }
  const std::vector<ScalarDecl>& scalars() const { return declarations_.scalars; }
  const Declarations& declarations() const { return declarations_; }

  bool operator==(const Program& other) const;
  std::uint64_t hash() const;

 private:
  Declarations declarations_;
  std::array<Expr, 3> formulas_;
};

// Reads `mod="..." mask="..." bprop="..." tensor="..." scalar="..."`, in any order. Its literals
// and the defaults of its scalars are of that kind.
Program parse_program(std::string_view line, Literals literals = Literals::F32);

}  // namespace fovea::ir
