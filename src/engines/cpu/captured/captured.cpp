#include "engines/cpu/captured/captured.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/arena.h"
#include "attention/engine.h"
#include "attention/extents.h"
#include "engines/cpu/blocks.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::cpu {
namespace {

bool is_zero(const ir::Expr& e) { return e->op() == ir::Op::ConstF && e->float_value() == 0; }

bool has_16_bits(DType type) { return type == DType::F16 || type == DType::BF16; }

using Slope = std::optional<std::uint32_t>;

bool changes_along_k(const ir::Node& node) {
  return any(node.depends(), ir::Depends::K | ir::Depends::Score | ir::Depends::Grad);
}

// Of a node that changes, from the slopes of its operands.
Slope slope_of(const ir::Node& node, const Slope& a, const Slope& b) {
  switch (node.op()) {
    case ir::Op::IndexK: return 1;
    case ir::Op::AddI: return a && b ? Slope(*a + *b) : std::nullopt;
    case ir::Op::SubI: return a && b ? Slope(*a - *b) : std::nullopt;
    case ir::Op::NegI: return a ? Slope(0 - *a) : std::nullopt;
    case ir::Op::MulI: {
      const ir::Node& factor = *node.arg(1);  // constants come last
      if (!a || factor.op() != ir::Op::ConstI) return std::nullopt;
      return *a * static_cast<std::uint32_t>(factor.int_value());
    }
    default: return std::nullopt;
  }
}

// How an index changes from one key to the next: index(k + 1) - index(k), modulo 2^32 as all i32 of
// formulas; nothing if it is not constant.
std::optional<std::int32_t> slope_along_k(const ir::Expr& index) {
  const ir::Order order = ir::operands_first({&index, 1});
  std::vector<Slope> slopes;
  const auto operand = [&](const ir::Node& node, std::size_t i) -> Slope {
    return i < node.args().size() ? slopes[order.number.find(node.arg(i).get())] : std::nullopt;
  };
  for (const ir::Node* node : order.nodes) {
    slopes.push_back(changes_along_k(*node) ? slope_of(*node, operand(*node, 0), operand(*node, 1))
                                            : Slope(0));
  }
  if (!slopes.back()) return std::nullopt;
  return static_cast<std::int32_t>(*slopes.back());
}

}  // namespace

CapturedGradients::CapturedGradients(const Problem& baked) : baked_(baked) {
  if (baked.direction != Direction::Backward) return;
  const ir::Program& program = baked.program;
  for (std::uint32_t slot = 0; slot < program.tensors().size(); ++slot) {
    if (!wanted(baked.want_tensors, slot)) continue;
    tensors_.emplace_back();
    tensors_.back().slot = slot;
  }
  for (std::uint32_t slot = 0; slot < program.scalars().size(); ++slot) {
    if (wanted(baked.want_scalars, slot)) scalars_.push_back({slot, std::nullopt});
  }
  if (!any() || !program.mod()) return;
  const ir::Gradients derived = ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    for (const ir::LoadGradient& of : derived.loads) {
      if (of.load->slot() == tensors_[i].slot) add_load(i, of);
    }
  }
  for (WantedScalar& scalar : scalars_) {
    for (const ir::ScalarGradient& of : derived.scalars) {
      const ir::Expr gradient = ir::simplify(of.gradient);
      if (of.slot != scalar.slot || is_zero(gradient)) continue;
      scalar.root = roots_.size();
      roots_.push_back(gradient);
    }
  }
  add_row_terms(program.mod());
}

void CapturedGradients::add_row_terms(const ir::Expr& mod) {
  const ir::Gradients weights = ir::differentiate(mod);
  const auto add = [&](bool is_scalar, std::size_t number, const ir::Expr& weight) {
    row_terms_.push_back({is_scalar, number, roots_.size()});
    roots_.push_back(ir::simplify(weight));
  };
  const auto along_k = ir::Depends::K | ir::Depends::Score;
  for (std::size_t i = 0; i < loads_.size(); ++i) {
    const bool shared = std::ranges::none_of(loads_[i].load->args(), [&](const ir::Expr& at) {
      return ir::any(at->depends(), along_k);
    });
    const auto of = std::ranges::find(weights.loads, loads_[i].load, &ir::LoadGradient::load);
    if (shared && of != weights.loads.end()) add(false, i, of->gradient);
  }
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    const auto of = std::ranges::find(weights.scalars, scalars_[i].slot, &ir::ScalarGradient::slot);
    if (scalars_[i].root && of != weights.scalars.end()) add(true, i, of->gradient);
  }
}

void CapturedGradients::add_load(std::size_t tensor, const ir::LoadGradient& of) {
  const ir::Expr gradient = ir::simplify(of.gradient);
  if (is_zero(gradient)) return;
  tensors_[tensor].add_load(*of.load);
  WantedLoad load{of.load, tensor, roots_.size(), {}};
  for (const ir::Expr& index : of.load->args()) load.slopes.push_back(slope_along_k(index));
  loads_.push_back(std::move(load));
  roots_.push_back(gradient);
  roots_.insert(roots_.end(), of.load->args().begin(), of.load->args().end());
}

CapturedGradients::SumLayout CapturedGradients::lay_out(const Sizes& sizes,
                                                        const ChunkCounts& counts,
                                                        void* memory) const {
  SumLayout out;
  out.plan = plan_lanes(baked_, tensors_, scalars_.size(), sizes, counts);
  constexpr std::int64_t doubles_of_line = 8;
  out.lane_step = round_up(out.plan.private_elements, doubles_of_line);
  Arena arena("cpu", memory);
  out.targets = arena.take<CapturedTarget>(static_cast<std::int64_t>(tensors_.size()));
  const std::span<double> sums = arena.take<double>(out.plan.lanes.count, out.lane_step);
  out.sums = sums.data();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    CapturedTarget target;
    target.kept = out.plan.kept[i];
    const std::uint32_t slot = tensors_[i].slot;
    const std::int64_t elements = declared_elements(baked_, sizes, slot);
    switch (target.kept) {
      case SumPlace::Nowhere: break;
      case SumPlace::Private:
        if (!sums.empty()) target.sums = out.sums + out.scalar_sums;
        target.lane_step = out.lane_step;
        out.scalar_sums += elements;
        break;
      case SumPlace::Shared: target.sums = arena.take<double>(elements).data(); break;
      case SumPlace::Direct:
        if (has_16_bits(baked_.program.tensors()[slot].dtype)) {
          target.type = DType::F32;
          target.sums = arena.take<float>(elements).data();
        }
        break;
    }
    if (!arena.measuring()) std::construct_at(&out.targets[i], target);
  }
  out.bytes = arena.used();
  return out;
}

std::size_t CapturedGradients::workspace_bytes(const Sizes& sizes,
                                               const ChunkCounts& counts) const {
  return lay_out(sizes, counts, nullptr).bytes;
}

}  // namespace fovea::cpu
