// The rules of what formulas capture: tensors, their gradients, scalars, and indices that are a
// position.
#include <algorithm>
#include <optional>

#include "attention/binding_rules.h"
#include "attention/extents.h"
#include "attention/refuse.h"
#include "attention/rules.h"

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

ByteRange range_of(const void* data, std::span<const std::int64_t> extents,
                   std::span<const std::int64_t> strides, std::int64_t element_bytes) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) last += (extents[i] - 1) * strides[i];
  return {reinterpret_cast<std::uintptr_t>(data),
          static_cast<std::uintptr_t>((last + 1) * element_bytes), false};
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
  const ArgumentName name{"tensor", declared.name};
  if (bound.dtype != declared.dtype) {
    refuse(name.text(), dtype_name(bound.dtype),
           "is declared as " + std::string(dtype_name(declared.dtype)));
  }
  const ResolvedExtents resolved = resolved_extents(declared, bindings_.sizes, bindings_.h_global);
  const std::span<const std::int64_t> extents = resolved;
  const auto rank = static_cast<std::size_t>(std::clamp(bound.rank, 0, 8));
  const std::span<const std::int64_t> got(bound.extent.data(), rank);
  if (bound.rank != static_cast<int>(extents.size()) || !std::ranges::equal(got, extents)) {
    refuse(name.text(), list(got), "must have the declared extents " + list(extents));
  }
  const std::int64_t bytes = dtype_size(bound.dtype);
  const std::span<const std::int64_t> strides(bound.stride.data(), rank);
  check_reach(name, extents, strides, bytes);
  if (!has_elements(extents)) return;
  check_pointer(name, bound.data, bytes);
  hold({Held::Kind::Captured, slot, name}, range_of(bound.data, extents, strides, bytes));
}

void BindingRules::check_tensor_gradient(std::size_t slot, bool wanted) {
  const ir::TensorDecl& declared = problem_.program.tensors()[slot];
  const ArgumentName name{"gradient of tensor", declared.name};
  const bool given = !bindings_.tensor_gradients.empty();
  if (!wanted) {
    if (given && bindings_.tensor_gradients[slot].data != nullptr) {
      refuse(name.text(), "is bound, but grads does not name it");
    }
    return;
  }
  const BoundGradient bound = given ? bindings_.tensor_gradients[slot] : BoundGradient{};
  const ResolvedExtents resolved = resolved_extents(declared, bindings_.sizes, bindings_.h_global);
  const std::span<const std::int64_t> extents = resolved;
  if (ir::loaded_type(bound.dtype) != ir::Type::F32) {
    refuse(name.text(), dtype_name(bound.dtype), "must be f32, f16, bf16 or f64");
  }
  const std::int64_t bytes = dtype_size(bound.dtype);
  const std::span<const std::int64_t> strides(bound.stride.data(), extents.size());
  check_reach(name, extents, strides, bytes);
  if (!has_elements(extents)) return;
  check_pointer(name, bound.data, bytes);
  if (!is_free_of_overlap(extents, strides)) {
    refuse(name.text(), list(strides),
           "elements of an output must not overlap (extents " + list(extents) + ")");
  }
  ByteRange range = range_of(bound.data, extents, strides, bytes);
  range.written = true;
  hold({Held::Kind::Gradient, slot, name}, range);
}

Region BindingRules::captured_region(std::size_t slot, bool gradient) const {
  const ResolvedExtents extents =
      resolved_extents(problem_.program.tensors()[slot], bindings_.sizes, bindings_.h_global);
  Region region;
  region.rank = extents.rank;
  region.extent = extents.extent;
  region.stride =
      gradient ? bindings_.tensor_gradients[slot].stride : bindings_.tensors[slot].stride;
  region.element_bytes =
      dtype_size(gradient ? bindings_.tensor_gradients[slot].dtype : bindings_.tensors[slot].dtype);
  for (std::size_t i = 0; i < region.rank; ++i) region.stride[i] *= region.element_bytes;
  return region;
}

void BindingRules::check_scalar_gradients() {
  const auto& scalars = problem_.program.scalars();
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    void* const data =
        bindings_.scalar_gradients.empty() ? nullptr : bindings_.scalar_gradients[slot];
    const bool wanted = slot < problem_.want_scalars.size() && problem_.want_scalars[slot];
    check_block({{"gradient of scalar", scalars[slot].name}, data, 1, row_bytes_, wanted, true});
  }
}

void BindingRules::check_exact_indices() {
  if (rules_.exact_indices().empty()) return;
  const bool q_known = !device_memory_ || !(problem_.has_q_lengths || problem_.has_q_offsets ||
                                            problem_.layout == Layout::Thd);
  const bool k_known = !device_memory_ || !(problem_.has_k_lengths || problem_.has_k_offsets ||
                                            problem_.layout == Layout::Thd);
  std::array<std::optional<std::int64_t>, 2> ends;
  const std::int64_t batch = bindings_.sizes.b;
  if (q_known) ends[0] = positions_end(query_sequences(), batch, bindings_.q_offset);
  if (k_known) ends[1] = positions_end(key_sequences(), batch, bindings_.k_offset);
  for (const CallRules::ExactIndex& exact : rules_.exact_indices()) {
    const std::optional<std::int64_t>& end = ends[exact.is_k ? 1 : 0];
    const std::int64_t extent = bindings_.tensors[exact.slot].extent[exact.index];
    if (!end || extent >= *end) continue;
    refuse("tensor " + problem_.program.tensors()[exact.slot].name,
           "extent " + std::to_string(extent) + " of index " + std::to_string(exact.index) +
               ", which is " + (exact.is_k ? "k" : "q") +
               ", must cover offset + length = " + std::to_string(*end));
  }
}

}  // namespace fovea
