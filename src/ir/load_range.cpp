#include "ir/load_range.h"

#include <algorithm>
#include <array>
#include <limits>

namespace fovea::ir {
namespace {

constexpr std::int64_t most_searched = std::int64_t{1} << 20;

// Grows a range by one element.
struct Extremes {
  Range range{
      {std::numeric_limits<std::int32_t>::max(), std::numeric_limits<std::int32_t>::min()},
      {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), false},
      {false, false}};

  void add(const Cell<float>& x) {
    range.i.lo = std::min<std::int64_t>(range.i.lo, x.i);
    range.i.hi = std::max<std::int64_t>(range.i.hi, x.i);
    range.f.nan = range.f.nan || x.f != x.f;
    if (x.f == x.f) {
      range.f.lo = std::min(range.f.lo, x.f);
      range.f.hi = std::max(range.f.hi, x.f);
    }
    range.b.can_true = range.b.can_true || x.b;
    range.b.can_false = range.b.can_false || !x.b;
  }
};

// All elements with first[i] <= index[i] <= last[i].
Range search(const TensorView& tensor, std::span<const std::int32_t> first,
             std::span<const std::int32_t> last) {
  Extremes extremes;
  std::array<std::int32_t, limits::rank> at{};
  std::ranges::copy(first, at.begin());
  for (;;) {
    extremes.add(read_element<float>(tensor, {at.data(), first.size()}));
    std::size_t i = first.size();
    while (i > 0 && at[i - 1] == last[i - 1]) {
      --i;
      at[i] = first[i];
    }
    if (i == 0) return extremes.range;
    ++at[i - 1];
  }
}

}  // namespace

LoadRanges::LoadRanges(const Ranges& formula) {
  const std::vector<Expr>& loads = formula.loads();  // operands first: inner loads come before
  for (const Expr& load : loads) {
    Entry entry{load, Ranges(load->args()), {}};
    for (const Expr& inner : entry.indices.loads()) {
      const auto at = std::ranges::find(loads, inner) - loads.begin();
      entry.inner.push_back(static_cast<std::uint32_t>(at));
    }
    entries_.push_back(std::move(entry));
  }
}

std::vector<Range> LoadRanges::find(const Box& box, std::span<const TensorView> tensors) const {
  std::vector<Range> found;
  Ranges::Scratch scratch;
  std::vector<Range> inner;
  for (const Entry& entry : entries_) {
    inner.clear();
    for (const std::uint32_t number : entry.inner) inner.push_back(found[number]);
    Box own = box;
    own.loads = inner;
    entry.indices.bound(own, scratch);
    const TensorView& tensor = tensors[entry.load->slot()];
    std::array<std::int32_t, limits::rank> first{}, last{};
    const std::size_t rank = entry.load->args().size();
    std::int64_t volume = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const IntInterval index = entry.indices.range(scratch, i).i;
      first[i] = static_cast<std::int32_t>(clamp_index(index.lo, tensor.extent[i]));
      last[i] = static_cast<std::int32_t>(clamp_index(index.hi, tensor.extent[i]));
      const std::int64_t length = std::int64_t{last[i]} - first[i] + 1;
      volume = volume > most_searched / length ? most_searched + 1 : volume * length;
    }
    found.push_back(volume > most_searched
                        ? Range{}
                        : search(tensor, {first.data(), rank}, {last.data(), rank}));
  }
  return found;
}

}  // namespace fovea::ir
