#include "engines/reference/captured.h"

#include "attention/extents.h"
#include "base/error.h"
#include "engines/reference/rows.h"

namespace fovea::reference {
namespace {

std::int64_t bound_elements(const ir::TensorView& view) {
  std::int64_t elements = view.data == nullptr ? 0 : 1;
  for (int i = 0; i < view.rank; ++i) elements *= view.extent[static_cast<std::size_t>(i)];
  return elements;
}

// Steps to the next index, last dimension fastest.
void advance(std::array<std::int64_t, ir::limits::rank>& index, const ir::TensorView& view) {
  for (auto i = static_cast<std::size_t>(view.rank); i-- > 0;) {
    if (++index[i] < view.extent[i]) return;
    index[i] = 0;
  }
}

}  // namespace

std::int64_t captured_elements(const Problem& baked, const Sizes& sizes) {
  std::int64_t sum = 0;
  for (std::size_t slot = 0; slot < baked.program.tensors().size(); ++slot) {
    if (!wanted(baked.want_tensors, slot)) continue;
    if (__builtin_add_overflow(sum, declared_elements(baked, sizes, slot), &sum)) {
      throw InvalidArgument("tensor: the captured tensors have more than 2^63 elements");
    }
  }
  return sum;
}

CapturedSums::CapturedSums(const Problem& baked, const Bindings& bindings, std::span<double> sums)
    : bindings_(bindings) {
  std::size_t first = 0;
  for (std::size_t slot = 0; slot < bindings.tensors.size(); ++slot) {
    if (!wanted(baked.want_tensors, slot)) continue;
    const std::int64_t declared = declared_elements(baked, bindings.sizes, slot);
    const std::int64_t bound = bound_elements(bindings.tensors[slot]);
    if (bound > declared) {
      throw InvalidArgument("tensor '" + baked.program.tensors()[slot].name + "' is bound with " +
                            std::to_string(bound) + " elements, but its declared extents have " +
                            std::to_string(declared) +
                            "; where its gradient is wanted, declare it as large as it is");
    }
    sums_[slot] = sums.subspan(first, static_cast<std::size_t>(bound));
    first += static_cast<std::size_t>(declared);
  }
}

void CapturedSums::add(const LoadTerm& term) {
  if (sums_[term.slot].empty()) return;
  const ir::TensorView& view = bindings_.tensors[term.slot];
  std::int64_t at = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i) {
    at = at * view.extent[i] + ir::clamp_index(term.index[i], view.extent[i]);
  }
  sums_[term.slot][static_cast<std::size_t>(at)] += term.value;
}

void CapturedSums::write() const {
  for (std::size_t slot = 0; slot < bindings_.tensors.size(); ++slot) {
    if (sums_[slot].empty()) continue;
    const BoundGradient& gradient = bindings_.tensor_gradients[slot];
    std::array<std::int64_t, ir::limits::rank> index{};
    for (const double sum : sums_[slot]) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * gradient.stride[i];
      write_number(gradient.data, gradient.dtype, at, sum);
      advance(index, bindings_.tensors[slot]);
    }
  }
}

}  // namespace fovea::reference
