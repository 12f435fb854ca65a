// i32 sums are followed as linear forms over the steps that are not sums, so that a position that
// occurs twice (q - k >= q - n) is not treated as two. A linear form speaks of unbounded integers:
// if part of it may wrap within the box it is `broken` there, and the plain ranges of the
// (wrapped) operands are used instead.
#include "ir/range.h"

#include <algorithm>
#include <array>

#include "ir/extremes.h"
#include "ir/interval.h"
#include "ir/limits.h"
#include "ir/range_code.h"

namespace fovea::ir {
namespace {

using Kind = RangeStep::Kind;

Range from_box(std::span<const Range> ranges, std::size_t i) {
  return i < ranges.size() ? ranges[i] : Range{};
}

Range leaf_range(const Node& node, const Box& box) {
  Range out;
  switch (node.op()) {
    case Op::IndexB: out.i = box.b; break;
    case Op::IndexH: out.i = box.h; break;
    case Op::IndexQ: out.i = box.q; break;
    case Op::IndexK: out.i = box.k; break;
    case Op::SizeB: out.i = box.B; break;
    case Op::SizeH: out.i = box.H; break;
    case Op::SizeHkv: out.i = box.Hkv; break;
    case Op::SizeSq: out.i = box.Sq; break;
    case Op::SizeSkv: out.i = box.Skv; break;
    case Op::ScalarF:
    case Op::ScalarI: return from_box(box.scalars, node.slot());
    case Op::ConstF: out.f = RealInterval::of(node.float_value()); break;
    case Op::ConstI: out.i = IntInterval::of(node.int_value()); break;
    case Op::ConstB: out.b = BoolSet::of(node.bool_value()); break;
    default: break;  // score and grad: anything
  }
  return out;
}

// Runs the steps over one box.
class Runner {
 public:
  Runner(const RangeCode& code, const Box& box, Ranges::Memory memory)
      : code_(code), box_(box), values_(memory.values), broken_(memory.broken) {}

  void run() {
    for (std::size_t i = 0; i < code_.steps.size(); ++i) {
      const RangeStep& step = code_.steps[i];
      broken_[i] = 0;
      switch (step.kind) {
        case Kind::Leaf: values_[i] = leaf_range(*step.node, box_); break;
        case Kind::Load: values_[i] = from_box(box_.loads, step.load); break;
        case Kind::Plain: values_[i] = plain(step); break;
        case Kind::Sum: sum(step, i); break;
        case Kind::Compare: values_[i] = compare(step); break;
        case Kind::Modulo: values_[i] = modulo(step); break;
      }
    }
  }

 private:
  std::span<const std::uint32_t> operands(const RangeStep& step) const {
    return std::span(code_.operands).subspan(step.first_operand, step.operand_count);
  }

  Range plain(const RangeStep& step) const {
    std::array<Range, 3> args;
    std::size_t count = 0;
    for (const std::uint32_t operand : operands(step)) args[count++] = values_[operand];
    return apply_range(step.node->op(), {args.data(), count});
  }

  bool any_operand_broken(const RangeStep& step) const {
    for (const std::uint32_t operand : operands(step)) {
      if (broken_[operand] != 0) return true;
    }
    return false;
  }

  IntInterval linear(const RangeStep& step) const {
    IntInterval out = IntInterval::of(step.offset);
    for (std::uint32_t i = 0; i < step.term_count; ++i) {
      const LinearTerm& term = code_.terms[step.first_term + i];
      const IntInterval x = values_[term.unknown].i;
      const bool up = term.coefficient > 0;
      out.lo += term.coefficient * (up ? x.lo : x.hi);
      out.hi += term.coefficient * (up ? x.hi : x.lo);
    }
    return out;
  }

  void sum(const RangeStep& step, std::size_t i) {
    const IntInterval exact = linear(step);
    if (any_operand_broken(step) || !exact.fits_i32()) {
      broken_[i] = 1;
      values_[i] = plain(step);
    } else {
      values_[i] = {exact, {}, {}};
    }
  }

  Range compare(const RangeStep& step) const {
    if (any_operand_broken(step)) return plain(step);
    const IntInterval difference = linear(step);
    switch (step.node->op()) {
      case Op::LtI: return {{}, {}, less(difference)};
      case Op::LeI: return {{}, {}, less_equal(difference)};
      case Op::EqI: return {{}, {}, equal_zero(difference)};
      default: return {{}, {}, equal_zero(difference).negated()};
    }
  }

  Range modulo(const RangeStep& step) const {
    const IntInterval rest = values_[step.y].i;
    if (!rest.single()) return plain(step);
    const BoolSet equal = equals_modulo(values_[step.x].i, step.modulus, rest.lo);
    return {{}, {}, step.node->op() == Op::EqI ? equal : equal.negated()};
  }

  const RangeCode& code_;
  const Box& box_;
  std::span<Range> values_;
  std::span<char> broken_;
};

Ranges::Memory grown(Ranges::Scratch& scratch, std::size_t steps) {
  scratch.values.resize(steps);
  scratch.broken.resize(steps);
  return {scratch.values, scratch.broken};
}

TileClass class_of(BoolSet kept) {
  return kept.never() ? TileClass::Empty : kept.always() ? TileClass::Full : TileClass::Mixed;
}

}  // namespace

Ranges::Ranges(std::span<const Expr> roots)
    : code_(std::make_shared<const RangeCode>(build_range_code(roots))) {}

const std::vector<Expr>& Ranges::loads() const { return code_->loads; }

std::size_t Ranges::step_count() const { return code_->steps.size(); }

void Ranges::bound(const Box& box, Memory memory) const { Runner(*code_, box, memory).run(); }

void Ranges::bound(const Box& box, Scratch& scratch) const {
  bound(box, grown(scratch, step_count()));
}

const Range& Ranges::range(Memory memory, std::size_t root) const {
  return memory.values[code_->roots[root]];
}

const Range& Ranges::range(const Scratch& scratch, std::size_t root) const {
  return scratch.values[code_->roots[root]];
}

TileClass Ranges::classify(const Box& box, Memory memory) const {
  bound(box, memory);
  return class_of(range(memory).b);
}

TileClass Ranges::classify(const Box& box, Scratch& scratch) const {
  return classify(box, grown(scratch, step_count()));
}

Range bound(const Expr& expr, const Box& box) {
  const Ranges ranges(expr);
  Ranges::Scratch scratch;
  ranges.bound(box, scratch);
  return ranges.range(scratch);
}

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

}  // namespace fovea::ir
