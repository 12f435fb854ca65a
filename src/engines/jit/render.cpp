#include "engines/jit/render.h"

#include <algorithm>
#include <cmath>

#include "engines/jit/formula_text.h"
#include "engines/jit/render_range.h"
#include "engines/jit/stages.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/expr.h"
#include "ir/modifier.h"
#include "ir/range.h"
#include "ir/simplify.h"
#include "ir/tape.h"
#include "ir/topology.h"

namespace fovea::jit {
namespace {

using ir::Depends;
using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Stage;

// Factors around a modified score: of `cap * tanh(score / cap)` the outer one joins the exponent of
// the softmax, the inner one the scale, so that neither is multiplied for each score:
// mod = outer * inner(score * scale), with outer and scale the same for a whole head.
struct ScoreFactors {
  Expr outer, scale, inner;
};

bool is_of_head(const Expr& x) {
  return !ir::any(x->depends(), Depends::Q | Depends::K | Depends::Score | Depends::Grad);
}

bool decides_by_score(const ir::Order& order) {
  const std::vector<bool> exact = ir::find_exact(order);
  for (std::size_t i = 0; i < order.nodes.size(); ++i) {
    if (exact[i] && ir::any(order.nodes[i]->depends(), Depends::Score)) return true;
  }
  return false;
}

// The only user of the score, if it multiplies or divides the score by something of the head.
const Node* only_product(const ir::Order& order) {
  const Node* found = nullptr;
  for (const Node* node : order.nodes) {
    const auto is_score = [](const Expr& arg) { return arg->op() == Op::Score; };
    if (std::ranges::none_of(node->args(), is_score)) continue;
    const bool product =
        (node->op() == Op::MulF && is_of_head(node->arg(is_score(node->arg(0)) ? 1 : 0))) ||
        (node->op() == Op::DivF && is_of_head(node->arg(1)));
    if (found != nullptr || !product) return nullptr;
    found = node;
  }
  return found;
}

Expr without(const Expr& root, const Node* product) {
  return ir::rebuild(root, [&](const Node& node, std::span<const Expr> args) {
    return &node == product ? ir::leaf(Op::Score) : ir::remake(node, args);
  });
}

ScoreFactors split_factors(const Expr& mod) {
  ScoreFactors out{ir::constant(1.0f), ir::constant(1.0f), mod};
  if (mod->op() == Op::MulF) {
    for (std::size_t i = 0; i < 2; ++i) {
      if (!is_of_head(mod->arg(i)) || is_of_head(mod->arg(1 - i))) continue;
      out.outer = mod->arg(i);
      out.inner = mod->arg(1 - i);
      break;
    }
  }
  const ir::Order order = ir::operands_first(std::span(&out.inner, 1));
  if (decides_by_score(order)) return {};
  if (const Node* const product = only_product(order)) {
    const std::size_t other =
        product->op() == Op::MulF && product->arg(0)->op() != Op::Score ? 0 : 1;
    const Expr& factor = product->arg(other);
    out.scale = product->op() == Op::DivF ? ir::constant(1.0f) / factor : factor;
    out.inner = without(out.inner, product);
  }
  return out.inner == mod ? ScoreFactors{} : out;
}

std::string constant_line(const std::string& name, bool value) {
  return "  static constexpr bool " + name + " = " + (value ? "true" : "false") + ";\n";
}
std::string constant_line(const std::string& name, float value) {
  return "  static constexpr float " + name + " = " + float_text(value) + ";\n";
}
std::string constant_line(const std::string& name, int value) {
  return "  static constexpr int " + name + " = " + std::to_string(value) + ";\n";
}

// A bound of the modified score's magnitude, whatever the score; 0: none is known. Values that a
// call binds are not known here.
float score_bound(const Expr& modified) {
  const ir::RealInterval range = ir::bound(modified, {}).f;
  const float most = std::max(std::abs(range.lo), std::abs(range.hi));
  return std::isfinite(most) ? most : 0;
}

// The parts of the mask by number: see device/formula.h.
std::string mask_parts_text(std::size_t count) {
  std::string reads, calls;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "keep_" + std::to_string(i);
    reads += (i > 0 ? ", " : "") + name + "_reads";
    calls +=
        "    if constexpr (part == " + std::to_string(i) + ") return " + name + "(a, u, r, c);\n";
  }
  return constant_line("mask_parts", static_cast<int>(count)) +
         "  static constexpr PairReads part_reads[] = {" + reads +
         "};\n  template <int part>\n  static FOVEA_DEVICE bool keep_part(const Arguments& a, const "
         "Uniform& u, const Row& r, const Column& c) {\n" +
         calls + "  }\n";
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
  const Classifier classifier(program);
  add("keep", "", program.mask() ? program.mask() : ir::constant(true));
  const std::span<const Expr> parts = classifier.mask_parts();
  for (std::size_t i = 0; i < parts.size(); ++i) add("keep_" + std::to_string(i), "", parts[i]);
  // Large numbers that are added to the scores of a row would cost f32 their last digits.
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
  const float bound =
      !program.mod() || shifts ? 0 : score_bound(factors.inner ? factors.inner : program.mod());
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
             constant_line("shifts", shifts) + constant_line("bound", bound) +
             constant_line("line_k", split.line.k) + constant_line("line_q", split.line.q) +
             constant_line("row_words", out.row_words) +
             constant_line("column_words", out.column_words) + text.take() +
             mask_parts_text(parts.size()) + classify + "};\n";
  return out;
}

}  // namespace fovea::jit
