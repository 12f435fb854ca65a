#include "tests/ir/targets.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/range.h"
#include "ir/simplify.h"
#include "ir/tape.h"

namespace fovea::fuzz {
namespace {

using namespace ir;

// What bare formulas may name; the corpus and the dictionary use these names.
const Declarations& declarations() {
  static const auto* all = [] {
    auto* out = new Declarations;
    for (const char* text : {"doc:i32[B,Sq]", "bias:f16[H,8]", "t:f32[4]", "w:bf16[]",
                             "id:i64[Skv]", "byte:u8[2,2,2]", "on:bool[B,H]"}) {
      declare(*out, parse_tensor(text));
    }
    for (const char* text : {"x", "y:f32=0.5", "n:i32=3"}) declare(*out, parse_scalar(text));
    return out;
  }();
  return *all;
}

// Every tensor holds one element, which every index is clamped to.
struct SingleElements {
  explicit SingleElements(const Declarations& declared) {
    for (const TensorDecl& tensor : declared.tensors) {
      TensorView view{&bits, tensor.dtype, static_cast<int>(tensor.extents.size()), {}, {}};
      view.extent.fill(1);
      tensors.push_back(view);
    }
    scalars.assign(declared.scalars.size(), ScalarValue{1.5f, 3});
  }
  std::uint64_t bits = 0x0000'0001'3f80'0001;
  std::vector<TensorView> tensors;
  std::vector<ScalarValue> scalars;
};

// Everything that is done with a formula after parsing; "" or what is wrong with it.
std::string exercise(const Expr& expr, const Declarations& declared) {
  const SingleElements captured(declared);
  Point<float> point;
  point.score = -0.75f, point.grad = 2.5f;
  point.b = 1, point.h = 2, point.q = 9, point.k = 5;
  point.B = 2, point.H = 4, point.Hkv = 2, point.Sq = 16, point.Skv = 12;
  point.scalars = captured.scalars, point.tensors = captured.tensors;
  Box box;
  box.b = {0, 1}, box.h = {0, 3}, box.q = {8, 15}, box.k = {4, 7};
  box.B = {2, 2}, box.H = {4, 4}, box.Hkv = {2, 2}, box.Sq = {16, 16}, box.Skv = {12, 12};

  const Cell<float> value = evaluate(expr, point);
  if (!test::holds(expr->type(), bound(expr, box), value)) return "range does not hold the value";
  const std::vector<std::int64_t> extents(limits::rank, 1);
  const TapeBounds bounds{box, [&](std::uint32_t) { return std::span(extents); }};
  std::vector<Expr> roots{expr, simplify(expr)};
  if (expr->type() == Type::F32) {
    const Gradients gradients = differentiate(expr);
    roots.push_back(simplify(gradients.score));
    for (const LoadGradient& by : gradients.loads) roots.push_back(simplify(by.gradient));
    for (const ScalarGradient& by : gradients.scalars) roots.push_back(simplify(by.gradient));
  }
  const Tape tape = lower(roots, &bounds);
  if (tape.outputs.size() != roots.size()) return "the tape has lost an output";
  Evaluator<float> evaluator(roots);
  evaluator(point);
  const Cell<float>& same = evaluator.value(1);
  const bool equal_f = same.f == value.f || (std::isnan(same.f) && std::isnan(value.f));
  if (!equal_f || same.i != value.i || same.b != value.b) return "simplify changed the value";
  return "";
}

std::string formula_failure(const Expr& expr, const Declarations& declared) {
  const std::string text = print(expr, declared);
  try {
    const Expr again = parse_formula(text, declared);
    if (again != expr) return "reads back as another object: " + text;
    if (print(again, declared) != text) return "prints differently: " + text;
    if (parse_formula(print_indented(expr, declared), declared) != expr) {
      return "its indented form reads back as another object: " + text;
    }
  } catch (const InvalidArgument& error) {
    return "does not read back: " + text + "\n" + error.what();
  }
  // Reading is what is fuzzed here: the steps after it, which cost more, for one formula in four.
  if (expr->hash() % 4 != 0) return "";
  const std::string failure = exercise(expr, declared);
  return failure.empty() ? "" : failure + ": " + text;
}

std::string program_failure(const Program& program) {
  const std::string line = print(program);
  try {
    const Program again = parse_program(line);
    if (!(again == program)) return "reads back as another Program: " + line;
    if (again.hash() != program.hash()) return "has another hash: " + line;
    if (print(again) != line) return "prints differently: " + line + "\n" + print(again);
  } catch (const InvalidArgument& error) {
    return "does not read back: " + line + "\n" + error.what();
  }
  for (const Expr& expr : program.formulas()) {
    if (!expr) continue;
    const std::string failure = formula_failure(expr, program.declarations());
    if (!failure.empty()) return failure;
  }
  return "";
}

std::optional<Program> read_program(std::string_view input) {
  try {
    return parse_program(input);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

Expr read_formula(std::string_view input) {
  try {
    return parse_formula(input, declarations());
  } catch (const InvalidArgument&) {
    return {};
  }
}

// Errors cost more than anything else here: what can only be a formula is read as a Program only
// now and then.
bool may_be_program(std::string_view input) {
  for (const std::string_view key : {"mod=", "mask=", "bprop=", "tensor=", "scalar="}) {
    if (input.find(key) != std::string_view::npos) return true;
  }
  return input.size() % 16 == 0;
}

}  // namespace

ParseOutcome parse_target(std::string_view input) {
  if (may_be_program(input)) {
    if (const auto program = read_program(input)) return {true, program_failure(*program)};
  }
  if (const Expr formula = read_formula(input)) {
    return {true, formula_failure(formula, declarations())};
  }
  return {};
}

}  // namespace fovea::fuzz
