#include "ir/load_range.h"

#include <algorithm>

#include "ir/extremes.h"
#include "ir/interval_int.h"
#include "ir/interval_real.h"

namespace fovea::ir {

LoadRanges::LoadRanges(const Ranges& formula) {
  const std::vector<Expr>& loads = formula.loads();  // operands first: inner loads come before
  for (const Expr& load : loads) {
    Entry entry{load, Ranges(load->args()), {}};
    for (const Expr& inner : entry.indices.loads()) {
      const auto at = std::ranges::find(loads, inner) - loads.begin();
      entry.inner.push_back(static_cast<std::uint32_t>(at));
    }
    step_count_ = std::max(step_count_, entry.indices.step_count());
    entries_.push_back(std::move(entry));
  }
}

Range LoadRanges::find(const Question& question, const Box& box, Memory memory) const {
  const Entry& entry = entries_[question.load];
  Box own = box;
  own.loads = memory.inner.first(entry.inner.size());
  for (std::size_t i = 0; i < entry.inner.size(); ++i) {
    memory.inner[i] = question.found[entry.inner[i]];
  }
  entry.indices.bound(own, memory.steps);
  const TensorView& tensor = question.tensors[entry.load->slot()];
  Part part;
  std::int64_t volume = 1;
  for (std::size_t i = 0; i < entry.load->args().size(); ++i) {
    const IntInterval index = entry.indices.range(memory.steps, i).i;
    part.first[i] = clamp_index(index.lo, tensor.extent[i]);
    part.last[i] = clamp_index(index.hi, tensor.extent[i]);
    const std::int64_t length = part.last[i] - part.first[i] + 1;
    if (volume > question.most / length) return {};
    volume *= length;
  }
  return extremes(tensor, part);
}

std::vector<Range> LoadRanges::find(const Box& box, std::span<const TensorView> tensors) const {
  std::vector<Range> steps(step_count_), inner(count()), found(count());
  std::vector<char> broken(step_count_);
  for (std::size_t load = 0; load < count(); ++load) {
    found[load] =
        find({.load = load, .tensors = tensors, .found = found}, box, {{steps, broken}, inner});
  }
  return found;
}

Range hull(const Range& a, const Range& b) {
  return {ints::hull(a.i, b.i),
          reals::hull(a.f, b.f),
          {a.b.can_false || b.b.can_false, a.b.can_true || b.b.can_true}};
}

}  // namespace fovea::ir
