#include "attention/extents.h"

#include "base/error.h"

namespace fovea {

std::array<std::int64_t, 4> extents_of(const Sizes& sizes, Layout layout,
                                       const NamedTensor& tensor) {
  const std::int64_t heads = heads_of(sizes, tensor), features = features_of(sizes, tensor);
  if (layout == Layout::Thd) return {1, heads, tensor.of_keys ? sizes.t_k : sizes.t_q, features};
  return {sizes.b, heads, length_of(sizes, tensor), features};
}

std::int64_t row_count(const Sizes& sizes, Layout layout) {
  return sizes.h * (layout == Layout::Thd ? sizes.t_q : sizes.b * sizes.sq);
}

std::int64_t heads_seen(const Sizes& sizes, std::int32_t h_global) {
  return h_global != 0 ? h_global : sizes.h;
}

std::int64_t captured_extent(const ir::Extent& extent, const Sizes& sizes, std::int32_t h_global) {
  switch (extent.kind) {
    case ir::Extent::Kind::Number: return extent.number;
    case ir::Extent::Kind::B: return sizes.b;
    case ir::Extent::Kind::H: return heads_seen(sizes, h_global);
    case ir::Extent::Kind::Hkv: return sizes.hkv;
    case ir::Extent::Kind::Sq: return sizes.sq;
    case ir::Extent::Kind::Skv: return sizes.skv;
  }
  throw InternalError("an extent of no kind");
}

ResolvedExtents resolved_extents(const ir::TensorDecl& tensor, const Sizes& sizes,
                                 std::int32_t h_global) {
  ResolvedExtents out;
  for (const ir::Extent& extent : tensor.extents) {
    out.extent[out.rank++] = captured_extent(extent, sizes, h_global);
  }
  return out;
}

std::vector<std::int64_t> captured_extents(const ir::TensorDecl& tensor, const Sizes& sizes,
                                           std::int32_t h_global) {
  const ResolvedExtents resolved = resolved_extents(tensor, sizes, h_global);
  return {resolved.extent.begin(),
          resolved.extent.begin() + static_cast<std::ptrdiff_t>(resolved.rank)};
}

std::int64_t declared_elements(const Problem& baked, const Sizes& sizes, std::size_t slot) {
  std::int64_t elements = 1;
  for (const ir::Extent& extent : baked.program.tensors()[slot].extents) {
    if (__builtin_mul_overflow(elements, captured_extent(extent, sizes, baked.h_global),
                               &elements)) {
      throw InvalidArgument("tensor '" + baked.program.tensors()[slot].name +
                            "': its declared extents have more than 2^63 elements");
    }
  }
  return elements;
}

}  // namespace fovea
