#include "engines/jit/tile_values.h"

#include <algorithm>
#include <optional>

#include "base/dtype.h"
#include "ir/tape.h"

namespace fovea::jit {
namespace {

using ir::Depends;
using ir::Expr;
using ir::Node;
using ir::Op;

// q times one number plus k times another plus something uniform, modulo 2^32 as i32 counts.
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
