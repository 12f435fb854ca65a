#include "engines/reference/engine.h"

#include "base/error.h"
#include "engines/reference/call.h"
#include "engines/reference/captured.h"
#include "ir/lift.h"

namespace fovea {
namespace {

using namespace reference;

class ReferencePlan : public Plan {
 public:
  explicit ReferencePlan(const Problem& baked) : baked_(baked), formulas_(baked_) {}

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure(nullptr);
    Scratch::lay_out(measure, needs(sizes), sizes);
    return measure.used();
  }

  std::size_t memory_bytes() const override {
    constexpr std::size_t bytes_per_node = 128;  // a node, its place in an order, its operands
    return sizeof *this + 3 * formulas_.cell_count() * bytes_per_node;
  }

  void run(const Bindings& bindings) const override {
    Arena arena(bindings.workspace);
    Call call(baked_, formulas_, bindings,
              Scratch::lay_out(arena, needs(bindings.sizes), bindings.sizes));
    switch (baked_.direction) {
      case Direction::Forward: return forward(call);
      case Direction::Backward: return backward(call);
    }
  }

 private:
  ScratchNeeds needs(const Sizes& sizes) const {
    return {baked_.direction, formulas_.cell_count(), baked_.program.scalars().size(),
            captured_elements(baked_, sizes)};
  }

  Problem baked_;
  Formulas formulas_;
};

// Accumulators of captured gradients are as large as the tensors, and an extent H counts all heads
// where there are more than this call has.
bool needs_h_global(const Problem& problem) {
  const auto& tensors = problem.program.tensors();
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    if (!wanted(problem.want_tensors, slot)) continue;
    for (const ir::Extent& extent : tensors[slot].extents) {
      if (extent.kind == ir::Extent::Kind::H) return true;
    }
  }
  return false;
}

// All else keeps its default: sizes, strides, scale, offsets and the rest are read from Bindings.
Problem what_is_baked(const Problem& problem, ir::Program lifted) {
  Problem baked;
  baked.direction = problem.direction;
  baked.layout = problem.layout;
  for (const NamedTensor& tensor : named_tensors()) {
    if (takes_part(problem, tensor)) (baked.*tensor.spec).dtype = (problem.*tensor.spec).dtype;
  }
  baked.has_q_lengths = problem.has_q_lengths;
  baked.has_k_lengths = problem.has_k_lengths;
  baked.has_q_offsets = problem.has_q_offsets;
  baked.has_k_offsets = problem.has_k_offsets;
  baked.sink = problem.sink;
  baked.rng = problem.dropout > 0 ? problem.rng : Rng::Portable;
  if (problem.direction == Direction::Forward) {
    baked.lse = problem.lse;
    baked.row_max = problem.row_max;
    baked.max_logit = problem.max_logit;
  } else {
    baked.grad_lse = problem.grad_lse;
    baked.want_q = problem.want_q;
    baked.want_k = problem.want_k;
    baked.want_v = problem.want_v;
    baked.want_sink = problem.want_sink;
    baked.want_tensors = problem.want_tensors;
    baked.want_scalars = problem.want_scalars;
    baked.want_tensors.resize(problem.program.tensors().size());
    baked.want_scalars.resize(problem.program.scalars().size());
    if (needs_h_global(problem)) baked.h_global = problem.h_global;
  }
  baked.program = std::move(lifted);
  return baked;
}

class ReferenceEngine : public Engine {
 public:
  std::string name() const override { return "reference"; }

  Baking bake(const Problem& problem, const Device&) const override {
    ir::Lifted lifted = ir::lift_literals(problem.program);
    return {{what_is_baked(problem, std::move(lifted.program))}, std::move(lifted.literals)};
  }

  Verdict judge(const Baked& baked, const Device& device) const override {
    Verdict verdict;
    if (device.kind != DeviceKind::Cpu) {
      verdict.reasons.push_back({"device_not_cpu", "engine reference runs on a CPU",
                                 "device " + device.name,
                                 "copy the tensors to the host and use device cpu"});
    }
    if (baked.problem.rng == Rng::Engine) {
      verdict.reasons.push_back({"rng_engine_unknown",
                                 "engine reference has no random generator of its own",
                                 "rng=engine", "use rng=portable"});
    }
    if (verdict.reasons.empty()) {
      verdict.answer = Answer::Proven;  // nothing is looked up, built or left to a library
      verdict.note = "textbook loops in double: exact, and slow";
    }
    return verdict;
  }

  Verdict prove(const Baked& baked, const Device& device) const override {
    return judge(baked, device);
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Device& device) const override {
    for (const Reason& reason : judge(baked, device).reasons) {
      throw Unsupported(reason.limit + ", got " + reason.got + ": " + reason.advice);
    }
    return std::make_unique<ReferencePlan>(baked.problem);
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace fovea
