#include "attention/binding_rules.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "attention/arena.h"
#include "attention/engine.h"
#include "attention/extents.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "attention/validate.h"

namespace fovea {
namespace {

// In the order of named_tensors().
struct TensorField {
  std::string_view name, strides;
  BoundTensor Bindings::* bound;
};
constexpr std::array<TensorField, 8> fields{{
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) \
  {#field, #field ".strides", &Bindings::field},
#include "fovea/fields.def"
}};

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

std::uintptr_t number(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }

}  // namespace

BindingRules::BindingRules(const CallRules& rules, const Bindings& bindings, bool device_memory)
    : problem_(rules.problem()),
      rules_(rules),
      bindings_(bindings),
      device_memory_(device_memory),
      own_sizes_(bindings.sizes == problem_.sizes),
      row_bytes_(problem_.q.dtype == DType::F64 ? 8 : 4) {}

void BindingRules::check(const Plan& plan) {
  if (!own_sizes_) check_sizes(bindings_.sizes, problem_.layout);
  check_values();
  check_tensors();
  check_pointers();
  check_sequences(sequences(Side::Queries));
  check_sequences(sequences(Side::Keys));
  check_captured();
  check_exact_indices();
  check_workspace(plan);
  check_overlaps(ranges_.span(), [&](std::size_t i) { return region_of(i); });
}

void BindingRules::hold(const Held& held, const ByteRange& range) {
  ranges_.push_back(range);
  held_.push_back(held);
}

namespace {

Region strided_region(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides,
                      std::int64_t element_bytes) {
  Region region;
  region.element_bytes = element_bytes;
  region.rank = extents.size();
  for (std::size_t i = 0; i < region.rank; ++i) {
    region.extent[i] = extents[i];
    region.stride[i] = strides[i] * element_bytes;
  }
  return region;
}

}  // namespace

template <class Bound>
Region BindingRules::captured_region(std::size_t slot, const Bound& bound) const {
  const ir::TensorDecl& declared = problem_.program.tensors()[slot];
  return strided_region(resolved_extents(declared, bindings_.sizes, bindings_.h_global),
                        bound.stride, dtype_size(bound.dtype));
}

Region BindingRules::region_of(std::size_t i) const {
  const std::size_t index = held_[i].index;
  Region region;
  switch (held_[i].kind) {
    case Held::Kind::Block:
      region.element_bytes = static_cast<std::int64_t>(ranges_[i].bytes);
      break;
    case Held::Kind::Tensor:
      region = strided_region(extents_of(bindings_.sizes, problem_.layout, named_tensors()[index]),
                              (bindings_.*fields[index].bound).strides.list(),
                              rules_.tensor(index).element_bytes);
      break;
    case Held::Kind::Captured: region = captured_region(index, bindings_.tensors[index]); break;
    case Held::Kind::Tangent:
      region = captured_region(index, bindings_.tensor_tangents[index]);
      break;
    case Held::Kind::Gradient:
      region = captured_region(index, bindings_.tensor_gradients[index]);
      break;
  }
  region.name = held_[i].name.text();
  region.address = ranges_[i].address;
  return region;
}

void BindingRules::check_pointer(const ArgumentName& name, const void* data,
                                 std::int64_t alignment) const {
  if (data == nullptr) refuse(name.text(), "must not be null");
  if ((number(data) & static_cast<std::uintptr_t>(alignment - 1)) != 0) {  // a power of two
    refuse(name.text(), address_text(data),
           "must be aligned to " + std::to_string(alignment) + " bytes");
  }
}

void BindingRules::check_block(const Block& block) {
  if (!block.needed) {
    if (block.data != nullptr) {
      refuse(block.name.text(), address_text(block.data), "is bound, but this problem has none");
    }
    return;
  }
  if (block.elements == 0) return;
  check_pointer(block.name, block.data, block.element_bytes);
  const auto bytes = static_cast<std::uintptr_t>(block.elements * block.element_bytes);
  hold({Held::Kind::Block, 0, block.name}, {number(block.data), bytes, block.written});
}

void BindingRules::check_tensors() {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const CallRules::OwnTensor& own = rules_.tensor(i);
    const BoundTensor& bound = bindings_.*fields[i].bound;
    if (!own.takes_part) {
      if (bound.data == nullptr) continue;
      refuse(fields[i].name, address_text(bound.data), "is bound, but this problem has none");
    }
    std::uintptr_t bytes = own.bytes;
    if (!own_sizes_ || !(bound.strides == own.strides)) {
      const auto extents = extents_of(bindings_.sizes, problem_.layout, named_tensors()[i]);
      check_strides({fields[i].strides, extents, bound.strides, own.element_bytes, own.written},
                    problem_.layout);
      bytes = bytes_of(extents, bound.strides.list(), own.element_bytes);
    }
    if (bytes == 0) continue;
    check_pointer(fields[i].name, bound.data, own.element_bytes);
    hold({Held::Kind::Tensor, i, fields[i].name}, {number(bound.data), bytes, own.written});
  }
}

void BindingRules::check_pointers() {
  struct Extent {
    std::int64_t elements, bytes;
  };
  const Problem& p = problem_;
  const bool backward = p.direction != Direction::Forward;
  const bool tangent = p.direction == Direction::Tangent;
  const std::int64_t count = bindings_.sizes.b;
  const Extent rows{row_count(bindings_.sizes, p.layout), row_bytes_};
  const Extent heads{bindings_.sizes.h, row_bytes_};
  const Extent batch{count, 4}, starts{count == 0 ? 0 : count + 1, 4};
  const auto like = [&](std::size_t i) {  // of named_tensors()
    if (!tangent) return Extent{0, 1};
    const NamedTensor& tensor = named_tensors()[i];
    std::int64_t elements = 1;
    for (const std::int64_t n : extents_of(bindings_.sizes, p.layout, tensor)) elements *= n;
    return Extent{elements, dtype_size((p.*tensor.spec).dtype)};
  };
  const Extent like_q = like(0), like_k = like(1), like_v = like(2), like_o = like(3);
#define FOVEA_POINTER(type, name, extent, needed, written) \
  check_block({#name, bindings_.name, extent.elements, extent.bytes, needed, written});
#include "fovea/fields.def"
}

Sequences BindingRules::sequences(Side side) const {
  const Bindings& b = bindings_;
  const auto count = static_cast<std::size_t>(b.sizes.b);
  const auto known = [&](const std::int32_t* data, std::size_t size) {
    const bool readable = !device_memory_ && count != 0 && data != nullptr;
    return readable ? std::span(data, size) : std::span<const std::int32_t>();
  };
  if (side == Side::Queries) {
    return {{"q_lengths", "q_starts", "q_offsets", "sq", "t_q"},
            known(b.q_lengths, count),
            known(b.q_starts, count + 1),
            known(b.q_offsets, count),
            b.sizes.sq,
            b.sizes.t_q};
  }
  return {{"k_lengths", "k_starts", "k_offsets", "skv", "t_k"},
          known(b.k_lengths, count),
          known(b.k_starts, count + 1),
          known(b.k_offsets, count),
          b.sizes.skv,
          b.sizes.t_k};
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
  if (own_sizes_ && b.h_global == problem_.h_global) return;
  check_captured_extents(problem_.program, b.sizes, b.h_global);
}

void BindingRules::check_workspace(const Plan& plan) {
  const std::size_t needed = plan.workspace_bytes(bindings_.sizes);
  if (needed == 0) return;
  check_pointer("workspace", bindings_.workspace, workspace_alignment);
  if (bindings_.workspace_bytes < needed) {
    refuse("workspace_bytes", bindings_.workspace_bytes,
           "these sizes need " + std::to_string(needed));
  }
  check_block({"workspace", bindings_.workspace, static_cast<std::int64_t>(needed), 1, true, true});
}

namespace {

void check_count(const char* name, std::size_t count, std::size_t expected, const char* of) {
  if (count == expected) return;
  refuse(name, "has " + std::to_string(count) + " entries, the program has " +
                   std::to_string(expected) + " " + of);
}

// One past the last position that formulas see, or nothing if that is not known on the host.
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
    check_captured_tensor({Held::Kind::Captured, slot, "tensor"}, b.tensors[slot]);
    if (!b.tensor_tangents.empty() && b.tensor_tangents[slot].data != nullptr) {
      check_captured_tensor({Held::Kind::Tangent, slot, "tangent of tensor"},
                            b.tensor_tangents[slot]);
    }
    check_tensor_gradient(slot, wanted(problem_.want_tensors, slot));
  }
  check_scalar_gradients();
}

void BindingRules::check_captured_tensor(const Held& what, const ir::TensorView& bound) {
  const ir::TensorDecl& declared = problem_.program.tensors()[what.index];
  const ArgumentName name{what.name.kind, declared.name};
  if (bound.dtype != declared.dtype) {
    refuse(name.text(), dtype_name(bound.dtype),
           "is declared as " + std::string(dtype_name(declared.dtype)));
  }
  const ResolvedExtents resolved = resolved_extents(declared, bindings_.sizes, bindings_.h_global);
  const std::span<const std::int64_t> extents = resolved;
  const auto rank = static_cast<std::size_t>(std::clamp(bound.rank, 0, 8));
  const std::span<const std::int64_t> got(bound.extent.data(), rank);
  if (bound.rank != static_cast<int>(extents.size()) || !std::ranges::equal(got, extents)) {
    refuse(name.text(), "[" + number_list(got) + "]",
           "must have the declared extents [" + number_list(extents) + "]");
  }
  const std::int64_t element_bytes = dtype_size(bound.dtype);
  const std::span<const std::int64_t> strides(bound.stride.data(), rank);
  check_reach(name, extents, strides, element_bytes);
  const std::uintptr_t bytes = bytes_of(extents, strides, element_bytes);
  if (bytes == 0) return;
  check_pointer(name, bound.data, element_bytes);
  hold({what.kind, what.index, name}, {number(bound.data), bytes});
}

void BindingRules::check_tensor_gradient(std::size_t slot, bool needed) {
  const ir::TensorDecl& declared = problem_.program.tensors()[slot];
  const ArgumentName name{"gradient of tensor", declared.name};
  const bool given = !bindings_.tensor_gradients.empty();
  if (!needed) {
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
  const std::int64_t element_bytes = dtype_size(bound.dtype);
  const std::span<const std::int64_t> strides(bound.stride.data(), extents.size());
  check_reach(name, extents, strides, element_bytes);
  const std::uintptr_t bytes = bytes_of(extents, strides, element_bytes);
  if (bytes == 0) return;
  check_pointer(name, bound.data, element_bytes);
  if (!is_free_of_overlap(extents, strides)) {
    refuse(name.text(), "[" + number_list(strides) + "]",
           "elements of an output must not overlap (extents [" + number_list(extents) + "])");
  }
  hold({Held::Kind::Gradient, slot, name}, {number(bound.data), bytes, /*written=*/true});
}

void BindingRules::check_scalar_gradients() {
  const auto& scalars = problem_.program.scalars();
  for (std::size_t slot = 0; slot < scalars.size(); ++slot) {
    void* const data =
        bindings_.scalar_gradients.empty() ? nullptr : bindings_.scalar_gradients[slot];
    const bool needed = wanted(problem_.want_scalars, slot);
    check_block({{"gradient of scalar", scalars[slot].name}, data, 1, row_bytes_, needed, true});
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
  if (q_known) ends[0] = positions_end(sequences(Side::Queries), batch, bindings_.q_offset);
  if (k_known) ends[1] = positions_end(sequences(Side::Keys), batch, bindings_.k_offset);
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
