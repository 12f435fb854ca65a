#include "engines/jit/judge.h"

#include "engines/jit/arguments.h"
#include "engines/jit/bake.h"
#include "engines/jit/captured.h"
#include "engines/jit/compiler.h"
#include "engines/jit/hopper.h"
#include "engines/jit/hopper_backward.h"
#include "engines/jit/kernels.h"
#include "engines/jit/prepare.h"

namespace fovea::jit {
namespace {

class Rules {
 public:
  Rules(const Problem& problem, const Device& device) : p_(problem), device_(device) {}

  Verdict run() {
    if (device_.kind != DeviceKind::Cuda) {
      refuse("device_not_cuda", "engine jit runs on an NVIDIA GPU", "device " + device_.name,
             "use engine cpu");
      return std::move(verdict_);
    }
    check_device();
    check_types();
    check_head_dims();
    check_outputs();
    check_captured();
    if (verdict_.reasons.empty()) check_shared_memory();
    if (!verdict_.reasons.empty()) return std::move(verdict_);
    verdict_.answer = Answer::Expected;
    if (device_.sm == 90) note_tier();
    if (!compiler().problem().empty()) {
      verdict_.note += std::string(verdict_.note.empty() ? "" : "; ") +
                       "there is no NVRTC here: only kernels that are stored run";
    }
    return std::move(verdict_);
  }

 private:
  void refuse(std::string code, std::string limit, std::string got, std::string advice) {
    verdict_.reasons.push_back(
        {std::move(code), std::move(limit), std::move(got), std::move(advice)});
  }

  void note_tier() {
    const CapturedSums captured(p_);
    const Rendered formula = render_for(p_, captured, device_, wanted_tier());
    const ShapeInputs known = shape_inputs(p_, device_, formula, captured, wanted_tier());
    const bool forward = p_.direction == Direction::Forward;
    const std::string why = forward ? why_no_hopper_forward(known) : why_no_hopper_backward(known);
    const std::string name = forward ? "the forward's kernel" : "the backward's kernel";
    verdict_.note = why.empty() ? name +
                                      " is that for sm_90; calls whose strides or addresses are no "
                                      "multiples of 16 bytes run the general one"
                                : name + " is the general one, not that for sm_90: " + why;
  }

  void check_outputs() {
    const std::string others = outputs_beyond(p_, {"lse", "row_max", "max_logit"});
    if (others.empty()) return;
    refuse("outputs", "engine jit writes lse, row_max and max_logit", others,
           "use engine reference on the host");
  }

  void check_device() {
    if (device_.sm >= 80) return;
    refuse("architecture", "engine jit needs sm_80 or newer", "sm_" + std::to_string(device_.sm),
           "use engine cpu");
  }

  void check_types() {
    for (const NamedTensor& tensor : named_tensors()) {
      const DType dtype = (p_.*tensor.spec).dtype;
      if (dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16) continue;
      refuse("dtype_unknown", "engine jit stores f32, f16 or bf16",
             std::string(tensor.name) + " of type " + std::string(dtype_name(dtype)),
             "convert it, or use engine reference for f64");
    }
    for (const ir::TensorDecl& tensor : p_.program.tensors()) {
      if (tensor.dtype != DType::F64) continue;
      refuse("captured_dtype_unknown", "engine jit loads no f64",
             "tensor " + tensor.name + " of type f64",
             "convert it to f32, or use engine reference");
    }
  }

  // Head dims of a baked Problem are classes; those beyond the widest class are unchanged.
  void check_head_dims() {
    const bool backward = p_.direction == Direction::Backward;
    const auto check = [&](const char* name, std::int64_t features, std::int64_t most) {
      if (features <= most) return;
      refuse("head_dim",
             "engine jit takes " + std::string(name) + " up to " + std::to_string(most) +
                 (backward ? " in a backward" : ""),
             std::string(name) + " " + std::to_string(features), "split the head");
    };
    check("d", p_.sizes.d, backward ? widest_backward : widest_d);
    check("dv", p_.sizes.dv, backward ? widest_backward : widest_dv);
  }

  // Captured tensors, scalars and their gradients are parameters of every kernel.
  void check_captured() {
    std::size_t words = 0;
    for (const ir::TensorDecl& tensor : p_.program.tensors()) {
      words += 2 * (2 * tensor.extents.size() + 1) + 2;
    }
    words += 3 * p_.program.scalars().size();
    if (words <= static_cast<std::size_t>(most_words)) return;
    refuse("too_many_captured",
           "captured tensors and scalars of engine jit take at most " + std::to_string(most_words) +
               " words of a kernel's parameters",
           std::to_string(words) + " words", "capture fewer, larger tensors");
  }

  // The smallest tiles of the widest heads do not fit every GPU.
  void check_shared_memory() {
    ShapeInputs inputs{p_, device_.sm, device_.shared_memory_per_block};
    inputs.tier = wanted_tier();
    for (const KernelRow& row : kernel_rows(p_.direction)) {
      const int bytes = row.in_plan(inputs) ? row.shape(inputs).shared_bytes : 0;
      if (bytes <= device_.shared_memory_per_block) continue;
      refuse("shared_memory",
             "kernels of engine jit have at most the shared memory of a block, " +
                 std::to_string(device_.shared_memory_per_block) + " bytes on " + device_.name,
             std::to_string(bytes) + " bytes for d " + std::to_string(p_.sizes.d) + " and dv " +
                 std::to_string(p_.sizes.dv),
             "split the head, or use a 16-bit type");
      return;
    }
  }

  const Problem& p_;
  const Device& device_;
  Verdict verdict_;
};

}  // namespace

Verdict judge(const Problem& baked, const Device& device) { return Rules(baked, device).run(); }

}  // namespace fovea::jit
