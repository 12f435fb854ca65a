#include "tests/engines/jit/summary_case.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/range.h"

namespace fovea::test {

using namespace ir;

namespace {

// What formulas read in a part of a tensor, as a summary says it: a NaN makes it unknown.
Range part_range(const TensorView& tensor, const TensorPart& part) {
  Range out = extremes(tensor, part);
  if (loaded_type(tensor.dtype) == Type::F32 && out.f.nan) out.f = {};
  return out;
}

std::size_t place(int i) { return static_cast<std::size_t>(i); }

bool is_empty(const TensorView& tensor) {
  return std::ranges::any_of(std::span(tensor.extent).first(place(tensor.rank)),
                             [](std::int64_t extent) { return extent <= 0; });
}

// Which index alone changes with positions, or -1.
int changing_index(const Expr& load) {
  int found = -1;
  for (std::size_t i = 0; i < load->args().size(); ++i) {
    if (!any(load->arg(i)->depends(), Depends::Q | Depends::K)) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

Range load_range(const Expr& load, std::span<const IntInterval> index, const TensorView& tensor) {
  if (is_empty(tensor)) return extremes(tensor, {});
  const int along = changing_index(load);
  TensorPart part;
  for (std::size_t i = 0; i < index.size(); ++i) {
    part.first[i] = clamp_index(index[i].lo, tensor.extent[i]);
    part.last[i] = clamp_index(index[i].hi, tensor.extent[i]);
    if (static_cast<int>(i) != along && part.first[i] != part.last[i]) return {};
  }
  if (along < 0 || part.first[place(along)] == part.last[place(along)]) {
    return extremes(tensor, part);
  }
  const std::int64_t first = part.first[place(along)] / jit::summary_block;
  const std::int64_t last = part.last[place(along)] / jit::summary_block;
  if (last - first >= 8) return {};
  part.first[place(along)] = first * jit::summary_block;
  part.last[place(along)] =
      std::min((last + 1) * jit::summary_block, tensor.extent[place(along)]) - 1;
  return part_range(tensor, part);
}

}  // namespace

std::vector<unsigned> make_table(const jit::Summary& summary, const TensorView& tensor) {
  if (is_empty(tensor)) return {};
  std::vector<unsigned> table;
  const auto rank = place(tensor.rank), along = place(summary.index);
  TensorPart part;  // one block after the other, the blocks fastest
  for (;;) {
    for (std::int64_t at = 0; at < tensor.extent[along]; at += jit::summary_block) {
      part.first[along] = at;
      part.last[along] = std::min(at + jit::summary_block, tensor.extent[along]) - 1;
      const Range found = extremes(tensor, part);
      switch (loaded_type(tensor.dtype)) {
        case Type::F32:
          table.push_back(std::bit_cast<unsigned>(found.f.nan ? std::nanf("") : found.f.lo));
          table.push_back(std::bit_cast<unsigned>(found.f.nan ? std::nanf("") : found.f.hi));
          break;
        case Type::I32:
          table.push_back(static_cast<unsigned>(found.i.lo));
          table.push_back(static_cast<unsigned>(found.i.hi));
          break;
        case Type::Bool:
          table.push_back(found.b.can_false ? 0 : 1);
          table.push_back(found.b.can_true ? 1 : 0);
          break;
      }
    }
    std::size_t i = rank;
    for (; i > 0; --i) {
      if (i - 1 == along) continue;
      if (++part.first[i - 1] < tensor.extent[i - 1]) break;
      part.first[i - 1] = 0;
    }
    if (i == 0) return table;
    for (std::size_t j = 0; j < rank; ++j) part.last[j] = part.first[j];
  }
}

std::vector<Range> ranges_by_blocks(const Ranges& formula, const Box& box,
                                    std::span<const TensorView> tensors) {
  std::vector<Range> found;
  for (const Expr& load : formula.loads()) {  // inner loads come before
    const Ranges indices(load->args());
    std::vector<Range> inner;
    for (const Expr& other : indices.loads()) {
      inner.push_back(found[static_cast<std::size_t>(std::ranges::find(formula.loads(), other) -
                                                     formula.loads().begin())]);
    }
    Box own = box;
    own.loads = inner;
    Ranges::Scratch scratch;
    indices.bound(own, scratch);
    std::vector<IntInterval> index;
    for (std::size_t i = 0; i < load->args().size(); ++i) {
      index.push_back(indices.range(scratch, i).i);
    }
    found.push_back(load_range(load, index, tensors[load->slot()]));
  }
  return found;
}

}  // namespace fovea::test
