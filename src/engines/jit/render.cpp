#include "engines/jit/render.h"

#include <algorithm>

#include "engines/jit/render_op.h"
#include "engines/jit/render_range.h"
#include "engines/jit/stages.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"

namespace fovea::jit {
namespace {

using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Stage;
using Nodes = std::vector<const Node*>;

bool is_load(const Node* node) { return info(node->op()).form == ir::Form::Load; }

// A leaf where code of its own stage stands.
std::string leaf_text(Op op) {
  switch (op) {
    case Op::Score: return "s";
    case Op::Grad: return "grad";
    case Op::IndexB: return "head.b";
    case Op::IndexH: return "head.h";
    case Op::IndexQ: return "q";
    case Op::IndexK: return "k";
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

// Writes struct Formula but for classify. Values are named by their node: v7. A load whose indices
// belong to several stages has its address in parts: data7 in Uniform, at7 in Row and Column.
class FormulaText {
 public:
  FormulaText(const ir::Program& program, const Stages& stages, const WordLayout& layout,
              const Functions& functions)
      : program_(program), stages_(stages), layout_(layout), functions_(functions) {}

  std::string take() { return std::move(out_); }
  void line(const std::string& text) { out_ += "  " + text + "\n"; }

  void structs() {
    structure("Uniform", Stage::Uniform, "");
    structure("Row", Stage::Row, "int q;");
    structure("Column", Stage::Column, "int k;");
  }

  void uniform() {
    line("static FOVEA_DEVICE Uniform uniform(const Arguments& a, const Head& head) {");
    const Nodes later = stages_.read_later(Stage::Uniform);
    values(stages_.below(later, Stage::Uniform), Stage::Uniform);
    line("  Uniform u;");
    fields(later, "u", Stage::Uniform);
    line("  return u;");
    line("}");
  }

  // make_row and row, or make_column and column. Gives the number of words.
  int positions(Stage stage) {
    const bool rows = stage == Stage::Row;
    const std::string name = rows ? "row" : "column", position = rows ? "int q" : "int k";
    Nodes staged, cheap;
    for (const Node* node : stages_.read_later(stage)) {
      (stages_.costly(node) ? staged : cheap).push_back(node);
    }
    const auto word = [](std::size_t i) { return "words[" + std::to_string(i) + "]"; };
    line("static FOVEA_DEVICE void make_" + name + "(const Arguments& a, const Uniform& u, " +
         position + ", unsigned* words) {");
    values(stages_.below(staged, stage), stage);
    for (std::size_t i = 0; i < staged.size(); ++i) {
      line("  " + word(i) + " = " + to_word(staged[i]->type(), stages_.name(staged[i], stage)) +
           ";");
    }
    line("}");

    const std::string type = rows ? "Row" : "Column", own = rows ? "r" : "c";
    line("static FOVEA_DEVICE " + type + " " + name + "(const Arguments& a, const Uniform& u, " +
         position + ", const unsigned* words) {");
    for (std::size_t i = 0; i < staged.size(); ++i) {
      declare(staged[i], stage, from_word(staged[i]->type(), word(i)));
    }
    values(stages_.below(cheap, stage), stage);
    line("  " + type + " " + own + ";");
    line("  " + own + (rows ? ".q = q;" : ".k = k;"));
    fields(stages_.read_later(stage), own, stage);
    line("  return " + own + ";");
    line("}");
    return static_cast<int>(staged.size());
  }

  // `arguments`: what it has besides those of all functions, each with a comma before it.
  void function(const std::string& name, const std::string& arguments, const Expr& root) {
    const std::string type(type_text(root->type()));
    line("static FOVEA_DEVICE " + type + " " + name +
         "(const Arguments& a, const Uniform& u, const Row& r, const Column& c" + arguments +
         ") {");
    const Node* const node = root.get();
    values(stages_.below({&node, 1}, Stage::Element), Stage::Element);
    line("  return " + stages_.name(node, Stage::Element) + ";");
    line("}");
  }

 private:
  // Loads of later stages, some index of which belongs to this one; Uniform: all of them.
  Nodes addressed_in(Stage stage) const {
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

  std::string part_name(const Node* load, Stage stage) const {
    return (stage == Stage::Uniform ? "data" : "at") + std::to_string(stages_.number(load));
  }

  void structure(const std::string& name, Stage stage, const std::string& position) {
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

  void fields(const Nodes& nodes, const std::string& own, Stage stage) {
    for (const Node* node : nodes) {
      const std::string name = stages_.name(node, stage);
      line("  " + own + "." + name + " = " + name + ";");
    }
    for (const Node* load : addressed_in(stage)) {
      const std::string first = stage == Stage::Uniform ? data_text(load) : "";
      line("  " + own + "." + part_name(load, stage) + " = " + sum(first, load, stage, stage) +
           ";");
    }
  }

  void values(const Nodes& nodes, Stage here) {
    for (const Node* node : nodes) declare(node, here, value(node, here));
  }
  void declare(const Node* node, Stage here, const std::string& text) {
    line("  const " + std::string(type_text(node->type())) + " " + stages_.name(node, here) +
         " = " + text + ";");
  }

  std::string value(const Node* node, Stage here) const {
    if (is_load(node)) return load_text(node, here);
    if (info(node->op()).form == ir::Form::Scalar) return scalar_text(node);
    if (node->args().empty()) return leaf_text(node->op());
    std::vector<std::string> args;
    for (const Expr& arg : node->args()) args.push_back(stages_.name(arg.get(), here));
    // Only in the inner loop is a fast function worth its error.
    const Functions functions = here == Stage::Element ? functions_ : Functions{.precise = true};
    return operation_text(*node, stages_.exact(node), args, functions);
  }

  std::string scalar_text(const Node* node) const {
    const std::string bits =
        "captured::scalar_bits(a.words + " + std::to_string(layout_.scalars[node->slot()]) + ")";
    return from_word(node->type(), bits);
  }

  std::string captured_type(const Node* load) const {
    return std::string(captured_type_text(program_.tensors()[load->slot()].dtype));
  }
  std::string data_text(const Node* load) const {
    return "captured::data_of<" + captured_type(load) + ">(a.words[" +
           std::to_string(layout_.tensors[load->slot()]) + "])";
  }

  // `first` plus the offsets of the load's indices of one stage; "0" where there are none.
  std::string sum(std::string first, const Node* load, Stage of, Stage here) const {
    const int tensor = layout_.tensors[load->slot()];
    for (std::size_t i = 0; i < load->args().size(); ++i) {
      const Node* const index = load->arg(i).get();
      if (Stages::stage(index) != of) continue;
      const int at = static_cast<int>(i);
      if (!first.empty()) first += " + ";
      first += "captured::clamped(" + stages_.name(index, here) + ", a.words[" +
               std::to_string(WordLayout::extent(tensor, at)) + "]) * a.words[" +
               std::to_string(WordLayout::stride(tensor, at)) + "]";
    }
    return first.empty() ? "0" : first;
  }

  std::string load_text(const Node* load, Stage here) const {
    const bool uniform = here == Stage::Uniform;
    const std::string data = uniform ? data_text(load) : "u." + part_name(load, Stage::Uniform);
    std::string at;
    if (here == Stage::Element) {
      for (const Stage stage : {Stage::Row, Stage::Column}) {
        if (sum("", load, stage, stage) == "0") continue;
        at += (at.empty() ? "" : " + ") + std::string(stage == Stage::Row ? "r." : "c.") +
              part_name(load, stage);
      }
    }
    return "captured::load<" + captured_type(load) + ">(" + data + ", " +
           sum(at, load, here, here) + ")";
  }

  const ir::Program& program_;
  const Stages& stages_;
  const WordLayout& layout_;
  const Functions functions_;
  std::string out_;
};

std::string constant_line(const std::string& type, const std::string& name, int value) {
  const std::string text = type == "bool" ? (value != 0 ? "true" : "false") : std::to_string(value);
  return "static constexpr " + type + " " + name + " = " + text + ";";
}

}  // namespace

Expr score_gradient(const ir::Program& program) {
  if (program.bprop()) return program.bprop();
  if (!program.mod()) return {};
  return ir::simplify(ir::differentiate(program.mod(), ir::leaf(Op::Grad)).score);
}

Rendered render(const Problem& baked, const RenderOptions& options) {
  const ir::Program& program = baked.program;
  struct Function {
    std::string name, arguments;
  };
  std::vector<Function> functions;
  std::vector<Expr> roots;
  const auto add = [&](const std::string& name, const std::string& arguments, const Expr& root) {
    functions.push_back({name, arguments});
    roots.push_back(root);
  };
  const Expr score = ir::leaf(Op::Score), grad = ir::leaf(Op::Grad);
  add("keep", "", program.mask() ? program.mask() : ir::constant(true));
  add("score", ", float s", program.mod() ? program.mod() : score);
  if (options.gradient) {
    const Expr derivative = score_gradient(program);
    add("gradient", ", float s, float grad", derivative ? derivative : grad);
  }
  for (const ExtraRoot& root : options.extra) add(root.name, ", float s, float grad", root.value);

  Rendered out;
  out.has_mask = static_cast<bool>(program.mask());
  out.has_mod = program.mod() && program.mod() != score;
  const Classifier classifier(program);
  std::vector<Expr> all = roots;
  all.insert(all.end(), classifier.formulas().begin(), classifier.formulas().end());
  out.layout = lay_out_words(baked, all);
  roots = with_reciprocals(roots);

  const Stages stages(roots);
  FormulaText text(program, stages, out.layout, {options.precise, options.coarse_tanh});
  text.structs();
  text.uniform();
  out.row_words = text.positions(Stage::Row);
  out.column_words = text.positions(Stage::Column);
  for (std::size_t i = 0; i < roots.size(); ++i) {
    text.function(functions[i].name, functions[i].arguments, roots[i]);
  }
  const std::string classify = classifier.text(out.layout, out.summaries);
  out.classifies = classifier.classifies();
  out.words = out.layout.count;

  FormulaText head(program, stages, out.layout, {});
  head.line(constant_line("bool", "has_mask", out.has_mask));
  head.line(constant_line("bool", "has_mod", out.has_mod));
  head.line(constant_line("bool", "classifies", out.classifies));
  head.line(constant_line("int", "row_words", out.row_words));
  head.line(constant_line("int", "column_words", out.column_words));
  out.text = "struct Formula {\n" + head.take() + text.take() + classify + "};\n";
  return out;
}

}  // namespace fovea::jit
