#include "attention/extents.h"

#include <algorithm>

#include "attention/refuse.h"
#include "base/error.h"
#include "base/words.h"

namespace fovea {
namespace {

// One declared extent of a captured tensor, in elements.
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

}  // namespace

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

namespace {

constexpr const char* strides_argument = "tensor_strides";
constexpr std::int64_t largest_stride = std::int64_t{1} << 40;

std::vector<std::int64_t> strides_in(std::string_view text, const std::string& name) {
  if (text.empty()) return {};  // of a tensor of rank 0
  std::vector<std::int64_t> strides = parse_numbers<std::int64_t>(
      strides_argument, text,
      "the strides of '" + name + "' must be whole numbers separated by commas");
  for (const std::int64_t stride : strides) {
    if (stride <= largest_stride && stride >= -largest_stride) continue;
    refuse(strides_argument, stride, "a stride of '" + name + "' must lie within 2^40");
  }
  return strides;
}

std::size_t slot_named(const ir::Program& program, const std::string& name) {
  const auto& declared = program.tensors();
  const auto found = std::ranges::find(declared, name, &ir::TensorDecl::name);
  if (found != declared.end()) return static_cast<std::size_t>(found - declared.begin());
  std::vector<std::string> names;
  for (const ir::TensorDecl& one : declared) names.push_back(one.name);
  refuse(strides_argument, name.substr(0, 64),
         "the program captures no such tensor" + did_you_mean(name, names));
}

void set_one(Problem& problem, std::string_view word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos) {
    refuse(strides_argument, std::string(word.substr(0, 64)),
           "must be words like bias:1,64,4096, separated by spaces");
  }
  const std::string name(word.substr(0, colon));
  const std::size_t slot = slot_named(problem.program, name);
  if (!problem.tensor_strides[slot].empty()) refuse(strides_argument, name, "is named twice");
  std::vector<std::int64_t> strides = strides_in(word.substr(colon + 1), name);
  const std::size_t rank = problem.program.tensors()[slot].extents.size();
  if (strides.size() != rank) {
    refuse(strides_argument, std::string(word.substr(0, 64)),
           "'" + name + "' has " + std::to_string(rank) + " dimensions, one stride each");
  }
  problem.tensor_strides[slot] = std::move(strides);
}

bool all_empty(const Problem& problem) {
  return std::ranges::all_of(problem.tensor_strides, [](const auto& one) { return one.empty(); });
}

}  // namespace

void set_tensor_strides(Problem& problem, std::string_view text) {
  problem.tensor_strides.assign(problem.program.tensors().size(), {});
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    if (space != 0) set_one(problem, text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  if (all_empty(problem)) problem.tensor_strides.clear();
}

std::string tensor_strides_text(const Problem& problem) {
  std::string out;
  for (std::size_t slot = 0; slot < problem.tensor_strides.size(); ++slot) {
    const std::string list = number_list(problem.tensor_strides[slot]);
    if (list.empty()) continue;
    out += (out.empty() ? "" : " ") + problem.program.tensors()[slot].name + ":" + list;
  }
  return out;
}

std::vector<std::int64_t> dense_tensor_strides(std::span<const std::int64_t> extents) {
  std::vector<std::int64_t> strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

std::vector<std::int64_t> tensor_strides(const Problem& problem, std::size_t slot) {
  if (slot < problem.tensor_strides.size() && !problem.tensor_strides[slot].empty()) {
    return problem.tensor_strides[slot];
  }
  return dense_tensor_strides(
      captured_extents(problem.program.tensors()[slot], problem.sizes, problem.h_global));
}

void drop_dense_tensor_strides(Problem& problem) {
  for (std::size_t slot = 0; slot < problem.tensor_strides.size(); ++slot) {
    std::vector<std::int64_t>& given = problem.tensor_strides[slot];
    const auto extents =
        captured_extents(problem.program.tensors()[slot], problem.sizes, problem.h_global);
    const std::vector<std::int64_t> dense = dense_tensor_strides(extents);
    bool same = true;
    for (std::size_t i = 0; i < given.size(); ++i) {
      same = same && (given[i] == dense[i] || extents[i] <= 1);
    }
    if (same) given.clear();
  }
  if (all_empty(problem)) problem.tensor_strides.clear();
}

}  // namespace fovea
