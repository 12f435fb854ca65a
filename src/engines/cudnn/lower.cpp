#include "engines/cudnn/lower.h"

#include <algorithm>
#include <array>
#include <limits>

#include "attention/engine.h"
#include "attention/extents.h"
#include "engines/cudnn/formula.h"
#include "engines/cudnn/match.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/lift.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::cudnn {
namespace {

using ir::Expr;
using ir::Op;

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::F16: return Type::F16;
    case DType::BF16: return Type::BF16;
    case DType::I32: return Type::I32;
    case DType::I64: return Type::I64;
    case DType::F32:
    case DType::F64:
    case DType::U8:
    case DType::Bool: return Type::F32;
  }
  return Type::F32;
}

class ProblemLowering {
 public:
  ProblemLowering(const Problem& problem, std::int64_t batch, const Workarounds& avoid)
      : problem_(problem), batch_(batch), avoid_(avoid) {}

  Lowered run() {
    GraphSpec& spec = lowered_.spec;
    spec.backward = problem_.direction == Direction::Backward;
    spec.deterministic = spec.backward && problem_.deterministic;
    spec.stats = !spec.backward && problem_.lse;
    spec.io = type_of(problem_.q.dtype);
    spec.dropout = problem_.dropout;
    lowered_.computes_with_b = computes_with_b(problem_.program);
    add_tensors();
    add_options();
    add_formulas();
    return std::move(lowered_);
  }

 private:
  void add(TensorRole role, Type type, Dims dim, Dims stride, bool by_value = false) {
    lowered_.spec.tensors.push_back({role, 0, 0, type, dim, stride, by_value, {}});
  }

  // The slot of the table of starts for tensors with this row stride; none if they are not packed.
  std::optional<std::uint32_t> add_starts(bool of_keys, std::int64_t row_stride) {
    if (problem_.layout != Layout::Thd) return std::nullopt;
    std::vector<PackedStarts>& all = lowered_.spec.starts;
    const PackedStarts wanted{of_keys, row_stride};
    const auto known = std::ranges::find(all, wanted);
    const auto slot = static_cast<std::uint32_t>(known - all.begin());
    if (known != all.end()) return slot;
    all.push_back(wanted);
    add(TensorRole::Starts, Type::I64, {batch_ + 1, 1, 1, 1}, {1, 1, 1, 1});
    lowered_.spec.tensors.back().slot = slot;
    return slot;
  }

  // q, k, v, o and their gradients. K has its own heads and length.
  void add_tensors() {
    constexpr std::array<TensorRole, 8> roles{
        TensorRole::Q,     TensorRole::K,     TensorRole::V,     TensorRole::O,
        TensorRole::GradO, TensorRole::GradQ, TensorRole::GradK, TensorRole::GradV};
    for (std::size_t i = 0; i < roles.size(); ++i) {
      const NamedTensor& tensor = named_tensors()[i];
      if (problem_.direction == Direction::Forward && i > 3) continue;
      const Sizes& s = problem_.sizes;
      const Strides strides = strides_of(problem_, tensor);
      const auto starts = add_starts(tensor.of_keys, strides.s);
      const std::int64_t length = length_of(s, tensor);
      add(roles[i], type_of((problem_.*tensor.spec).dtype),
          {batch_, heads_of(s, tensor), length, features_of(s, tensor)},
          {starts ? length * strides.s : strides.b, strides.h, strides.s, strides.d});
      lowered_.spec.tensors.back().starts = starts;
    }
    const Sizes& s = problem_.sizes;
    if (lowered_.spec.stats || lowered_.spec.backward) {
      // Packed: [T, H], and not [H, T] as lse itself, so that no graph depends on T.
      const auto starts = add_starts(false, s.h);
      add(TensorRole::Stats, Type::F32, {batch_, s.h, s.sq, 1},
          starts ? Dims{s.h * s.sq, 1, s.h, 1} : Dims{s.h * s.sq, s.sq, 1, 1});
      lowered_.spec.tensors.back().starts = starts;
    }
    add(TensorRole::Scale, Type::F32, {1, 1, 1, 1}, {1, 1, 1, 1}, !problem_.device_values);
  }

  void add_options() {
    const Sizes& s = problem_.sizes;
    if (problem_.has_q_lengths || problem_.has_k_lengths || lowered_.spec.packed()) {
      lowered_.spec.padding = true;
      add(TensorRole::LengthsQ, Type::I32, {batch_, 1, 1, 1}, {1, 1, 1, 1});
      add(TensorRole::LengthsK, Type::I32, {batch_, 1, 1, 1}, {1, 1, 1, 1});
    }
    // A backward needs the sink for its gradient alone: lse includes it already.
    if (problem_.sink && (!lowered_.spec.backward || problem_.want_sink)) {
      add(TensorRole::Sink, Type::F32, {1, s.h, 1, 1}, {s.h, 1, 1, 1});
      if (problem_.want_sink) add(TensorRole::GradSink, Type::F32, {1, s.h, 1, 1}, {s.h, 1, 1, 1});
    }
    if (problem_.dropout > 0) {
      add(TensorRole::Seed, Type::I64, {1, 1, 1, 1}, {1, 1, 1, 1});
      add(TensorRole::Offset, Type::I64, {1, 1, 1, 1}, {1, 1, 1, 1});
    }
  }

  bool wants_captured_gradients() const {
    return std::ranges::count(problem_.want_tensors, true) != 0;
  }

  void refuse(Reason reason) { lowered_.reasons.push_back(std::move(reason)); }

  void refuse_scalar_gradients() {
    for (std::size_t slot = 0; slot < problem_.want_scalars.size(); ++slot) {
      if (!problem_.want_scalars[slot]) continue;
      refuse({"scalar_gradient", "engine cudnn gives no gradients of scalars",
              "a gradient of scalar " + problem_.program.scalars()[slot].name,
              "use engine jit, or give up that gradient"});
    }
  }

  // score_mod = score + t[...]: cuDNN gives the gradient of a bias that is added last. A mask that
  // is no diagonal is a modifier, too.
  Expr take_bias(const Expr& mod, bool masked, FormulaLowering& formulas) {
    refuse_scalar_gradients();
    if (!wants_captured_gradients()) return mod;
    if (problem_.program.bprop()) {
      refuse({"bprop_and_captured_gradient",
              "engine cudnn gives the gradient of a captured tensor beside derivatives of its own",
              "a gradient of a captured tensor beside a hand-written bprop",
              "leave bprop out, or give up that gradient"});
      return mod;
    }
    if (problem_.device_values) {
      refuse({"bias_gradient_and_device_values",
              "cuDNN gives the gradient of a bias where scale comes from the host",
              "a gradient of a captured tensor with values=device",
              "leave values=device out, or give up that gradient"});
      return mod;
    }
    for (const std::size_t side : {std::size_t{1}, std::size_t{0}}) {
      if (mod->op() != Op::AddF) break;
      const Expr& bias = mod->arg(side);
      if (bias->op() != Op::LoadF || !only_gradient(bias->slot())) continue;
      const bool beside = masked || mod->arg(1 - side)->op() != Op::Score;
      if (avoid_.bias_beside_modifier && beside) continue;
      if (formulas.count_loads(problem_.program, bias->slot()) != 1) continue;
      if (formulas.add_bias(bias)) return mod->arg(1 - side);
    }
    refuse({"captured_gradient",
            "engine cudnn gives the gradient of a captured tensor only where it is added to the "
            "score itself, indexed by all of q and k, and b or h, under a mask of diagonals or "
            "none",
            "a gradient of a captured tensor in another place",
            "use engine jit, or give up that gradient"});
    return mod;
  }

  bool only_gradient(std::uint32_t slot) const {
    for (std::size_t i = 0; i < problem_.want_tensors.size(); ++i) {
      if (problem_.want_tensors[i] != (i == slot)) return false;
    }
    return true;
  }

  bool positions_start_at_zero() const {
    return problem_.q_offset == 0 && problem_.k_offset == 0 && !problem_.has_q_offsets &&
           !problem_.has_k_offsets;
  }

  // Moves the diagonals of the mask into the band and returns the conditions that are left.
  std::vector<Expr> take_diagonals() {
    const Expr& mask = problem_.program.mask();
    if (!mask) return {};
    if (!positions_start_at_zero()) return {mask};
    const Sizes& s = problem_.sizes;
    MatchedMask matched = match_mask(mask, {s.sq, s.skv, lowered_.spec.padding});
    lowered_.spec.band = matched.band;
    return std::move(matched.rest);
  }

  // What cuDNN has no graph for, or crashes on.
  bool refuse_degenerate(const Expr& mod, const Expr& derivative) {
    const Expr& mask = problem_.program.mask();
    if (mask && mask->op() == Op::ConstB && !mask->bool_value()) {
      refuse({"nothing_kept", "cuDNN has no mask that hides everything", "mask=false",
              "use engine jit, or write zeros"});
      return true;
    }
    const bool unused = !any(mod->depends(), ir::Depends::Score) ||
                        (derivative && !any(derivative->depends(), ir::Depends::Grad));
    if (!unused || !avoid_.unused_score) return false;
    refuse({"score_ignored", "cuDNN takes no modifier that does not use the score",
            "a modifier, or a derivative, without it", "use engine jit"});
    return true;
  }

  // cuDNN takes a derivative only beside a modifier (mod=score with a hand-written bprop has none),
  // and beside lengths none that reads what they mask, as that of exp(score) does.
  bool needs_a_step(const Expr& mod, const Expr& derivative) const {
    if (mod->op() == Op::Score) return true;
    return lowered_.spec.padding &&
           std::ranges::count(ir::operands_first({&derivative, 1}).nodes, mod.get()) != 0;
  }

  void add_formulas() {
    FormulaLowering formulas(problem_, batch_, avoid_, lowered_);
    const Expr whole = problem_.program.mod() ? problem_.program.mod() : ir::leaf(Op::Score);
    const std::vector<Expr> rest = take_diagonals();
    const Expr mod = take_bias(whole, !rest.empty(), formulas);
    const Expr derivative = lowered_.spec.backward ? derivative_of(mod) : Expr();
    const bool has_bprop = derivative && derivative->op() != Op::Grad;
    if (refuse_degenerate(mod, derivative)) return;
    lowered_.dense_mask = !rest.empty();
    Ref modified = formulas.mask(formulas.real(mod), rest);
    if (has_bprop && !lowered_.spec.padding) {
      modified = formulas.within_sequences(modified, -std::numeric_limits<float>::infinity());
    }
    const bool is_plain = modified == formulas.real(mod);  // no mask was added behind the modifier
    if (has_bprop && is_plain && needs_a_step(mod, derivative)) modified = formulas.same(modified);
    // cuDNN's backward knows diagonals beside a modifier only as selects at its end.
    if (lowered_.spec.backward && modified.kind != Ref::Kind::Score) {
      modified = formulas.band(modified, lowered_.spec.band);
      lowered_.spec.band = {};
    }
    lowered_.spec.modified = modified;
    lowered_.spec.forward_steps = static_cast<std::uint32_t>(lowered_.spec.steps.size());
    if (has_bprop) lowered_.spec.bprop = formulas.within_sequences(formulas.real(derivative), 0);
    formulas.finish();
  }

  Expr derivative_of(const Expr& mod) const {
    if (problem_.program.bprop()) return problem_.program.bprop();
    return ir::simplify(ir::differentiate(mod, ir::leaf(Op::Grad)).score);
  }

  const Problem& problem_;
  std::int64_t batch_;
  Workarounds avoid_;
  Lowered lowered_;
};

}  // namespace

Lowered lower(const Problem& baked, std::int64_t batch, const Workarounds& avoid) {
  return ProblemLowering(baked, batch, avoid).run();
}

bool computes_with_b(const ir::Program& program) {
  const ir::Order order = ir::operands_first(program.formulas());
  return std::ranges::any_of(order.nodes, [](const ir::Node* node) {
    const bool stays_whole = node->op() == ir::Op::AddI || node->op() == ir::Op::SubI ||
                             info(node->op()).form == ir::Form::Load;
    return node->type() == ir::Type::I32 && !node->args().empty() && !stays_whole &&
           any(node->depends(), ir::Depends::B);
  });
}

Baking bake(const Problem& problem) {
  Problem baked = problem;
  // Formulas of the head alone are tabulated when the plan is made, so their literals stay. If
  // values lie on the device, all literals stay: a call would have to send each of them there.
  ir::Lifted lifted{problem.program, {}};
  if (!problem.device_values) lifted = ir::lift_literals(problem.program, ir::Depends::H);
  baked.program = std::move(lifted.program);
  baked.scale.reset();
  drop_dense_tensor_strides(baked);
  baked.capture = baked.verify = false;
  // Always bound: slices of a batch need it.
  baked.b_offset = problem.b_offset != 0 && computes_with_b(problem.program) ? 1 : 0;
  // Offsets are bound, too, but a graph that adds them is another graph: cuDNN no longer sees the
  // diagonal. 0 and 1 say whether it does; a call may bind any value if it does.
  const bool has_formulas = problem.program.mod() || problem.program.mask();
  for (std::int32_t Problem::* offset :
       {&Problem::h_offset, &Problem::q_offset, &Problem::k_offset}) {
    baked.*offset = has_formulas && problem.*offset != 0 ? 1 : 0;
  }
  if (!has_formulas) baked.has_q_offsets = baked.has_k_offsets = false;
  // The number of rows of packed tensors comes with each call; the plan bakes only whether it is 0.
  const auto forget = [&](std::int64_t& rows, std::int64_t longest) {
    if (rows != 0) rows = std::max<std::int64_t>(baked.sizes.b * longest, 1);
  };
  forget(baked.sizes.t_q, baked.sizes.sq);
  forget(baked.sizes.t_k, baked.sizes.skv);
  if (baked.dropout == 0) baked.rng = Rng::Portable;
  if (baked.direction == Direction::Forward) baked.deterministic = false;
  baked.want_tensors.resize(baked.program.tensors().size());
  baked.want_scalars.resize(baked.program.scalars().size());
  return {{std::move(baked)}, std::move(lifted.literals)};
}

}  // namespace fovea::cudnn
