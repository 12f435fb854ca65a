// The rules of what formulas capture: tensors, their gradients, scalars, and indices that are a
// position.
#include <algorithm>

#include "attention/binding_rules.h"
#include "attention/extents.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "ir/topology.h"

namespace fovea {
namespace {

std::string list(std::span<const std::int64_t> numbers) {
  std::string out;
  for (const std::int64_t x : numbers) out += (out.empty() ? "" : ",") + number_text(x);
  return "[" + out + "]";
}

void check_count(const char* name, std::size_t count, std::size_t expected, const char* of) {
  if (count == expected) return;
  refuse(name, "has " + std::to_string(count) + " entries, the program has " +
                   std::to_string(expected) + " " + of);
}

Region strided_region(std::string_view name, const void* data, std::int64_t element_bytes,
                      std::span<const std::int64_t> extents) {
  Region region{name, reinterpret_cast<std::uintptr_t>(data), element_bytes, extents.size(), {}, {},
                false};
  std::ranges::copy(extents, region.extent.begin());
  return region;
}

bool has_elements(std::span<const std::int64_t> extents) {
  return std::ranges::find(extents, 0) == extents.end();
}

// One past the last position that formulas see, or nothing where that is not known on the host.
std::optional<std::int64_t> positions_end(const Sequences& s, std::int64_t batch,
                                          const PerCall<std::int32_t>& offset) {
  if (offset.device != nullptr && s.offsets.empty()) return std::nullopt;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < batch; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t length = !s.lengths.empty()  ? std::int64_t{s.lengths[at]}
                                : !s.starts.empty() ? std::int64_t{s.starts[at + 1]} - s.starts[at]
                                                    : s.longest;
    const std::int64_t first = s.offsets.empty() ? offset.value : s.offsets[at];
    if (length > 0) end = std::max(end, first + length);
    if (s.lengths.empty() && s.starts.empty() && s.offsets.empty()) break;  // all are alike
  }
  return end;
}

void check_load(const ir::Node& load, const ir::TensorDecl& declared, const ir::TensorView& bound,
                const std::array<std::optional<std::int64_t>, 2>& ends) {
  for (std::size_t i = 0; i < load.args().size(); ++i) {
    const ir::Op op = load.arg(i)->op();
    if (op != ir::Op::IndexQ && op != ir::Op::IndexK) continue;
    const std::optional<std::int64_t>& end = ends[op == ir::Op::IndexQ ? 0 : 1];
    if (!end || bound.extent[i] >= *end) continue;
    refuse("tensor " + declared.name, "extent " + std::to_string(bound.extent[i]) + " of index " +
                                          std::to_string(i) + ", which is " +
                                          (op == ir::Op::IndexQ ? "q" : "k") +
                                          ", must cover offset + length = " + std::to_string(*end));
  }
}

}  // namespace

void BindingRules::check_captured() {
  const ir::Program& program = problem_.program;
  const Bindings& b = bindings_;
  check_count("tensors", b.tensors.size(), program.tensors().size(), "captured tensors");
  check_count("scalars", b.scalars.size(), program.scalars().size(), "scalars");
  if (!b.tensor_gradients.empty()) {
    check_count("tensor_gradients", b.tensor_gradients.size(), program.tensors().size(),
                "captured tensors");
  }
  if (!b.scalar_gradients.empty()) {
    check_count("scalar_gradients", b.scalar_gradients.size(), program.scalars().size(), "scalars");
  }
  for (std::size_t slot = 0; slot < program.tensors().size(); ++slot) {
    check_captured_tensor(slot);
    const bool wanted = slot < problem_.want_tensors.size() && problem_.want_tensors[slot];
    check_tensor_gradient(slot, wanted);
  }
  check_scalar_gradients();
}

void BindingRules::check_captured_tensor(std::size_t slot) {
  const ir::TensorDecl& declared = problem_.program.tensors()[slot];
  const ir::TensorView& bound = bindings_.tensors[slot];
  names_.push_back("tensor " + declared.name);
  const std::string& name = names_.back();
  if (bound.dtype != declared.dtype) {
    refuse(name, dtype_name(bound.dtype),
           "is declared as " + std::string(dtype_name(declared.dtype)));
  }
  const std::vector<std::int64_t> extents =
      captured_extents(declared, bindings_.sizes, bindings_.h_global);
  const auto rank = static_cast<std::size_t>(std::clamp(bound.rank, 0, 8));
  const std::span<const std::int64_t> got(bound.extent.data(), rank);
  if (bound.rank != static_cast<int>(extents.size()) || !std::ranges::equal(got, extents)) {
    refuse(name, list(got), "must have the declared extents " + list(extents));
  }
  const std::int64_t bytes = dtype_size(bound.dtype);
  check_reach(name, extents, {bound.stride.data(), rank}, bytes);
  if (!has_elements(extents)) return;
  check_pointer(name, bound.data, bytes);
  regions_.push_back(strided_region(name, bound.data, bytes, extents));
  for (std::size_t i = 0; i < rank; ++i) regions_.back().stride[i] = bound.stride[i] * bytes;
}

void BindingRules::check_tensor_gradient(std::size_t slot, bool wanted) {
  const ir::TensorDecl& declared = problem_.program.tensors()[slot];
  names_.push_back("gradient of tensor " + declared.name);
  const std::string& name = names_.back();
  const BoundGradient none;
  const BoundGradient& bound =
      bindings_.tensor_gradients.empty() ? none : bindings_.tensor_gradients[slot];
  if (!wanted) {
    if (bound.data != nullptr) refuse(name, "is bound, but grads does not name it");
    return;
  }
  const std::vector<std::int64_t> extents =
      captured_extents(declared, bindings_.sizes, bindings_.h_global);
  if (ir::loaded_type(bound.dtype) != ir::Type::F32) {
    refuse(name, dtype_name(bound.dtype), "must be f32, f16, bf16 or f64");
  }
  const std::int64_t bytes = dtype_size(bound.dtype);
  const std::span<const std::int64_t> strides(bound.stride.data(), extents.size());
  check_reach(name, extents, strides, bytes);
  if (!has_elements(extents)) return;
  check_pointer(name, bound.data, bytes);
  if (!is_free_of_overlap(extents, strides)) {
    refuse(name, list(strides),
           "elements of an output must not overlap (extents " + list(extents) + ")");
  }
  regions_.push_back(strided_region(name, bound.data, bytes, extents));
  regions_.back().written = true;
  for (std::size_t i = 0; i < extents.size(); ++i) regions_.back().stride[i] = strides[i] * bytes;
}

void BindingRules::check_scalar_gradients() {
  const auto& scalars = problem_.program.scalars();
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    names_.push_back("gradient of scalar " + scalars[slot].name);
    void* const data =
        bindings_.scalar_gradients.empty() ? nullptr : bindings_.scalar_gradients[slot];
    const bool wanted = slot < problem_.want_scalars.size() && problem_.want_scalars[slot];
    check_block({names_.back(), data, 1, row_bytes_, wanted, true});
  }
}

void BindingRules::check_exact_indices() {
  const ir::Program& program = problem_.program;
  if (program.tensors().empty()) return;
  const bool q_known = !device_memory_ || !(problem_.has_q_lengths || problem_.has_q_offsets ||
                                            problem_.layout == Layout::Thd);
  const bool k_known = !device_memory_ || !(problem_.has_k_lengths || problem_.has_k_offsets ||
                                            problem_.layout == Layout::Thd);
  std::array<std::optional<std::int64_t>, 2> ends;
  const std::int64_t batch = bindings_.sizes.b;
  if (q_known) ends[0] = positions_end(query_sequences(), batch, bindings_.q_offset);
  if (k_known) ends[1] = positions_end(key_sequences(), batch, bindings_.k_offset);

  std::vector<ir::Expr> roots;
  for (const ir::Expr* formula : {&program.mod(), &program.mask(), &program.bprop()}) {
    if (*formula) roots.push_back(*formula);
  }
  for (const ir::Node* node : ir::operands_first(roots).nodes) {
    if (ir::info(node->op()).form != ir::Form::Load) continue;
    check_load(*node, program.tensors()[node->slot()], bindings_.tensors[node->slot()], ends);
  }
}

}  // namespace fovea
