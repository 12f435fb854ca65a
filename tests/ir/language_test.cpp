// Runs every example of docs/language.md: the lines `kind: text => result` of its ```fovea blocks.
// What the kinds mean is said at the head of that document.
#include <gtest/gtest.h>

#include <array>
#include <charconv>
#include <fstream>
#include <functional>
#include <map>

#include "base/error.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/language.h"
#include "ir/lexer.h"
#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/program.h"
#include "ir/simplify.h"
#include "tests/error_of.h"

namespace fovea::ir {
namespace {

// Where the examples are evaluated, as the document says.
struct World {
  std::array<float, 4> slopes{0.5f, 0.25f, 0.125f, 0.0625f};
  std::array<std::int32_t, 16> doc{0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 4, 5, 5};
  std::array<std::uint8_t, 8> seen{1, 0, 1, 0, 1, 0, 1, 0};
  std::array<std::int64_t, 2> ids{5000000000, -7};
  float shift = 4;
  std::array<ScalarValue, 3> scalars{{{2.0f, 0}, {0.5f, 0}, {0, 3}}};
  std::vector<TensorView> tensors;
  Declarations declarations;

  World() {
    add("slopes:f32[H]", slopes.data(), {4});
    add("doc:i32[B,Sq]", doc.data(), {2, 8});
    add("seen:bool[Skv]", seen.data(), {8});
    add("ids:i64[2]", ids.data(), {2});
    add("shift:f32[]", &shift, {});
    for (const char* text : {"x=2", "y=0.5", "n:i32=3"}) declare(declarations, parse_scalar(text));
  }
  void add(const char* text, const void* data, std::vector<std::int64_t> extents) {
    declare(declarations, parse_tensor(text));
    tensors.push_back(TensorView::dense(data, declarations.tensors.back().dtype, extents));
  }
  Expr parse(const std::string& text) const { return parse_formula(text, declarations); }

  template <class Real>
  Cell<Real> value(const Expr& expr) const {
    Point<Real> point;
    point.score = 1.5, point.grad = 0.25;
    point.b = 1, point.h = 2, point.q = 5, point.k = 3;
    point.B = 2, point.H = 4, point.Hkv = 2, point.Sq = 8, point.Skv = 8;
    point.scalars = scalars, point.tensors = tensors;
    return evaluate<Real>(expr, point);
  }
};

template <class Real>
std::string value_text(const World& world, const std::string& text) {
  const Expr expr = world.parse(text);
  const Cell<Real> cell = world.value<Real>(expr);
  switch (expr->type()) {
    case Type::Bool: return cell.b ? "true" : "false";
    case Type::I32: return std::to_string(cell.i);
    case Type::F32: break;
  }
  if (std::isnan(cell.f)) return "nan";
  char buffer[64];
  const auto end = std::to_chars(buffer, std::end(buffer), cell.f).ptr;
  const std::string out(static_cast<char*>(buffer), end);
  return out.find_first_of(".en") == std::string::npos ? out + ".0" : out;
}

// The derivative of `text` by score, a load or a scalar.
std::string derivative(const World& world, const std::string& text, const std::string& by) {
  const Gradients gradients = differentiate(world.parse(text));
  const auto shown = [&](const Expr& e) { return print(simplify(e), world.declarations); };
  if (by == "score") return shown(gradients.score);
  for (const LoadGradient& one : gradients.loads) {
    if (print(one.load, world.declarations) == by) return shown(one.gradient);
  }
  for (const ScalarGradient& one : gradients.scalars) {
    if (world.declarations.scalars[one.slot].name == by) return shown(one.gradient);
  }
  return "not an input";
}

std::string error_text(const std::function<void()>& parse) {
  const std::string all = test::error_of<InvalidArgument>(parse);
  return all.substr(0, all.find('\n'));
}

struct Example {
  int line;
  std::string kind, text, result;
};

void expect_equal(const Example& e, const std::string& got) {
  EXPECT_EQ(got, e.result) << "docs/language.md:" << e.line << ": " << e.text;
}
void expect_contains(const Example& e, const std::string& got) {
  EXPECT_NE(got.find(e.result), std::string::npos)
      << "docs/language.md:" << e.line << ": " << e.text << "\n  says: " << got;
}

using Check = std::function<void(const World&, const Example&)>;

const std::map<std::string, Check>& checks() {
  using W = const World&;
  using E = const Example&;
  static const std::map<std::string, Check> table{
      {"", [](W w, E e) { expect_equal(e, value_text<float>(w, e.text)); }},
      {"double",
       [](W w, E e) {
         const WithLiterals scope(Literals::F64);
         expect_equal(e, value_text<double>(w, e.text));
       }},
      {"canonical double",
       [](W w, E e) {
         const WithLiterals scope(Literals::F64);
         expect_equal(e, print(w.parse(e.text), w.declarations, Literals::F64));
       }},
      {"canonical", [](W w, E e) { expect_equal(e, print(w.parse(e.text), w.declarations)); }},
      {"same", [](W w, E e) { EXPECT_EQ(w.parse(e.text), w.parse(e.result)) << e.line; }},
      {"differ", [](W w, E e) { EXPECT_NE(w.parse(e.text), w.parse(e.result)) << e.line; }},
      {"diff", [](W w, E e) { expect_equal(e, derivative(w, e.text, "score")); }},
      {"diff by x", [](W w, E e) { expect_equal(e, derivative(w, e.text, "x")); }},
      {"diff by y", [](W w, E e) { expect_equal(e, derivative(w, e.text, "y")); }},
      {"diff by slopes[h]", [](W w, E e) { expect_equal(e, derivative(w, e.text, "slopes[h]")); }},
      {"error", [](W w, E e) { expect_contains(e, error_text([&] { w.parse(e.text); })); }},
      {"tensor", [](W, E e) { expect_equal(e, print(parse_tensor(e.text))); }},
      {"scalar", [](W, E e) { expect_equal(e, print(parse_scalar(e.text))); }},
      {"program", [](W, E e) { expect_equal(e, print(parse_program(e.text))); }},
      {"same program",
       [](W, E e) { EXPECT_TRUE(parse_program(e.text) == parse_program(e.result)) << e.line; }},
      {"differ program",
       [](W, E e) { EXPECT_FALSE(parse_program(e.text) == parse_program(e.result)) << e.line; }},
      {"tensor error",
       [](W, E e) { expect_contains(e, error_text([&] { parse_tensor(e.text); })); }},
      {"scalar error",
       [](W, E e) { expect_contains(e, error_text([&] { parse_scalar(e.text); })); }},
      {"program error",
       [](W, E e) { expect_contains(e, error_text([&] { parse_program(e.text); })); }},
  };
  return table;
}

// `kind: text => result`; without a known kind all of it is a text.
Example split_example(const std::string& line, int number) {
  const std::size_t arrow = line.rfind(" => ");
  EXPECT_NE(arrow, std::string::npos) << "docs/language.md:" << number << ": " << line;
  if (arrow == std::string::npos) return {};
  const auto trimmed = [](std::string text) {
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  Example out{number, "", trimmed(line.substr(0, arrow)), trimmed(line.substr(arrow + 4))};
  const std::size_t colon = out.text.find(": ");
  const std::string kind = out.text.substr(0, std::min(colon, out.text.size()));
  if (colon != std::string::npos && checks().contains(kind)) {
    out.kind = kind;
    out.text = trimmed(out.text.substr(colon + 2));
  }
  return out;
}

std::string read_document() {
  std::ifstream file(FOVEA_SOURCE_DIR "/docs/language.md");
  EXPECT_TRUE(file.is_open());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Example> read_examples() {
  std::istringstream document(read_document());
  std::vector<Example> out;
  std::string line;
  bool inside = false;
  for (int number = 1; std::getline(document, line); ++number) {
    if (line.starts_with("```")) {
      inside = line == "```fovea";
    } else if (inside && !line.empty()) {
      out.push_back(split_example(line, number));
    }
  }
  return out;
}

TEST(Language, EveryExampleHolds) {
  const World world;
  for (const Example& example : read_examples()) {
    try {
      checks().at(example.kind)(world, example);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "docs/language.md:" << example.line << ": " << error.what();
    }
  }
}

TEST(Language, ThereAreExamplesOfEveryKind) {
  std::map<std::string, int> count;
  for (const Example& example : read_examples()) ++count[example.kind];
  int total = 0;
  for (const auto& [kind, check] : checks()) {
    EXPECT_GT(count[kind], 0) << kind;
    total += count[kind];
  }
  EXPECT_GE(total, 120);
}

// A new operation, bound or stock formula is not done before the document has it.
TEST(Language, NothingIsMissing) {
  const std::string document = read_document();
  const auto has = [&](std::string_view text) { return document.find(text) != std::string::npos; };
  for (const OpInfo& row : all_ops) {
    if (row.text.empty()) continue;
    const std::string call = std::string(row.text) + "(";
    EXPECT_TRUE(row.form == Form::Call ? has(call) : has(row.text)) << row.name;
  }
  for (const Stock& stock : stock_formulas) {
    EXPECT_TRUE(has(stock.name) && has(stock.text)) << stock.name;
  }
  for (const std::size_t bound : {limits::nesting, limits::operations, limits::depth,
                                  limits::name_length, limits::captured, limits::rank}) {
    EXPECT_TRUE(has("| " + std::to_string(bound) + " |")) << bound;
  }
  EXPECT_EQ(limits::text_bytes, std::size_t{1} << 20);
  EXPECT_TRUE(has("| 1 MiB |"));
}

}  // namespace
}  // namespace fovea::ir
