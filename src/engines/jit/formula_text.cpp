#include "engines/jit/formula_text.h"

#include <algorithm>

namespace fovea::jit {
namespace {

using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Stage;

bool is_load(const Node* node) { return info(node->op()).form == ir::Form::Load; }

// How code of a leaf's own stage reads it.
std::string leaf_text(Op op) {
  switch (op) {
    case Op::Score: return "s";
    case Op::Grad: return "grad";
    case Op::IndexB: return "head.b";
    case Op::IndexH: return "head.h";
    case Op::SizeB: return "head.B";
    case Op::SizeH: return "head.H";
    case Op::SizeHkv: return "head.Hkv";
    case Op::SizeSq: return "head.Sq";
    case Op::SizeSkv: return "head.Skv";
    default: return {};  // everything else has operands or is a constant
  }
}

// A value as a word of shared memory, and back.
std::string to_word(ir::Type type, const std::string& value) {
  switch (type) {
    case ir::Type::F32: return "bits_of(" + value + ")";
    case ir::Type::I32: return "static_cast<unsigned>(" + value + ")";
    case ir::Type::Bool: return value + " ? 1u : 0u";
  }
  return {};
}
std::string from_word(ir::Type type, const std::string& word) {
  switch (type) {
    case ir::Type::F32: return "float_of_bits(" + word + ")";
    case ir::Type::I32: return "static_cast<int>(" + word + ")";
    case ir::Type::Bool: return word + " != 0";
  }
  return {};
}

// What functions of a row or a column begin with.
std::string parameters(Stage stage) {
  return std::string("(const Arguments& a, const Uniform& u, int ") +
         (stage == Stage::Row ? "q, " : "k, ");
}
std::string word(std::size_t i) { return "words[" + std::to_string(i) + "]"; }

}  // namespace

void FormulaText::structs() {
  structure("Uniform", Stage::Uniform, "");
  structure("Row", Stage::Row, "int q;");
  pair_structure();
  structure("Column", Stage::Column, "int k; Pair pair;");
}

void FormulaText::uniform() {
  line("static FOVEA_DEVICE Uniform uniform(const Arguments& a, const Head& head) {");
  const Nodes later = stages_.read_later(Stage::Uniform);
  values(stages_.below(later, Stage::Uniform), Stage::Uniform);
  line("  Uniform u;");
  fields(later, "u", Stage::Uniform);
  line("  return u;");
  line("}");
}

int FormulaText::positions(Stage stage) {
  Nodes staged, cheap;
  for (const Node* node : stages_.read_later(stage)) {
    (stages_.costly(node) ? staged : cheap).push_back(node);
  }
  make_positions(stage, staged);
  line(std::string("static FOVEA_DEVICE ") + (stage == Stage::Row ? "Row row" : "Column column") +
       parameters(stage) + "const unsigned* words) {");
  for (std::size_t i = 0; i < staged.size(); ++i) {
    declare(staged[i], stage, from_word(staged[i]->type(), word(i)));
  }
  values(stages_.below(cheap, stage), stage);
  line(stage == Stage::Row ? "  Row r;" : "  Column c{};");
  line(stage == Stage::Row ? "  r.q = q;" : "  c.k = k;");
  fields(stages_.read_later(stage), stage == Stage::Row ? "r" : "c", stage);
  line(stage == Stage::Row ? "  return r;" : "  return c;");
  line("}");
  return static_cast<int>(staged.size());
}

void FormulaText::make_positions(Stage stage, const Nodes& staged) {
  line(std::string("static FOVEA_DEVICE void ") +
       (stage == Stage::Row ? "make_row" : "make_column") + parameters(stage) +
       "unsigned* words) {");
  values(stages_.below(staged, stage), stage);
  for (std::size_t i = 0; i < staged.size(); ++i) {
    line("  " + word(i) + " = " + to_word(staged[i]->type(), stages_.name(staged[i], stage)) + ";");
  }
  line("}");
}

void FormulaText::function(const std::string& name, const std::string& arguments,
                           const Expr& root) {
  const std::string type(type_text(root->type()));
  line("static FOVEA_DEVICE " + type + " " + name +
       "(const Arguments& a, const Uniform& u, const Row& r, const Column& c" + arguments + ") {");
  const Node* const node = root.get();
  values(stages_.below({&node, 1}, Stage::Element), Stage::Element);
  line("  return " + stages_.name(node, Stage::Element) + ";");
  line("}");
  reads(name, node);
}

// Which of the staged values a function reads.
void FormulaText::reads(const std::string& name, const Node* root) {
  bool diagonal = false, cell = false;
  const auto look = [&](const Node* node) {
    if (!stages_.in_pair(node)) return;
    (node == stages_.cell() ? cell : diagonal) = true;
  };
  look(root);
  for (const Node* node : stages_.below({&root, 1}, Stage::Element)) {
    for (const Expr& arg : node->args()) look(arg.get());
  }
  line("static constexpr PairReads " + name + "_reads{" + (diagonal ? "true" : "false") + ", " +
       (cell ? "true" : "false") + "};");
}

void FormulaText::pair_structure() {
  line("struct Pair {");
  for (const Node* node : stages_.nodes()) {
    if (!stages_.in_pair(node)) continue;
    line("  " + std::string(type_text(node->type())) + " v" + std::to_string(stages_.number(node)) +
         ";");
  }
  line("};");
}

void FormulaText::tile_values() {
  const Nodes& diagonal = stages_.diagonal();
  const Node* const cell = stages_.cell();
  line("static constexpr int diagonal_words = " + std::to_string(diagonal.size()) + ";");
  diagonal_functions();
  cell_functions();
  line("static FOVEA_DEVICE Pair pair(const unsigned* words, unsigned cell) {");
  line("  Column c{};");
  for (std::size_t i = 0; i < diagonal.size(); ++i) {
    line("  " + stages_.name(diagonal[i], Stage::Element) + " = " +
         from_word(diagonal[i]->type(), word(i)) + ";");
  }
  if (cell != nullptr) line("  " + stages_.name(cell, Stage::Element) + " = Cell::of_bits(cell);");
  line("  return c.pair;");
  line("}");
  line(
      "static FOVEA_DEVICE void fill_pair(const Arguments& a, const Uniform& u, const Row& r, "
      "Column& c) {");
  if (!diagonal.empty()) line("  fill_diagonal(a, u, r, c);");
  if (cell != nullptr) {
    line("  " + stages_.name(cell, Stage::Element) + " = " + load_text(cell, Stage::Element) + ";");
  }
  line("}");
}

void FormulaText::diagonal_functions() {
  const Nodes& staged = stages_.diagonal();
  if (!staged.empty()) {
    line(
        "static FOVEA_DEVICE void fill_diagonal(const Arguments& a, const Uniform& u, "
        "const Row& r, Column& c) {");
    for (const Node* node : stages_.below_staged(staged)) {
      const std::string text = value(node, Stage::Element, FunctionAccuracy{.precise = true});
      if (stages_.in_pair(node)) {
        line("  " + stages_.name(node, Stage::Element) + " = " + text + ";");
      } else {
        declare(node, Stage::Element, text);
      }
    }
    line("}");
  }
  line(
      "static FOVEA_DEVICE void make_diagonal(const Arguments& a, const Uniform& u, int q, int k, "
      "unsigned* words) {");
  if (!staged.empty()) {
    // Nothing that is staged for rows or columns is read.
    line("  const unsigned nothing[row_words + column_words + 1] = {};");
    line("  const Row r = row(a, u, q, nothing);");
    line("  Column c = column(a, u, k, nothing);");
    line("  fill_diagonal(a, u, r, c);");
  }
  for (std::size_t i = 0; i < staged.size(); ++i) {
    line("  " + word(i) + " = " +
         to_word(staged[i]->type(), stages_.name(staged[i], Stage::Element)) + ";");
  }
  line("}");
}

void FormulaText::cell_functions() {
  const Node* const cell = stages_.cell();
  line("static constexpr bool has_cells = " + std::string(cell != nullptr ? "true" : "false") +
       ";");
  if (cell == nullptr) {
    line("using Cell = captured::StoredF32;");
    line("static FOVEA_DEVICE CellSource cells(const Arguments&, const Uniform&) { return {}; }");
    line("static constexpr bool batches_share_cells = false;");
    return;
  }
  const bool shared = !ir::any(cell->depends(), ir::Depends::B);
  line("static constexpr bool batches_share_cells = " + std::string(shared ? "true" : "false") +
       ";");
  line("using Cell = " + captured_type(cell) + ";");
  line("static FOVEA_DEVICE CellSource cells(const Arguments& a, const Uniform& u) {");
  std::string text = "  return {u." + part_name(cell, Stage::Uniform) + ", a.words[" +
                     std::to_string(layout_.tensors[cell->slot()]) + "]";
  for (const Op op : {Op::IndexQ, Op::IndexK}) {
    int index = 0;
    while (cell->arg(static_cast<std::size_t>(index))->op() != op) ++index;
    const int tensor = layout_.tensors[cell->slot()];
    text += ", a.words[" + std::to_string(WordLayout::extent(tensor, index)) + "], a.words[" +
            std::to_string(WordLayout::stride(tensor, index)) + "]";
  }
  line(text + "};");
  line("}");
}

FormulaText::Nodes FormulaText::addressed_in(Stage stage) const {
  Nodes out;
  for (const Node* node : stages_.nodes()) {
    const Stage own = Stages::stage(node);
    if (!is_load(node) || own == stage) continue;
    const bool part = std::ranges::any_of(
        node->args(), [&](const Expr& index) { return Stages::stage(index.get()) == stage; });
    if (stage == Stage::Uniform || (own == Stage::Element && part)) out.push_back(node);
  }
  return out;
}

std::string FormulaText::part_name(const Node* load, Stage stage) const {
  return (stage == Stage::Uniform ? "data" : "at") + std::to_string(stages_.number(load));
}

void FormulaText::structure(const std::string& name, Stage stage, const std::string& position) {
  line("struct " + name + " {");
  if (!position.empty()) line("  " + position);
  for (const Node* node : stages_.read_later(stage)) {
    line("  " + std::string(type_text(node->type())) + " " + stages_.name(node, stage) + ";");
  }
  for (const Node* load : addressed_in(stage)) {
    const std::string type =
        stage == Stage::Uniform ? "const " + captured_type(load) + "::Stored* " : "long long ";
    line("  " + type + part_name(load, stage) + ";");
  }
  line("};");
}

void FormulaText::fields(const Nodes& nodes, const std::string& own, Stage stage) {
  for (const Node* node : nodes) {
    const std::string name = stages_.name(node, stage);
    line("  " + own + "." + name + " = " + name + ";");
  }
  for (const Node* load : addressed_in(stage)) {
    const std::string first = stage == Stage::Uniform ? data_text(load) : "";
    line("  " + own + "." + part_name(load, stage) + " = " + sum(first, load, stage) + ";");
  }
}

void FormulaText::values(const Nodes& nodes, Stage here) {
  // Only in the inner loop is a fast function worth its error.
  const FunctionAccuracy functions =
      here == Stage::Element ? functions_ : FunctionAccuracy{.precise = true};
  for (const Node* node : nodes) declare(node, here, value(node, here, functions));
}

void FormulaText::declare(const Node* node, Stage here, const std::string& text) {
  line("  const " + std::string(type_text(node->type())) + " " + stages_.name(node, here) + " = " +
       text + ";");
}

std::string FormulaText::value(const Node* node, Stage here,
                               const FunctionAccuracy& functions) const {
  if (is_load(node)) return load_text(node, here);
  if (info(node->op()).form == ir::Form::Scalar) return scalar_text(node);
  if (node->args().empty()) return leaf_text(node->op());
  std::vector<std::string> args;
  for (const Expr& arg : node->args()) args.push_back(stages_.name(arg.get(), here));
  return operation_text(*node, stages_.exact(node), args, functions);
}

std::string FormulaText::scalar_text(const Node* node) const {
  const std::string bits =
      "captured::scalar_bits(a.words + " + std::to_string(layout_.scalars[node->slot()]) + ")";
  return from_word(node->type(), bits);
}

std::string FormulaText::captured_type(const Node* load) const {
  return std::string(captured_type_text(program_.tensors()[load->slot()].dtype));
}

std::string FormulaText::data_text(const Node* load) const {
  return "captured::data_of<" + captured_type(load) + ">(a.words[" +
         std::to_string(layout_.tensors[load->slot()]) + "])";
}

std::string FormulaText::sum(std::string first, const Node* load, Stage of) const {
  const int tensor = layout_.tensors[load->slot()];
  for (std::size_t i = 0; i < load->args().size(); ++i) {
    const Node* const index = load->arg(i).get();
    if (Stages::stage(index) != of) continue;
    const int at = static_cast<int>(i);
    if (!first.empty()) first += " + ";
    first += "captured::clamped(" + stages_.name(index, of) + ", a.words[" +
             std::to_string(WordLayout::extent(tensor, at)) + "]) * a.words[" +
             std::to_string(WordLayout::stride(tensor, at)) + "]";
  }
  return first.empty() ? "0" : first;
}

std::string FormulaText::load_text(const Node* load, Stage here) const {
  const bool uniform = here == Stage::Uniform;
  const std::string data = uniform ? data_text(load) : "u." + part_name(load, Stage::Uniform);
  std::string at;
  if (here == Stage::Element) {
    for (const Stage stage : {Stage::Row, Stage::Column}) {
      if (sum("", load, stage) == "0") continue;
      at += (at.empty() ? "" : " + ") + std::string(stage == Stage::Row ? "r." : "c.") +
            part_name(load, stage);
    }
  }
  return "captured::load<" + captured_type(load) + ">(" + data + ", " + sum(at, load, here) + ")";
}

}  // namespace fovea::jit
