// i32 sums are followed as linear forms over the steps that are not sums, so that a position that
// occurs twice (q - k >= q - n) is not treated as two. A linear form speaks of unbounded integers:
// if part of it may wrap within the box it is `broken` there, and the plain ranges of the
// (wrapped) operands are used instead.
#include "ir/range.h"

#include <algorithm>
#include <array>
#include <limits>

#include "ir/interval.h"
#include "ir/program.h"
#include "ir/range_code.h"

namespace fovea::ir {
namespace {

// The extremes of elements, added one after the other. Whole blocks are searched in lanes that do
// not depend on each other, which the compiler turns into vector code.
template <class T>
struct Ends {
  static constexpr std::int64_t lanes = 16;
  T lo = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::max();
  T hi = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                              : std::numeric_limits<T>::min();
  bool nan = false;

  void add(T x) {
    lo = x < lo ? x : lo;  // false for NaN
    hi = hi < x ? x : hi;
    nan = nan || x != x;
  }

  void add(const T* data, std::int64_t count) {
    std::int64_t i = 0;
    if (count >= 2 * lanes) i = add_blocks(data, count / lanes) * lanes;
    for (; i < count; ++i) add(data[i]);
  }

 private:
  std::int64_t add_blocks(const T* data, std::int64_t blocks) {
    std::array<T, lanes> los, his;
    std::array<int, lanes> nans{};
    los.fill(lo), his.fill(hi);
    for (std::int64_t block = 0; block < blocks; ++block) {
      const T* const x = data + block * lanes;
      for (std::size_t i = 0; i < lanes; ++i) los[i] = x[i] < los[i] ? x[i] : los[i];
      for (std::size_t i = 0; i < lanes; ++i) his[i] = his[i] < x[i] ? x[i] : his[i];
      for (std::size_t i = 0; i < lanes; ++i) nans[i] |= x[i] != x[i] ? 1 : 0;
    }
    for (std::size_t i = 0; i < lanes; ++i) {
      lo = std::min(lo, los[i]);
      hi = std::max(hi, his[i]);
      nan = nan || nans[i] != 0;
    }
    return blocks;
  }
};

// Elements of one stored type, as numbers of type T: the inner loop runs along the longest side.
template <class T, class Stored, class Convert>
Ends<T> search(const TensorView& tensor, const TensorPart& part, Convert convert) {
  const auto rank = static_cast<std::size_t>(tensor.rank);
  std::size_t longest = 0;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    at += part.first[i] * tensor.stride[i];
    if (part.last[i] - part.first[i] > part.last[longest] - part.first[longest]) longest = i;
  }
  const std::int64_t count = rank == 0 ? 1 : part.last[longest] - part.first[longest] + 1;
  const std::int64_t step = rank == 0 ? 1 : tensor.stride[longest];
  std::array<std::int64_t, limits::rank> index = part.first;
  Ends<T> ends;
  for (;;) {
    const Stored* const run = static_cast<const Stored*>(tensor.data) + at;
    if constexpr (std::is_same_v<T, Stored>) {
      if (step == 1) ends.add(run, count);
    }
    if (!std::is_same_v<T, Stored> || step != 1) {
      for (std::int64_t i = 0; i < count; ++i) ends.add(convert(run[i * step]));
    }
    std::size_t i = rank;
    for (; i > 0; --i) {  // to the next run
      const std::size_t side = i - 1;
      if (side == longest) continue;
      if (index[side] < part.last[side]) break;
      at -= (part.last[side] - part.first[side]) * tensor.stride[side];
      index[side] = part.first[side];
    }
    if (i == 0) return ends;
    ++index[i - 1];
    at += tensor.stride[i - 1];
  }
}

Range of(const Ends<float>& ends) { return {{}, {ends.lo, ends.hi, ends.nan}, {}}; }

template <class T>
Range of(const Ends<T>& ends) {
  return {{ends.lo, ends.hi}, {}, {}};
}

template <class T>
T same(T x) {
  return x;
}
float narrow(double x) { return static_cast<float>(x); }

bool has_nothing(const TensorView& tensor) {
  if (tensor.data == nullptr) return true;
  const auto extents = std::span(tensor.extent).first(static_cast<std::size_t>(tensor.rank));
  return std::ranges::any_of(extents, [](std::int64_t extent) { return extent <= 0; });
}

}  // namespace

Range extremes(const TensorView& tensor, const TensorPart& part) {
  if (has_nothing(tensor)) return {IntInterval::of(0), RealInterval::of(0), BoolSet::of(false)};
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  switch (tensor.dtype) {
    case DType::F32: return of(search<float, float>(tensor, part, same<float>));
    case DType::F16: return of(search<float, u16>(tensor, part, half_to_float));
    case DType::BF16: return of(search<float, u16>(tensor, part, bfloat16_to_float));
    case DType::F64: return of(search<float, double>(tensor, part, narrow));
    case DType::I32: return of(search<std::int32_t, std::int32_t>(tensor, part, same<int>));
    case DType::I64: return of(search<std::int32_t, std::int64_t>(tensor, part, saturate));
    case DType::U8: return of(search<u8, u8>(tensor, part, same<u8>));
    case DType::Bool: {
      const Ends<u8> bytes = search<u8, u8>(tensor, part, same<u8>);
      return {{}, {}, {bytes.lo == 0, bytes.hi != 0}};
    }
  }
  return {};
}

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
    LoadIndices entry{load, Ranges(load->args()), {}};
    for (const Expr& inner : entry.indices.loads()) {
      const auto at = std::ranges::find(loads, inner) - loads.begin();
      entry.inner.push_back(static_cast<std::uint32_t>(at));
    }
    step_count_ = std::max(step_count_, entry.indices.step_count());
    entries_.push_back(std::move(entry));
  }
}

Range LoadRanges::find(const Question& question, const Box& box, Memory memory) const {
  const LoadIndices& entry = entries_[question.load];
  Box own = box;
  own.loads = memory.inner.first(entry.inner.size());
  for (std::size_t i = 0; i < entry.inner.size(); ++i) {
    memory.inner[i] = question.found[entry.inner[i]];
  }
  entry.indices.bound(own, memory.steps);
  const TensorView& tensor = question.tensors[entry.load->slot()];
  TensorPart part;
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
