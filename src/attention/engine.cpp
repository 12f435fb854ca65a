#include "attention/engine.h"

#include <utility>

#include "base/error.h"

namespace fovea {

std::string describe(const Reason& reason) {
  std::string out = reason.got;
  if (!reason.limit.empty()) out += (out.empty() ? "" : ", but ") + reason.limit;
  if (out.empty()) out = reason.code;
  if (!reason.advice.empty()) out += ": " + reason.advice;
  return out;
}

void throw_if_refused(const Verdict& verdict) {
  for (const Reason& reason : verdict.reasons) throw Unsupported(describe(reason));
}

double Engine::expected_seconds(const Problem&, const Device&) const { return 0; }

std::string Engine::refuse_stored(const std::string&) const {
  return "engine " + name() + " keeps no plans in files";
}

std::optional<Verdict> Proofs::find(const Baked& baked, const Device& device) const {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = proofs_.equal_range(baked.problem.hash() ^ device.hash());
  for (auto at = first; at != last; ++at) {
    if (at->second.baked == baked && at->second.device == device) return at->second.verdict;
  }
  return std::nullopt;
}

void Proofs::keep(const Baked& baked, const Device& device, const Verdict& verdict) {
  constexpr std::size_t most = 1024;
  if (find(baked, device)) return;
  const std::lock_guard lock(mutex_);
  if (proofs_.size() >= most) proofs_.clear();
  proofs_.emplace(baked.problem.hash() ^ device.hash(), Proof{baked, device, verdict});
}

namespace {

class DescribedPlan : public Plan {
 public:
  explicit DescribedPlan(std::string name) : name_(std::move(name)) {}
  std::size_t workspace_bytes(const Sizes&) const override { return 0; }
  std::size_t memory_bytes() const override { return sizeof *this; }
  void run(const Bindings&) const override {
    throw DeviceError("this plan was compiled for " + name_ +
                      ", which is described and not here: run it on device cuda:N");
  }

 private:
  std::string name_;
};

}  // namespace

std::unique_ptr<Plan> make_described_plan(const Device& device) {
  return std::make_unique<DescribedPlan>(device.name);
}

namespace {

// Accumulators of captured gradients are as large as the tensors, and an extent H counts all heads
// if there are more than this call has.
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
  baked.o.dtype = problem.o.dtype;  // of a tangent: the type of its change
  baked.has_q_lengths = problem.has_q_lengths;
  baked.has_k_lengths = problem.has_k_lengths;
  baked.has_q_offsets = problem.has_q_offsets;
  baked.has_k_offsets = problem.has_k_offsets;
  baked.sink = problem.sink;
  baked.rng = problem.dropout > 0 ? problem.rng : Rng::Portable;
  if (problem.direction == Direction::Forward) {
#define FOVEA_OUTPUT(name, extent, saved) baked.name = problem.name;
#include "fovea/fields.def"
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

}  // namespace

Baking bake_for_host(const Problem& problem, ir::Shifts shifts) {
  // Lifted literals are f32. With f64 tensors they stay: only engine reference takes those, and it
  // builds a plan in no time.
  ir::Lifted lifted = literals_of(problem.q.dtype) == ir::Literals::F64
                          ? ir::Lifted{problem.program, {}}
                          : ir::lift_literals(problem.program, ir::Depends::None, shifts);
  return {{what_is_baked(problem, std::move(lifted.program))}, std::move(lifted.literals)};
}

void refuse_other_devices(const std::string& engine, const Device& device, Verdict& verdict) {
  if (device.kind == DeviceKind::Cpu) return;
  verdict.reasons.push_back({"device_not_cpu", "engine " + engine + " runs on a CPU",
                             "device " + device.name,
                             "copy the tensors to the host and use device cpu"});
}

}  // namespace fovea
