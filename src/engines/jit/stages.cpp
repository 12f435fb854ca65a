#include "engines/jit/stages.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "base/dtype.h"
#include "engines/jit/render_op.h"
#include "ir/build.h"
#include "ir/tape.h"

namespace fovea::jit {
namespace {

using ir::Depends;
using ir::Expr;
using ir::Node;
using ir::Op;
using ir::Stage;

bool divides_by_shifting(const Node& node) {
  return node.arg(1)->op() == Op::ConstI && node.arg(1)->int_value() > 0 &&
         std::has_single_bit(static_cast<std::uint32_t>(node.arg(1)->int_value()));
}

bool costs(const Node& node) {
  switch (node.op()) {
    case Op::LoadF:
    case Op::LoadI:
    case Op::LoadB:
    case Op::DivF:
    case Op::TruncDiv:
    case Op::TruncRem:
    case Op::Exp:
    case Op::Exp2:
    case Op::Expm1:
    case Op::Log:
    case Op::Log2:
    case Op::Log1p:
    case Op::Sqrt:
    case Op::Rsqrt:
    case Op::Pow:
    case Op::Tanh:
    case Op::Sigmoid:
    case Op::Softplus:
    case Op::Erf:
    case Op::Sin:
    case Op::Cos:
    case Op::Tan: return true;
    case Op::FloorDiv:
    case Op::FloorMod: return !divides_by_shifting(node);
    default: return false;  // one or two instructions
  }
}

// Constants are written where they are read, and positions are parameters.
bool has_own_name(const Node& node) {
  return !node.is_const() && node.op() != Op::IndexQ && node.op() != Op::IndexK;
}

}  // namespace

Stages::Stages(std::span<const Expr> roots, const ir::Program& program)
    : kept_(roots.begin(), roots.end()),
      order_(ir::operands_first(roots)),
      exact_(ir::find_exact(order_)) {
  for (const Node* node : order_.nodes) {
    const bool inherits = std::ranges::any_of(node->args(), [&](const Expr& arg) {
      return stage(arg.get()) == stage(node) && costly(arg.get());
    });
    costly_.push_back(costs(*node) || inherits);
  }
  in_pair_.assign(nodes().size(), false);
  find_diagonal_values();
  find_cell(program);
}

// Costly ones that something else than a diagonal value reads.
void Stages::find_diagonal_values() {
  constexpr std::size_t most = 8;
  const std::vector<bool> is_diagonal = find_diagonal(order_);
  std::vector<bool> read(nodes().size());
  for (const Expr& root : kept_) read[number(root.get())] = true;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (is_diagonal[i]) continue;
    for (const Expr& arg : nodes()[i]->args()) read[number(arg.get())] = true;
  }
  for (std::size_t i = 0; i < nodes().size() && diagonal_.size() < most; ++i) {
    if (!read[i] || !is_diagonal[i] || !costly_[i]) continue;
    diagonal_.push_back(nodes()[i]);
    in_pair_[i] = true;
  }
}

// The first cell load that the modifier reads; if it reads none, the first that the mask reads.
void Stages::find_cell(const ir::Program& program) {
  std::vector<const Node*> roots;
  for (std::size_t i = 1; i < kept_.size(); ++i) roots.push_back(kept_[i].get());
  roots.push_back(kept_.front().get());
  for (const Node* root : roots) {
    for (const Node* node : below({&root, 1}, Stage::Element)) {
      if (!is_cell_load(*node, program)) continue;
      cell_ = node;
      in_pair_[number(node)] = true;
      return;
    }
  }
}

std::vector<const Node*> Stages::read_later(Stage wanted) const {
  std::vector<bool> read(nodes().size());
  const auto mark = [&](const Expr& e) {
    if (stage(e.get()) == wanted && has_own_name(*e)) read[number(e.get())] = true;
  };
  for (const Expr& root : kept_) mark(root);
  for (const Node* node : nodes()) {
    if (stage(node) == wanted) continue;
    for (const Expr& arg : node->args()) mark(arg);
  }
  std::vector<const Node*> out;
  for (const Node* node : nodes()) {
    if (read[number(node)]) out.push_back(node);
  }
  return out;
}

template <class Goes>
std::vector<const Node*> Stages::reach(std::span<const Node* const> wanted,
                                       const Goes& goes) const {
  std::vector<bool> needed(nodes().size());
  for (const Node* node : wanted) {
    if (goes(node)) needed[number(node)] = true;
  }
  for (std::size_t i = nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const Expr& arg : nodes()[i]->args()) {
      if (goes(arg.get())) needed[number(arg.get())] = true;
    }
  }
  std::vector<const Node*> out;
  for (std::size_t i = 0; i < nodes().size(); ++i) {
    if (needed[i]) out.push_back(nodes()[i]);
  }
  return out;
}

std::vector<const Node*> Stages::below(std::span<const Node* const> wanted, Stage of) const {
  return reach(wanted, [&](const Node* node) {
    return stage(node) == of && has_own_name(*node) && !in_pair(node);
  });
}

std::vector<const Node*> Stages::below_staged(std::span<const Node* const> wanted) const {
  return reach(wanted, [&](const Node* node) {
    return stage(node) == Stage::Element && has_own_name(*node);
  });
}

std::string Stages::name(const Node* node, Stage here) const {
  if (node->is_const()) return constant_text(*node);
  if (node->op() == Op::IndexQ) return here == Stage::Row ? "q" : "r.q";
  if (node->op() == Op::IndexK) return here == Stage::Column ? "k" : "c.k";
  const std::string own = "v" + std::to_string(number(node));
  if (in_pair(node)) return "c.pair." + own;
  if (stage(node) == here) return own;
  switch (stage(node)) {
    case Stage::Uniform: return "u." + own;
    case Stage::Row: return "r." + own;
    case Stage::Column: return "c." + own;
    case Stage::Element: break;
  }
  return own;
}

std::vector<Expr> with_reciprocals(std::span<const Expr> roots) {
  const ir::Order order = ir::operands_first(roots);
  const std::vector<bool> exact = ir::find_exact(order);
  const auto rule = [&](const Node& node, std::span<const Expr> args) {
    const bool once = node.op() == Op::DivF && !exact[order.number.find(&node)] &&
                      ir::stage_of(node.depends()) != ir::stage_of(node.arg(1)->depends());
    if (once) return args[0] * (ir::constant(1.0f) / args[1]);
    return ir::remake(node, args);
  };
  std::vector<Expr> out;
  for (const Expr& root : roots) out.push_back(ir::rebuild(root, rule));
  return out;
}

namespace {

// q times one number plus k times another plus something uniform, modulo 2^32 as i32 wraps.
struct Linear {
  std::uint32_t q = 0, k = 0;
  bool moves_evenly() const { return q + k == 0; }
};
using MaybeLinear = std::optional<Linear>;

class DiagonalSearch {
 public:
  explicit DiagonalSearch(const ir::Order& order) : order_(order) {
    for (const Node* node : order.nodes) {
      linear_.push_back(linear(*node));
      diagonal_.push_back(is_element(*node) && is_diagonal(*node));
    }
  }
  std::vector<bool> take() { return std::move(diagonal_); }

 private:
  static bool is_uniform(const Node& node) {
    return ir::stage_of(node.depends()) == ir::Stage::Uniform;
  }
  static bool is_element(const Node& node) {
    return ir::stage_of(node.depends()) == ir::Stage::Element &&
           !ir::any(node.depends(), Depends::Score | Depends::Grad);
  }
  const MaybeLinear& linear_of(const Expr& e) const { return linear_[order_.number.find(e.get())]; }
  bool diagonal_of(const Expr& e) const { return diagonal_[order_.number.find(e.get())]; }

  MaybeLinear linear(const Node& node) const {
    if (node.type() != ir::Type::I32) return {};
    if (is_uniform(node)) return Linear{};
    switch (node.op()) {
      case Op::IndexQ: return Linear{1, 0};
      case Op::IndexK: return Linear{0, 1};
      case Op::AddI: return sum(node, 1);
      case Op::SubI: return sum(node, ~std::uint32_t{0});
      case Op::NegI: {
        const MaybeLinear& x = linear_of(node.arg(0));
        return x ? MaybeLinear(Linear{0 - x->q, 0 - x->k}) : MaybeLinear();
      }
      default: return {};
    }
  }
  MaybeLinear sum(const Node& node, std::uint32_t sign) const {
    const MaybeLinear &x = linear_of(node.arg(0)), &y = linear_of(node.arg(1));
    if (!x || !y) return {};
    return Linear{x->q + sign * y->q, x->k + sign * y->k};
  }

  bool is_diagonal(const Node& node) const {
    if (const MaybeLinear& x = linear_[diagonal_.size()]) return x->moves_evenly();
    if (compares_positions(node)) return true;
    return std::ranges::all_of(
        node.args(), [&](const Expr& arg) { return is_uniform(*arg) || diagonal_of(arg); });
  }
  // q with k: which is larger does not change along a diagonal.
  static bool compares_positions(const Node& node) {
    switch (node.op()) {
      case Op::LtI:
      case Op::LeI:
      case Op::EqI:
      case Op::NeI: break;
      default: return false;
    }
    const Op left = node.arg(0)->op(), right = node.arg(1)->op();
    return (left == Op::IndexQ && right == Op::IndexK) ||
           (left == Op::IndexK && right == Op::IndexQ);
  }

  const ir::Order& order_;
  std::vector<MaybeLinear> linear_;
  std::vector<bool> diagonal_;
};

}  // namespace

std::vector<bool> find_diagonal(const ir::Order& order) { return DiagonalSearch(order).take(); }

bool is_cell_load(const Node& node, const ir::Program& program) {
  if (info(node.op()).form != ir::Form::Load) return false;
  switch (program.tensors()[node.slot()].dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::I32: break;
    case DType::F64:
    case DType::I64:
    case DType::U8:
    case DType::Bool: return false;
  }
  const auto count = [&](Op op) {
    return std::ranges::count_if(node.args(), [&](const Expr& index) { return index->op() == op; });
  };
  const auto others = std::ranges::count_if(node.args(), [](const Expr& index) {
    return ir::stage_of(index->depends()) == ir::Stage::Uniform;
  });
  return count(Op::IndexQ) == 1 && count(Op::IndexK) == 1 &&
         others + 2 == static_cast<std::ptrdiff_t>(node.args().size());
}

}  // namespace fovea::jit
