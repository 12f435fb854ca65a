#include "engines/reference/engine.h"

#include <algorithm>
#include <array>
#include <optional>

#include "attention/engine.h"
#include "engines/reference/backward.h"
#include "engines/reference/forward.h"
#include "engines/reference/tangent.h"

namespace fovea {
namespace {

using namespace reference;

class ReferencePlan : public Plan {
 public:
  explicit ReferencePlan(const Problem& baked)
      : baked_(baked), formulas_(baked_), tangents_(baked_) {}

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure("reference", nullptr);
    for (std::size_t i = lanes(sizes); i-- > 0;) Scratch::lay_out(measure, needs(sizes), sizes);
    return measure.used();
  }

  std::size_t memory_bytes() const override {
    constexpr std::size_t bytes_per_node = 128;  // a node, its place in an order, its operands
    return sizeof *this + 3 * (formulas_.cell_count() + tangents_.cell_count()) * bytes_per_node;
  }

  void run(const Bindings& bindings) const override {
    Arena arena("reference", bindings.workspace);
    std::array<std::optional<ReferenceCall>, most_lanes> calls;
    const std::size_t count = lanes(bindings.sizes);
    for (std::size_t i = 0; i < count; ++i) {
      calls[i].emplace(baked_, formulas_, bindings,
                       Scratch::lay_out(arena, needs(bindings.sizes), bindings.sizes));
    }
    switch (baked_.direction) {
      case Direction::Forward: return forward(*calls[0]);
      case Direction::Backward: return backward(*calls[0]);
      case Direction::Tangent: return tangent(std::span(calls).first(count), tangents_);
    }
  }

 private:
  // At most 256 MiB if there is more than one.
  std::size_t lanes(const Sizes& sizes) const {
    if (baked_.direction != Direction::Tangent) return 1;
    Arena measure("reference", nullptr);
    Scratch::lay_out(measure, needs(sizes), sizes);
    const std::size_t fit = (std::size_t{256} << 20) / std::max<std::size_t>(measure.used(), 1);
    const auto heads = static_cast<std::size_t>(sizes.b * sizes.hkv);
    return std::clamp<std::size_t>(std::min(fit, heads), 1, most_lanes);
  }

  ScratchNeeds needs(const Sizes& sizes) const {
    return {baked_.direction, std::max(formulas_.cell_count(), tangents_.cell_count()),
            baked_.program.scalars().size(), baked_.program.tensors().size(),
            captured_elements(baked_, sizes)};
  }

  Problem baked_;
  Formulas formulas_;
  TangentFormulas tangents_;  // of a tangent
};

class ReferenceEngine : public Engine {
 public:
  std::string name() const override { return "reference"; }

  bool has_tangents() const override { return true; }

  Baking bake(const Problem& problem, const Device&) const override {
    return bake_for_host(problem);
  }

  Judged judge(const Baked& baked, const Device& device) const override {
    Judged verdict;
    refuse_other_devices(name(), device, verdict);
    if (baked.problem.rng == Rng::Engine) {
      verdict.reasons.push_back({"rng_engine_unknown",
                                 "engine reference has no random generator of its own",
                                 "rng=engine", "use rng=portable"});
    }
    if (baked.problem.direction == Direction::Tangent && baked.problem.program.bprop()) {
      verdict.reasons.push_back(
          {"tangent_of_bprop", "tangents are derived from score_mod",
           "a derivative by hand (bprop), whose own derivative is not known to be symmetric",
           "leave it out: the derivative is derived"});
    }
    if (verdict.reasons.empty()) {
      verdict.answer = Answer::Proven;  // nothing is looked up, built or left to a library
      verdict.note = "textbook loops in double: exact, and slow";
    }
    return verdict;
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device&) const override {
    throw_if_refused(judged);
    return std::make_unique<ReferencePlan>(baked.problem);
  }
};

}  // namespace

const Engine& reference_engine() {
  static const ReferenceEngine engine;
  return engine;
}

}  // namespace fovea
