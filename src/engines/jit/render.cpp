#include "engines/jit/render.h"

#include "engines/jit/formula_text.h"
#include "engines/jit/render_range.h"
#include "engines/jit/score_factors.h"
#include "engines/jit/stages.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/row_shift.h"
#include "ir/simplify.h"

namespace fovea::jit {
namespace {

using ir::Expr;
using ir::Op;
using ir::Stage;

std::string constant_line(const std::string& name, bool value) {
  return "  static constexpr bool " + name + " = " + (value ? "true" : "false") + ";\n";
}
std::string constant_line(const std::string& name, int value) {
  return "  static constexpr int " + name + " = " + std::to_string(value) + ";\n";
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
  // Large numbers that are added to all scores of a row, or along it, cost f32 its digits.
  const ir::RowShift split =
      options.splits_shift && program.mod() ? ir::split_row_shift(program.mod()) : ir::RowShift{};
  const bool shifts = split.shift || split.line.slope;
  const Expr zero = ir::constant(0.0f);
  const Expr near = split.without_line ? split.without_line : zero;
  add("score", ", float s", !program.mod() ? score : shifts ? near : program.mod());
  if (shifts) {
    add("shift", "", split.shift ? split.shift : zero);
    add("slope", "", split.line.slope ? split.line.slope : zero);
  }
  const ScoreFactors factors = options.splits_factors && program.mod() && !shifts
                                   ? split_factors(program.mod())
                                   : ScoreFactors{};
  if (factors.inner) {
    add("inner", ", float s", factors.inner);
    add("inner_scale", "", factors.scale);
    add("outer", "", factors.outer);
  }
  bool adds_only = true;
  if (options.gradient) {
    const Expr derivative = score_gradient(program);
    adds_only = !derivative || derivative == grad;
    add("gradient", ", float s, float grad", derivative ? derivative : grad);
  }
  for (const ExtraRoot& root : options.extra) add(root.name, ", float s, float grad", root.value);

  Rendered out;
  out.has_mask = static_cast<bool>(program.mask());
  // A derivative by hand may differ from that of the plain score.
  out.has_mod = program.mod() && (program.mod() != score || program.bprop());
  const Classifier classifier(program);
  std::vector<Expr> all = roots;
  all.insert(all.end(), classifier.formulas().begin(), classifier.formulas().end());
  out.layout = lay_out_words(baked, all);
  roots = with_reciprocals(roots);

  const Stages stages(roots, program);
  FormulaText text(program, stages, out.layout, {options.precise, options.coarse_tanh});
  text.structs();
  text.uniform();
  out.row_words = text.positions(Stage::Row);
  out.column_words = text.positions(Stage::Column);
  text.tile_values();
  out.diagonal_words = static_cast<int>(stages.diagonal().size());
  if (const ir::Node* const cell = stages.cell()) {
    out.cell_bytes = static_cast<int>(dtype_size(program.tensors()[cell->slot()].dtype));
    out.cell_slot = cell->slot();
    for (int i = 0; i < static_cast<int>(cell->args().size()); ++i) {
      const ir::Op op = cell->arg(static_cast<std::size_t>(i))->op();
      if (op == ir::Op::IndexQ) out.cell_q = i;
      if (op == ir::Op::IndexK) out.cell_k = i;
    }
  }
  for (std::size_t i = 0; i < roots.size(); ++i) {
    text.function(functions[i].name, functions[i].arguments, roots[i]);
  }
  const std::string classify = classifier.text(out.layout, out.summaries);
  out.classifies = classifier.classifies();
  out.words = out.layout.count;

  out.text = "struct Formula {\n" + constant_line("has_mask", out.has_mask) +
             constant_line("has_mod", out.has_mod) + constant_line("adds_only", adds_only) +
             constant_line("classifies", out.classifies) +
             constant_line("has_factors", static_cast<bool>(factors.inner)) +
             constant_line("is_score", shifts && near == score) + constant_line("shifts", shifts) +
             constant_line("line_k", split.line.k) + constant_line("line_q", split.line.q) +
             constant_line("row_words", out.row_words) +
             constant_line("column_words", out.column_words) + text.take() + classify + "};\n";
  return out;
}

}  // namespace fovea::jit
