#include "engines/cudnn/engine.h"

#include <map>
#include <mutex>

#include "attention/engine.h"
#include "attention/problem_text.h"
#include "base/error.h"
#include "base/log.h"
#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "engines/cudnn/graphs.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/lower.h"
#include "engines/cudnn/plan.h"

namespace fovea {
namespace {

using namespace cudnn;

class CudnnEngine : public Engine {
 public:
  std::string name() const override { return "cudnn"; }

  // For another device nothing is compiled: what cannot run there is judged by the device alone.
  Baking bake(const Problem& problem, const Device& device) const override {
    return device.kind == DeviceKind::Cuda ? cudnn::bake(problem) : Baking{{problem}, {}};
  }

  Judged judge(const Baked& baked, const Device& device) const override {
    Judged verdict = cudnn::judge(baked.problem, device);
    const auto proof = find_proof(baked, device);
    if (!proof) return verdict;
    if (proof->answer == Answer::No) return {*proof};
    if (verdict.answer == Answer::Expected) verdict.answer = Answer::Proven;
    return verdict;
  }

  // Whoever asks for a proof will want the plan: it is built, and stored.
  Judged prove(const Baked& baked, const Device& device) const override {
    Judged verdict = judge(baked, device);
    if (verdict.answer != Answer::Expected || !cuda::cudnn_library().usable()) return verdict;
    try {
      compile_graphs(baked.problem, lowered_by(verdict), device);
      verdict.answer = Answer::Proven;
    } catch (const Unsupported& refusal) {
      verdict.answer = Answer::No;
      verdict.reasons.push_back({"cudnn_refuses", "cuDNN itself builds no plan for it",
                                 refusal.what(), "use another engine, and please report this"});
    }
    keep_proof(baked, device, verdict);
    return verdict;
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device& device) const override {
    throw_if_refused(judged);
    if (const cuda::CudnnLibrary& library = cuda::cudnn_library(); !library.usable()) {
      throw Unsupported("engine cudnn: nothing can be compiled on this machine: " +
                        library.problem);
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
  struct Proof {
    Baked baked;
    Device device;
    Verdict verdict;
  };
  static constexpr std::size_t most_proofs = 1024;

  std::optional<Verdict> find_proof(const Baked& baked, const Device& device) const {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = proofs_.equal_range(baked.problem.hash() ^ device.hash());
    for (auto at = first; at != last; ++at) {
      if (at->second.baked == baked && at->second.device == device) return at->second.verdict;
    }
    return std::nullopt;
  }

  void keep_proof(const Baked& baked, const Device& device, const Verdict& verdict) const {
    const std::lock_guard lock(mutex_);
    if (proofs_.size() >= most_proofs) proofs_.clear();
    proofs_.emplace(baked.problem.hash() ^ device.hash(), Proof{baked, device, verdict});
  }

  mutable std::mutex mutex_;
  mutable std::multimap<std::uint64_t, Proof> proofs_;
};

}  // namespace

const Engine& cudnn_engine() {
  static const CudnnEngine& engine = *new CudnnEngine;
  return engine;
}

}  // namespace fovea
