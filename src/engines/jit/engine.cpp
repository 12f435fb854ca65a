#include "engines/jit/engine.h"

#include "attention/engine.h"
#include "base/error.h"
#include "cuda/driver.h"
#include "engines/jit/bake.h"
#include "engines/jit/hopper.h"
#include "engines/jit/images.h"
#include "engines/jit/judge.h"
#include "engines/jit/plan.h"

namespace fovea {
namespace {

using namespace jit;

class JitEngine : public Engine {
 public:
  std::string name() const override { return "jit"; }

  // On a device that is no GPU nothing is baked: judge() refuses it by the device alone.
  Baking bake(const Problem& problem, const Device& device) const override {
    return device.kind == DeviceKind::Cuda ? jit::bake(problem) : Baking{{problem}, {}};
  }

  Judged judge(const Baked& baked, const Device& device) const override {
    Judged verdict{jit::judge(baked.problem, device)};
    if (verdict.answer == Answer::Expected && proofs_.find(baked, device)) {
      verdict.answer = Answer::Proven;
    }
    return verdict;
  }

  double expected_seconds(const Problem& problem, const Device& device) const override {
    return device.kind == DeviceKind::Cuda ? jit::expected_seconds(problem, device) : 0;
  }

  // A caller who asks for a proof will want the plan, so it is compiled and stored.
  Judged prove(const Baked& baked, const Device& device) const override {
    Judged verdict = judge(baked, device);
    if (verdict.answer != Answer::Expected) return verdict;
    try {
      compile_images(prepare(baked.problem, device, wanted_tier()), device);
      verdict.answer = Answer::Proven;
      proofs_.keep(baked, device, verdict);
    } catch (const Unsupported& refusal) {
      if (device.described) return verdict;  // its note says that nothing can be compiled here
      verdict.answer = Answer::No;
      verdict.reasons.push_back({"no_nvrtc", "engine jit compiles kernels", refusal.what(),
                                 "install NVRTC, or use another engine"});
    }
    return verdict;
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device& device) const override {
    throw_if_refused(judged);
    PreparedPlan prepared = prepare(baked.problem, device, wanted_tier());
    std::unique_ptr<Plan> plan;
    if (device.described) {
      compile_images(prepared, device);
      plan = make_described_plan(device);
    } else {
      const cuda::OnDevice here(device.ordinal);
      auto kernels = load_kernels(prepared, device);
      plan = make_plan(std::move(prepared), device, std::move(kernels));
    }
    proofs_.keep(baked, device, judged);
    return plan;
  }

  bool builds_pairs_at_once() const override { return true; }
  bool keeps_plans() const override { return true; }
  std::string refuse_stored(const std::string& environment) const override {
    return refuse_environment(environment);
  }

 private:
  mutable Proofs proofs_;
};

}  // namespace

const Engine& jit_engine() {
  static const JitEngine& engine = *new JitEngine;
  return engine;
}

}  // namespace fovea
