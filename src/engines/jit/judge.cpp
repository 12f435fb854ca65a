#include "engines/jit/judge.h"

#include <algorithm>
#include <cmath>

#include "attention/live_share.h"
#include "engines/jit/arguments.h"
#include "engines/jit/bake.h"
#include "engines/jit/captured.h"
#include "engines/jit/compiler.h"
#include "engines/jit/device/shared_layout.h"
#include "engines/jit/hopper.h"
#include "engines/jit/kernels.h"
#include "engines/jit/prepare.h"
#include "ir/topology.h"

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
    const std::string why = why_no_hopper(known);
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
    const ShapeInputs inputs = shape_inputs(p_, device_, wanted_tier());
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

namespace {

// What the kernels reach with no modifier and no mask, in TFLOP/s, and TB/s of memory.
struct Rates {
  int sm;             // and newer
  double forward[3];  // d up to 64, 128, 256
  double backward[3];
  double f32_forward, f32_backward;
  double memory;
  int multiprocessors;  // of the GPU that they hold for
};

// sm_90 as measured on an H200 (docs/results/jit_h200.md). The others are guesses, from what
// kernels with the same instructions reach elsewhere.
constexpr Rates rates_by_sm[] = {
    {80, {150, 180, 140}, {100, 120, 80}, 7, 4, 1.7, 108},
    {90, {314, 363, 275}, {250, 295, 215}, 33, 32, 3.8, 132},
    {100, {330, 420, 320}, {220, 250, 170}, 30, 15, 6.5, 148},
    {120, {180, 220, 160}, {100, 120, 80}, 40, 20, 1.5, 188},
};

// The kernels for sm_90 (hopper.h), measured on an H200 (docs/results/jit_hopper_nvidia_h200.md). A
// function costs these more: they have less idle time to compute it in.
constexpr double hopper_forward[3] = {530, 750, 670};
constexpr double hopper_backward[3] = {455, 620, 420};
constexpr double hopper_in_order = 0.89;  // of a backward's rate, if dQ is added up in order
constexpr double hopper_function = 0.2, general_function = 0.12;

bool has_hopper_kernel(const Problem& p, const Device& device) {
  const CapturedSums captured(p);
  ShapeInputs inputs = shape_inputs(p, device, wanted_tier());
  inputs.captured = &captured;
  return has_hopper(inputs);
}

const Rates& rates_of(int sm) {
  const Rates* best = &rates_by_sm[0];
  for (const Rates& one : rates_by_sm) {
    if (one.sm <= sm) best = &one;
  }
  return *best;
}

// What a modifier adds to the time of a score, as a share of a score's own.
double modifier_cost(const ir::Program& program, double function_cost) {
  if (!program.mod()) return 0;
  double cost = 0;
  const ir::Order order = ir::operands_first(std::span(&program.mod(), 1));
  for (const ir::Node* node : order.nodes) {
    const bool of_score =
        any(node->depends(), ir::Depends::Score) ||
        (any(node->depends(), ir::Depends::Q) && any(node->depends(), ir::Depends::K));
    if (!of_score || node->args().empty()) continue;
    const bool load = ir::info(node->op()).form == ir::Form::Load;
    const bool function = node->args().size() == 1 && node->type() == ir::Type::F32 &&
                          node->op() != ir::Op::FloatOfInt;
    cost += load ? 0.3 : function ? function_cost : 0.03;
  }
  return cost;
}

double rate(const Problem& p, const Rates& rates, const Device& device, bool for_hopper) {
  const bool backward = p.direction == Direction::Backward;
  const double scale =
      static_cast<double>(std::max(device.multiprocessors, 1)) / rates.multiprocessors;
  if (p.q.dtype == DType::F32) {
    return 1e12 * scale * (backward ? rates.f32_backward : rates.f32_forward);
  }
  const std::int64_t d = std::max(p.sizes.d, p.sizes.dv);
  const int column = d <= 64 ? 0 : d <= 128 ? 1 : 2;
  if (for_hopper && backward) {
    return 1e12 * scale * hopper_backward[column] * (p.deterministic ? hopper_in_order : 1);
  }
  if (for_hopper) return 1e12 * scale * hopper_forward[column];
  return 1e12 * scale * (backward ? rates.backward : rates.forward)[column];
}

// By how much the last round of blocks, which leaves multiprocessors idle, makes the whole longer.
double idle_factor(const Problem& p, const Device& device) {
  const Sizes& s = p.sizes;
  const bool backward = p.direction == Direction::Backward;
  const double tile = backward && std::max(s.d, s.dv) > 128 ? 64 : 128;
  const double along = std::ceil(static_cast<double>(backward ? s.skv : s.sq) / tile);
  const double blocks = along * static_cast<double>(s.b * (backward ? s.hkv : s.h));
  const double processors = std::max(device.multiprocessors, 1);
  return std::max(1.0, std::ceil(blocks / processors) * processors / std::max(blocks, 1.0));
}

double bytes_of(const Problem& p) {
  const Sizes& s = p.sizes;
  const auto element = static_cast<double>(dtype_size(p.q.dtype));
  return element * static_cast<double>(s.b) * static_cast<double>(s.d + s.dv) *
         static_cast<double>(s.h * s.sq + s.hkv * s.skv);
}

}  // namespace

double expected_seconds(const Problem& p, const Device& device) {
  const Rates& rates = rates_of(device.sm);
  const Sizes& s = p.sizes;
  const bool backward = p.direction == Direction::Backward;
  const auto features = static_cast<double>(class_of_d(s.d) + class_of_dv(s.dv));
  const double flops = 2 * static_cast<double>(s.b * s.h) * static_cast<double>(s.sq) *
                       static_cast<double>(s.skv) * features * (backward ? 2.5 : 1);
  const bool for_hopper = has_hopper_kernel(p, device);
  const double function = for_hopper && !backward ? hopper_function : general_function;
  const double busy = flops * live_share(p) * (1 + modifier_cost(p.program, function)) /
                      rate(p, rates, device, for_hopper);
  const double moving = bytes_of(p) / (0.85e12 * rates.memory);
  const auto group = static_cast<int>(s.hkv == 0 ? 1 : s.h / s.hkv);
  const bool split = !backward && device::decodes(s.sq, s.skv, group);
  const double launches = backward ? 15e-6 : split ? 8e-6 : 5e-6;
  return std::max(split ? 0 : busy * idle_factor(p, device), moving) + launches;
}

}  // namespace fovea::jit
