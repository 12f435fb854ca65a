// The rules of Bindings: tensors, rows, sequences, values and workspace.
#include <algorithm>
#include <limits>

#include "attention/binding_rules.h"
#include "attention/engine.h"
#include "attention/extents.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "attention/validate.h"

namespace fovea {
namespace {

// In the order of named_tensors().
struct TensorField {
  const char* name;
  BoundTensor Bindings::* bound;
};
constexpr std::array<TensorField, 8> fields{{{"q", &Bindings::q},
                                             {"k", &Bindings::k},
                                             {"v", &Bindings::v},
                                             {"o", &Bindings::o},
                                             {"grad_o", &Bindings::grad_o},
                                             {"grad_q", &Bindings::grad_q},
                                             {"grad_k", &Bindings::grad_k},
                                             {"grad_v", &Bindings::grad_v}}};

std::string address_text(const void* data) {
  std::array<char, 24> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(),
                                          reinterpret_cast<std::uintptr_t>(data), 16);
  return "0x" + std::string(text.data(), end);
}

template <class T>
T host_value(const PerCall<T>& value) {
  return value.device == nullptr ? value.value : T{};
}

Region region_of(const TensorField& field, const StridedTensor& tensor, const void* data) {
  Region region{
      field.name,   reinterpret_cast<std::uintptr_t>(data), tensor.element_bytes, 4, {}, {},
      tensor.output};
  std::ranges::copy(tensor.extents, region.extent.begin());
  const Strides& s = tensor.strides;
  region.stride = {s.b * tensor.element_bytes, s.h * tensor.element_bytes,
                   s.s * tensor.element_bytes, s.d * tensor.element_bytes};
  return region;
}

}  // namespace

BindingRules::BindingRules(const Problem& problem, const Bindings& bindings, bool device_memory)
    : problem_(problem),
      bindings_(bindings),
      device_memory_(device_memory),
      row_bytes_(problem.q.dtype == DType::F64 ? 8 : 4) {
  names_.reserve(3 * (problem.program.tensors().size() + problem.program.scalars().size()));
}

void BindingRules::check(const Plan& plan) {
  check_sizes(bindings_.sizes, problem_.layout);
  check_values();
  check_tensors();
  check_rows();
  check_sequences_of_call();
  check_captured();
  check_exact_indices();
  check_workspace(plan);
  check_overlaps(regions_);
}

void BindingRules::check_pointer(std::string_view name, const void* data,
                                 std::int64_t alignment) const {
  if (data == nullptr) refuse(name, "must not be null");
  if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) != 0) {
    refuse(name, address_text(data), "must be aligned to " + std::to_string(alignment) + " bytes");
  }
}

void BindingRules::check_block(const Block& block) {
  if (!block.needed) {
    if (block.data != nullptr) {
      refuse(block.name, address_text(block.data), "is bound, but this problem has none");
    }
    return;
  }
  if (block.elements == 0) return;
  check_pointer(block.name, block.data, block.element_bytes);
  regions_.push_back({block.name,
                      reinterpret_cast<std::uintptr_t>(block.data),
                      block.element_bytes,
                      1,
                      {block.elements},
                      {block.element_bytes},
                      block.written});
}

void BindingRules::check_tensors() {
  const bool backward = problem_.direction == Direction::Backward;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    const BoundTensor& bound = bindings_.*fields[i].bound;
    if (!takes_part(problem_, tensor)) {
      if (bound.data == nullptr) continue;
      refuse(fields[i].name, address_text(bound.data), "is bound, but this problem has none");
    }
    const bool written = tensor.output && (backward ? i > 4 : i == 3);
    const StridedTensor strided{std::string(fields[i].name) + ".strides",
                                extents_of(bindings_.sizes, problem_.layout, tensor), bound.strides,
                                dtype_size((problem_.*tensor.spec).dtype), written};
    check_strides(strided, problem_.layout);
    if (std::ranges::find(strided.extents, 0) != strided.extents.end()) continue;
    check_pointer(fields[i].name, bound.data, strided.element_bytes);
    regions_.push_back(region_of(fields[i], strided, bound.data));
  }
}

void BindingRules::check_rows() {
  const bool backward = problem_.direction == Direction::Backward;
  const std::int64_t rows = row_count(bindings_.sizes, problem_.layout), heads = bindings_.sizes.h;
  const Bindings& b = bindings_;
  check_block({"lse", b.lse, rows, row_bytes_, backward || problem_.lse, !backward});
  check_block({"grad_lse", b.grad_lse, rows, row_bytes_, problem_.grad_lse, false});
  check_block({"row_max", b.row_max, rows, row_bytes_, problem_.row_max, true});
  check_block({"max_logit", b.max_logit, heads, row_bytes_, problem_.max_logit, true});
  check_block({"sink", b.sink, heads, row_bytes_, problem_.sink, false});
  check_block({"grad_sink", b.grad_sink, heads, row_bytes_, backward && problem_.want_sink, true});
}

Sequences BindingRules::query_sequences() const {
  Sequences s{{"q_lengths", "q_starts", "q_offsets", "sq", "t_q"},
              {},
              {},
              {},
              bindings_.sizes.sq,
              bindings_.sizes.t_q};
  const auto count = static_cast<std::size_t>(bindings_.sizes.b);
  if (device_memory_ || count == 0) return s;
  if (bindings_.q_lengths != nullptr) s.lengths = {bindings_.q_lengths, count};
  if (bindings_.q_starts != nullptr) s.starts = {bindings_.q_starts, count + 1};
  if (bindings_.q_offsets != nullptr) s.offsets = {bindings_.q_offsets, count};
  return s;
}

Sequences BindingRules::key_sequences() const {
  Sequences s{{"k_lengths", "k_starts", "k_offsets", "skv", "t_k"},
              {},
              {},
              {},
              bindings_.sizes.skv,
              bindings_.sizes.t_k};
  const auto count = static_cast<std::size_t>(bindings_.sizes.b);
  if (device_memory_ || count == 0) return s;
  if (bindings_.k_lengths != nullptr) s.lengths = {bindings_.k_lengths, count};
  if (bindings_.k_starts != nullptr) s.starts = {bindings_.k_starts, count + 1};
  if (bindings_.k_offsets != nullptr) s.offsets = {bindings_.k_offsets, count};
  return s;
}

void BindingRules::check_sequences_of_call() {
  const Problem& p = problem_;
  const Bindings& b = bindings_;
  const std::int64_t count = b.sizes.b, starts = count == 0 ? 0 : count + 1;
  const bool packed = p.layout == Layout::Thd;
  check_block({"q_lengths", b.q_lengths, count, 4, p.has_q_lengths, false});
  check_block({"k_lengths", b.k_lengths, count, 4, p.has_k_lengths, false});
  check_block({"q_starts", b.q_starts, starts, 4, packed, false});
  check_block({"k_starts", b.k_starts, starts, 4, packed, false});
  check_block({"q_offsets", b.q_offsets, count, 4, p.has_q_offsets, false});
  check_block({"k_offsets", b.k_offsets, count, 4, p.has_k_offsets, false});
  check_sequences(query_sequences());
  check_sequences(key_sequences());
}

void BindingRules::check_values() {
  const Bindings& b = bindings_;
  check_scale(host_value(b.scale));
  check_dropout(host_value(b.dropout));
  if (problem_.dropout == 0 && (b.dropout.device != nullptr || b.dropout.value != 0)) {
    refuse("dropout", b.dropout.value, "the problem has no dropout to vary");
  }
  if (host_value(b.offset) > std::numeric_limits<std::uint32_t>::max()) {
    refuse("offset", b.offset.value, "must be below 2^32");
  }
  check_coordinates({host_value(b.b_offset), host_value(b.h_offset), host_value(b.q_offset),
                     host_value(b.k_offset), b.h_global, problem_.dropout > 0},
                    b.sizes);
  check_captured_extents(problem_.program, b.sizes, b.h_global);
}

void BindingRules::check_workspace(const Plan& plan) {
  constexpr std::int64_t alignment = 64;
  const std::size_t needed = plan.workspace_bytes(bindings_.sizes);
  if (needed == 0) return;
  check_pointer("workspace", bindings_.workspace, alignment);
  if (bindings_.workspace_bytes < needed) {
    refuse("workspace_bytes", bindings_.workspace_bytes,
           "these sizes need " + std::to_string(needed));
  }
  check_block({"workspace", bindings_.workspace, static_cast<std::int64_t>(needed), 1, true, true});
}

void validate(const Problem& problem, const Bindings& bindings, const Plan& plan,
              bool device_memory) {
  BindingRules(problem, bindings, device_memory).check(plan);
}

}  // namespace fovea
