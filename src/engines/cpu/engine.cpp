#include "engines/cpu/engine.h"

#include "attention/engine.h"
#include "base/error.h"
#include "engines/cpu/backward.h"
#include "engines/cpu/call.h"
#include "engines/cpu/forward.h"

namespace fovea {
namespace {

using namespace cpu;

// The kernels of the device's best instruction set, the first that it names.
const KernelTable& kernels_of(const Device& device) {
  return kernels_named(device.isa.empty() ? "" : device.isa.front());
}

class CpuPlan : public Plan {
 public:
  CpuPlan(const Problem& baked, const Device& device)
      : prepared_(baked, kernels_of(device), device.threads) {}

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure("cpu", nullptr);
    if (prepared_.baked.direction == Direction::Forward) {
      ForwardMemory(measure, prepared_, sizes);
    } else {
      BackwardMemory(measure, prepared_, sizes);
    }
    return measure.used();
  }

  std::size_t memory_bytes() const override {
    std::size_t bytes = sizeof *this;
    const Prepared& p = prepared_;
    for (const auto* program : {&p.mask, &p.mod, &p.shift, &p.relative, &p.slope}) {
      if (*program) bytes += (*program)->memory_bytes();
    }
    return bytes;
  }

  void run(const Bindings& bindings) const override {
    Arena arena("cpu", bindings.workspace);
    if (prepared_.baked.direction == Direction::Forward) {
      const ForwardMemory memory(arena, prepared_, bindings.sizes);
      forward(Call(prepared_, bindings, memory.scalars), memory);
    } else {
      const BackwardMemory memory(arena, prepared_, bindings.sizes);
      backward(Call(prepared_, bindings, memory.scalars), memory);
    }
  }

 private:
  Prepared prepared_;
};

class CpuEngine : public Engine {
 public:
  std::string name() const override { return "cpu"; }

  // Its own generator is the portable one.
  Baking bake(const Problem& problem, const Device&) const override {
    Baking baking = bake_for_host(problem);
    baking.baked.problem.rng = Rng::Portable;
    // Every plan gives the same bits again; with this one they do not depend on how keys are shared
    // out among devices either. See KeyChunkBackward::work_of_row.
    baking.baked.problem.deterministic =
        problem.direction == Direction::Backward && problem.deterministic;
    return baking;
  }

  Judged judge(const Baked& baked, const Device& device) const override {
    Judged verdict;
    refuse_other_devices(name(), device, verdict);
    for (const NamedTensor& tensor : named_tensors()) {
      const DType dtype = (baked.problem.*tensor.spec).dtype;
      if (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16) continue;
      verdict.reasons.push_back(
          {"dtype_unknown", "engine cpu stores f32, f16 or bf16",
           std::string(tensor.name) + " of type " + std::string(dtype_name(dtype)),
           "convert it, or use engine reference for f64"});
    }
    for (const ir::TensorDecl& tensor : baked.problem.program.tensors()) {
      if (tensor.dtype != DType::F64) continue;
      verdict.reasons.push_back({"captured_dtype_unknown", "engine cpu loads no f64",
                                 "tensor " + tensor.name + " of type f64",
                                 "convert it to f32, or use engine reference"});
    }
    if (verdict.reasons.empty()) {
      verdict.answer = Answer::Proven;  // there is no library that could refuse later
      verdict.note = std::string(kernels_of(device).isa) + " kernels, " +
                     std::to_string(device.threads) +
                     (device.threads == 1 ? " thread" : " threads");
    }
    return verdict;
  }

  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device& device) const override {
    throw_if_refused(judged);
    return std::make_unique<CpuPlan>(baked.problem, device);
  }
};

}  // namespace

const Engine& cpu_engine() {
  static const CpuEngine engine;
  return engine;
}

}  // namespace fovea
