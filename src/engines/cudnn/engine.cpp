#include "engines/cudnn/engine.h"

#include "attention/engine.h"
#include "base/error.h"
#include "cuda/libraries.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/lower.h"
#include "engines/cudnn/plan.h"

namespace fovea {
namespace {

using namespace cudnn;

class CudnnEngine : public Engine {
 public:
  std::string name() const override { return "cudnn"; }

  // On a device that is no GPU nothing is baked: judge() refuses it by the device alone.
  Baking bake(const Problem& problem, const Device& device) const override {
    return device.kind == DeviceKind::Cuda ? cudnn::bake(problem) : Baking{{problem}, {}};
  }

  Judged judge(const Baked& baked, const Device& device) const override {
    Judged verdict = cudnn::judge(baked.problem, device);
    const auto proof = proofs_.find(baked, device);
    if (!proof) return verdict;
    if (proof->answer == Answer::No) return {*proof};
    if (verdict.answer == Answer::Expected) verdict.answer = Answer::Proven;
    return verdict;
  }

  // A caller who asks for a proof will want the plan, so it is built and stored.
  Judged prove(const Baked& baked, const Device& device) const override {
    Judged verdict = judge(baked, device);
    if (verdict.answer != Answer::Expected || !can_compile()) return verdict;
    try {
      compile_graphs(baked.problem, lowered_by(verdict), device);
      verdict.answer = Answer::Proven;
    } catch (const Unsupported& refusal) {
      verdict.answer = Answer::No;
      verdict.reasons.push_back({"cudnn_refuses", "cuDNN itself builds no plan for it",
                                 refusal.what(), "use another engine, and please report this"});
    }
    proofs_.keep(baked, device, verdict);
    return verdict;
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device& device) const override {
    throw_if_refused(judged);
    if (!can_compile()) {
      throw Unsupported("engine cudnn: nothing can be compiled on this machine: " +
                        (graphs_are_built_in() ? cuda::cudnn_library().problem
                                               : "this Fovea was built without cudnn-frontend"));
    }
    if (device.described) {
      compile_graphs(baked.problem, lowered_by(judged), device);
      return make_described_plan(device);
    }
    return make_plan(baked.problem, device, load_graphs(baked.problem, lowered_by(judged), device));
  }

  bool keeps_plans() const override { return true; }
  std::string refuse_stored(const std::string& environment) const override {
    return refuse_environment(environment);
  }

 private:
  mutable Proofs proofs_;
};

}  // namespace

const Engine& cudnn_engine() {
  static const CudnnEngine& engine = *new CudnnEngine;
  return engine;
}

}  // namespace fovea
