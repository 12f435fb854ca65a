#include "engines/cudnn/judge.h"

#include <algorithm>
#include <bit>
#include <set>

#include "attention/refuse.h"
#include "base/error.h"
#include "cuda/libraries.h"
#include "engines/cudnn/graph.h"
#include "engines/cudnn/known_bad.h"
#include "engines/cudnn/lower.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::cudnn {
namespace {

// ---- how long a plan will run, and a note if it is slow ----

// TFLOP/s with no modifier and no mask at d 128, and TB/s of memory. sm_90: measured on an H200
// with cuDNN 9.19 (docs/results); the others are guesses.
struct Rates {
  int sm;  // and newer
  double forward, backward, memory;
};
constexpr Rates known_rates[] = {
    {80, 210, 150, 1.7},
    {90, 690, 580, 4.0},
    {100, 1300, 1000, 6.5},
    {120, 220, 150, 1.5},
};

const Rates& rates_of(int sm) {
  const Rates* best = &known_rates[0];
  for (const Rates& one : known_rates) {
    if (one.sm <= sm) best = &one;
  }
  return *best;
}

double flops_of(const Problem& baked) {
  const Sizes& s = baked.sizes;
  return 4.0 * static_cast<double>(s.b * s.h) * static_cast<double>(s.sq) *
         static_cast<double>(s.skv) * static_cast<double>(s.d + s.dv) / 2 *
         (baked.direction == Direction::Backward ? 2.5 : 1.0);
}

// With few queries the time is that of reading keys and values; each head is read by one block.
double reading_seconds(const Problem& baked, const Device& device, double memory) {
  const Sizes& s = baked.sizes;
  const double bytes = 2.0 * static_cast<double>(s.b * s.hkv) * static_cast<double>(s.skv) *
                       static_cast<double>(s.d + s.dv);
  const double blocks = static_cast<double>(s.b * s.h) * static_cast<double>((s.sq + 127) / 128);
  const double processors = std::max(device.multiprocessors, 1);
  return bytes / (memory * 1e12) * std::max(1.0, processors / std::max(blocks, 1.0));
}

// Whether scores are modified by a tensor with an element for each of them.
bool loads_cells(const ir::Program& program) {
  if (!program.mod()) return false;
  const ir::Order order = ir::operands_first(std::span(&program.mod(), 1));
  return std::ranges::any_of(order.nodes, [](const ir::Node* node) {
    return ir::info(node->op()).form == ir::Form::Load &&
           ir::any(node->depends(), ir::Depends::Q) && ir::any(node->depends(), ir::Depends::K);
  });
}

// From measurements on an H200 with cuDNN 9.19 (docs/results): a dense mask costs 1.7 times no
// mask; a soft cap 1.28; a tensor by q and k 2.1; six sigmoids in a row, which no longer fit the
// registers, 15. Head dims of 64 reach 0.7 of the rate, those of 256 in the backward 0.75.
void note_cost(const Problem& baked, const Lowered& lowered, const Device& device,
               Verdict& verdict) {
  const Sizes& s = baked.sizes;
  double factor = 1 + 0.28 * lowered.costly_steps;
  if (loads_cells(baked.program)) factor *= 2.1;
  if (lowered.costly_steps > 8) {
    factor = 1.25 * lowered.costly_steps;
    verdict.note = "supported, but slow: a chain of " + std::to_string(lowered.costly_steps) +
                   " costly operations, about " + std::to_string(static_cast<int>(factor)) +
                   " times the time of no modifier";
  } else if (lowered.dense_mask) {
    factor *= 1.7;
    verdict.note =
        "supported, but slow: cuDNN skips tiles for diagonals only, this mask is computed "
        "everywhere, about 1.7 times the time of no mask";
  }
  if (lowered.spec.band.right && s.sq == s.skv) factor *= 0.58;
  const Rates& rates = rates_of(device.sm);
  const bool backward = baked.direction == Direction::Backward;
  const std::int64_t d = std::max(s.d, s.dv);
  if (d <= 64 || (backward && d > 128)) factor *= d <= 64 ? 1.4 : 1.33;
  const double busy =
      flops_of(baked) * factor / (1e12 * (backward ? rates.backward : rates.forward));
  verdict.cost = std::max(busy, reading_seconds(baked, device, rates.memory)) + 10e-6;
}

class Rules {
 public:
  Rules(const Problem& problem, const Device& device) : p_(problem), device_(device) {}

  Judged run() {
    if (device_.kind != DeviceKind::Cuda) {
      refuse("device_not_cuda", "engine cudnn runs on an NVIDIA GPU", "device " + device_.name,
             "use engine cpu");
      return std::move(verdict_);
    }
    check_library();
    check_types();
    check_sizes();
    check_strides();
    check_features();
    if (!verdict_.reasons.empty()) return std::move(verdict_);
    auto lowered = std::make_shared<const Lowered>(check_formulas());
    if (!verdict_.reasons.empty()) return std::move(verdict_);
    verdict_.answer = Answer::Expected;
    note_cost(p_, *lowered, device_, verdict_);
    note_absence();
    verdict_.lowered = std::move(lowered);
    return std::move(verdict_);
  }

 private:
  void refuse(std::string code, std::string limit, std::string got, std::string advice) {
    verdict_.reasons.push_back(
        {std::move(code), std::move(limit), std::move(got), std::move(advice)});
  }

  // A described GPU is judged even if nothing can be compiled here.
  void note_absence() {
    if (can_compile()) return;
    verdict_.note += std::string(verdict_.note.empty() ? "" : "; ") +
                     (graphs_are_built_in() ? "there is no cuDNN here" : "built without cuDNN") +
                     ": by the rules of " + cuda::version_text(rules_version()) +
                     ", and nothing can be compiled";
  }

  void check_library() {
    if (!can_compile() && !device_.described) {
      const std::string advice =
          graphs_are_built_in()
              ? cuda::cudnn_library().problem
              : "this Fovea was built without the headers of cuDNN: build it with -DFOVEA_CUDNN=ON";
      refuse("no_cudnn", "engine cudnn needs cuDNN 9", "this machine", advice);
      return;
    }
    if (device_.sm < 80) {
      refuse("architecture", "cuDNN's fused attention needs sm_80 or newer",
             "sm_" + std::to_string(device_.sm), "use engine cpu");
    }
    for (Reason& reason : known_bad(rules_version(), device_.sm, p_)) {
      verdict_.reasons.push_back(std::move(reason));
    }
  }

  void check_types() {
    const DType q = p_.q.dtype;
    if (q != DType::BF16 && q != DType::F16) {
      refuse("dtype", "cuDNN's fused attention takes bf16 and f16",
             "q of type " + std::string(dtype_name(q)), "use engine jit, or convert q, k and v");
    }
    for (const NamedTensor& tensor : named_tensors()) {
      const DType dtype = (p_.*tensor.spec).dtype;
      if (!takes_part(p_, tensor) || dtype == q) continue;
      refuse("mixed_types", "cuDNN wants q, k, v, o and their gradients of one type",
             std::string(tensor.name) + " of type " + std::string(dtype_name(dtype)),
             "use engine jit, or make it " + std::string(dtype_name(q)));
      return;
    }
  }

  void check_sizes() {
    const Sizes& s = p_.sizes;
    const bool packed = p_.layout == Layout::Thd;
    if (s.b == 0 || s.h == 0 || s.sq == 0 || s.skv == 0 || (packed && (s.t_q == 0 || s.t_k == 0))) {
      refuse("empty", "cuDNN takes no tensors without elements", "a size of 0", "use engine jit");
    }
    if (p_.direction == Direction::Backward && s.sq == 1 && s.skv == 1) {
      refuse("one_by_one", "cuDNN's backward takes no single query with a single key",
             "sq 1 and skv 1", "use engine jit");
    }
    // 256 was seen on sm_90; cudnn-frontend has 128 for a backward elsewhere.
    const bool backward = p_.direction == Direction::Backward;
    const std::int64_t widest = device_.sm / 10 == 9 || !backward ? 256 : 128;
    for (const auto& [name, features] : {std::pair("d", s.d), std::pair("dv", s.dv)}) {
      if (features % 8 == 0 && features >= 8 && features <= widest) continue;
      refuse("head_dim",
             "cuDNN takes head dims that are multiples of 8, up to " + std::to_string(widest) +
                 ", on sm_" + std::to_string(device_.sm),
             std::string(name) + " " + std::to_string(features),
             "use engine jit, or pad the head with zeros");
    }
    constexpr std::int64_t longest = std::int64_t{1} << 22;
    if (s.sq > longest || s.skv > longest) {
      refuse("too_long", "engine cudnn takes sequences up to 2^22",
             std::to_string(std::max(s.sq, s.skv)), "split the keys and merge by lse");
    }
  }

  void check_strides() {
    for (const NamedTensor& tensor : named_tensors()) {
      if (!takes_part(p_, tensor)) continue;
      const Strides strides = strides_of(p_, tensor);
      const bool packed = p_.layout == Layout::Thd;
      const bool aligned = strides.b % 8 == 0 && strides.h % 8 == 0 && strides.s % 8 == 0;
      const bool positive = (strides.b > 0 || packed) && strides.h > 0 && strides.s > 0;
      // Packed tensors were only seen with the heads of a row next to each other.
      const bool in_rows = !packed || strides.h < strides.s || heads_of(p_.sizes, tensor) == 1;
      if (strides.d == 1 && aligned && positive && in_rows) continue;
      refuse("strides",
             packed ? "cuDNN wants features next to each other, heads within the rows of packed "
                      "tensors, and strides that are multiples of 16 bytes"
                    : "cuDNN wants features next to each other and other strides that are "
                      "multiples of 16 bytes, none of them 0",
             std::string(tensor.name) + " with strides " + number_list(strides.list()),
             "use engine jit, or make it contiguous");
      return;
    }
  }

  void check_features() {
    if (p_.layout == Layout::Thd) check_packed();
    if (const std::string others = outputs_beyond(p_, {"lse"}); !others.empty()) {
      refuse("maxima", "cuDNN writes either lse or the maxima of rows", others, "use engine jit");
    }
    if (p_.grad_lse) {
      refuse("grad_lse", "cuDNN's backward takes no gradient of lse", "grad_lse", "use engine jit");
    }
    if (p_.dropout > 0 && p_.rng == Rng::Portable) {
      refuse(
          "portable_rng", "cuDNN draws its dropout from a generator of its own", "rng=portable",
          "use engine jit, or ask for rng=engine, which pins forward and backward to one engine");
    }
    if (p_.sink && p_.sizes.sq == 1) {
      refuse("sink_at_one_query", "cuDNN takes no sink with one query", "sq 1", "use engine jit");
    }
    if (p_.sink && (p_.has_q_lengths || p_.has_k_lengths)) {
      refuse("sink_and_lengths",
             "cuDNN leaves the lse of empty sequences unwritten, where it is the "
             "sink",
             "sink=1 with lengths", "use engine jit");
    }
    if (p_.precision == Precision::Strict) {
      refuse("strict", "engine cudnn computes in cuDNN's own precision", "strict=1",
             "use engine jit");
    }
  }

  // Features that work with lengths in padded tensors, but not reliably in packed ones.
  void check_packed() {
    const bool backward = p_.direction == Direction::Backward;
    if (p_.sink) {
      refuse("packed_sink",
             "cuDNN leaves the lse of empty sequences unwritten, where it is the sink",
             "sink=1 with layout thd", "use engine jit");
    }
    if (p_.dropout > 0) {
      refuse("packed_dropout", "engine cudnn drops nothing in packed sequences",
             "dropout with layout thd",
             "use engine jit, or pad the sequences and give their lengths");
    }
    if (backward && std::ranges::count(p_.want_tensors, true) != 0) {
      refuse("packed_captured_gradient",
             "engine cudnn gives no gradients of captured tensors in packed sequences",
             "a gradient of a captured tensor with layout thd",
             "use engine jit, or give up that gradient");
    }
    if (backward && (device_.sm / 10 == 8 || device_.sm / 10 == 12)) {
      refuse("packed_backward", "cuDNN's backward takes no packed lse on sm_8x and sm_12x",
             "sm_" + std::to_string(device_.sm),
             "use engine jit, or pad the sequences and give their lengths");
    }
  }

  Lowered check_formulas() {
    const std::vector<std::int64_t> sizes = batches(p_);
    const Workarounds avoid = workarounds_for(rules_version(), device_.sm);
    Lowered lowered = lower(p_, sizes.front(), avoid);
    for (Reason& reason : lowered.reasons) verdict_.reasons.push_back(std::move(reason));
    const std::size_t bound = std::max(lowered.spec.tensors.size(), p_.program.scalars().size());
    if (bound > most_tensors) {
      refuse("too_many_tensors", "engine cudnn binds at most 60 tensors and scalars",
             std::to_string(bound), "use engine jit");
    }
    check_inputs_per_row(lowered.spec);
    for (const UniformFormula& uniform : lowered.uniforms) {
      if (ir::node_count(uniform.formula) <= 256) continue;
      refuse("formula_too_long", "engine cudnn evaluates formulas of scalars of 256 operations",
             "a longer one", "use engine jit");
    }
    return lowered;
  }

  // Seen in cuDNN 9.19: it has no plan for a backward whose modifier and derivative read more than
  // two tensors with one number per row, such as lengths.
  void check_inputs_per_row(const GraphSpec& spec) {
    if (!spec.backward) return;
    std::set<std::pair<bool, std::uint32_t>> read;
    for (std::size_t i = 0; i < spec.steps.size(); ++i) {
      for (int j = 0; j < spec.steps[i].operand_count; ++j) {
        const Ref& ref = spec.steps[i].operands[static_cast<std::size_t>(j)];
        if (ref.kind != Ref::Kind::Tensor) continue;
        const GraphTensor& tensor = spec.tensors[ref.index];
        const bool one_row = p_.sizes.sq == 1 && tensor.dim[0] > 1;
        const bool per_row = tensor.dim[3] == 1 && (tensor.dim[2] > 1 || one_row);
        if (per_row) read.emplace(i < spec.forward_steps, ref.index);
      }
    }
    if (read.size() <= 2) return;
    refuse("inputs_per_row",
           "cuDNN's backward reads two tensors of one number per row, in a modifier and its "
           "derivative (the lengths of sequences are such, where the derivative is not 1)",
           std::to_string(read.size()), "use engine jit");
  }

  static constexpr std::size_t most_tensors = 60;
  const Problem& p_;
  const Device& device_;
  Judged verdict_;
};

}  // namespace

bool can_compile() { return graphs_are_built_in() && cuda::cudnn_library().usable(); }

int rules_version() {
  const cuda::CudnnLibrary& library = cuda::cudnn_library();
  return library.usable() ? library.version : newest_known_version;
}

std::vector<Reason> known_bad(int version, int sm, const Problem& problem) {
  std::vector<Reason> reasons;
  for (const WrongFeature& one : wrong_features(version, sm)) {
    if (one.packed_only && problem.layout != Layout::Thd) continue;
    reasons.push_back({"known_bad", one.what, "cuDNN " + cuda::version_text(version), one.advice});
  }
  return reasons;
}

Judged judge(const Problem& baked, const Device& device) { return Rules(baked, device).run(); }

const Lowered& lowered_by(const Judged& judged) {
  if (!judged.lowered) throw InternalError("engine cudnn compiles what it has not judged");
  return *static_cast<const Lowered*>(judged.lowered.get());
}

std::vector<std::int64_t> batches(const Problem& baked) {
  const bool sums_over_batch =
      baked.direction == Direction::Backward &&
      (baked.want_sink || std::ranges::count(baked.want_tensors, true) != 0);
  // cuDNN's dropout depends on the index in the batch.
  if (sums_over_batch || baked.dropout > 0) return {baked.sizes.b};
  // Packed sequences may be empty and then cost next to nothing, so one graph of the next power of
  // two serves them all, unless something is read per sequence: that would be read past its end.
  const bool bound_per_sequence =
      !baked.program.tensors().empty() || baked.has_q_offsets || baked.has_k_offsets;
  if (baked.layout == Layout::Thd && !bound_per_sequence) {
    return {static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(baked.sizes.b)))};
  }
  std::vector<std::int64_t> out;
  for (std::int64_t size = std::int64_t{1} << 40; size > 0; size /= 2) {
    if ((baked.sizes.b & size) != 0) out.push_back(size);
  }
  return out.empty() ? std::vector<std::int64_t>{baked.sizes.b} : out;
}

}  // namespace fovea::cudnn
