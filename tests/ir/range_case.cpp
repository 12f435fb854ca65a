#include "tests/ir/targets.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/build.h"
#include "ir/print.h"
#include "ir/range.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();

Expr term(Random& random, Op position) {
  const Expr x = leaf(position);
  const Expr factor = constant(random.chance(80) ? random.between(-3, 4) : random_int(random));
  switch (random.below(6)) {
    case 0: return x;
    case 1: return x * factor;
    case 2: return make(random.chance(50) ? Op::FloorDiv : Op::TruncDiv, {x, factor});
    case 3: return make(random.chance(50) ? Op::FloorMod : Op::TruncRem, {x, factor});
    case 4: return -x;
    default: return x + factor;
  }
}

// What masks are made of: comparisons of sums of positions, through // and %, joined.
Expr linear_mask(Random& random, int depth) {
  if (depth > 0 && random.chance(60)) {
    const Expr a = linear_mask(random, depth - 1), b = linear_mask(random, depth - 1);
    switch (random.below(4)) {
      case 0: return and_(a, b);
      case 1: return or_(a, b);
      case 2: return not_(a);
      default: return equal(a, b);
    }
  }
  constexpr Op positions[] = {Op::IndexQ, Op::IndexK, Op::IndexB, Op::SizeSq, Op::SizeSkv};
  Expr left = term(random, random.pick(positions));
  for (std::uint32_t i = random.below(3); i > 0; --i)
    left = left - term(random, random.pick(positions));
  if (random.chance(30)) left = make(Op::FloorMod, {left, constant(random.between(1, 6))});
  const Expr right = random.chance(50)
                         ? term(random, random.pick(positions))
                         : constant(random.chance(85) ? random.between(-4, 9) : random_int(random));
  return make(random.pick(std::array{Op::LtI, Op::LeI, Op::EqI, Op::NeI}), {left, right});
}

IntInterval interval(Random& random, std::int32_t size) {
  const std::uint32_t kind = random.below(8);
  if (kind == 7) {  // anywhere, also at the ends of i32
    const std::int32_t a = random_int(random), b = random_int(random);
    return {std::min(a, b), std::max(a, b)};
  }
  if (kind == 6) {  // short, near an end
    const std::int32_t lo = random.chance(50) ? int_max - 4 : int_min;
    return {lo + random.between(0, 2), lo + random.between(2, 4)};
  }
  const std::int32_t lo = random.between(0, size);
  return {lo, lo + random.between(0, size)};
}

std::int32_t inside(Random& random, IntInterval x) {
  const std::uint32_t kind = random.below(8);
  if (kind == 0) return static_cast<std::int32_t>(x.lo);
  if (kind == 1) return static_cast<std::int32_t>(x.hi);
  return static_cast<std::int32_t>(x.lo + random.bits() % (x.hi - x.lo + 1));
}

bool decided(Type type, const Range& range) {
  switch (type) {
    case Type::F32: return !range.f.nan || std::isfinite(range.f.lo) || std::isfinite(range.f.hi);
    case Type::I32: return !(range.i == IntInterval{});
    case Type::Bool: return range.b.always() || range.b.never();
  }
  return false;
}

std::string interval_text(const char* name, IntInterval x) {
  return std::string(" ") + name + "=[" + std::to_string(x.lo) + ", " + std::to_string(x.hi) + "]";
}

std::string box_text(const Box& box) {
  return interval_text("b", box.b) + interval_text("h", box.h) + interval_text("q", box.q) +
         interval_text("k", box.k) + (box.loads.empty() ? "" : ", loads searched") +
         (box.scalars.empty() ? "" : ", scalars known");
}

}  // namespace

RangeCase run_range_case(Random& random, int boxes, int points) {
  constexpr Type types[] = {Type::Bool, Type::Bool, Type::I32, Type::F32};
  const Type type = random.pick(types);
  const bool linear = type == Type::Bool && random.chance(60);
  const Expr expr =
      linear ? linear_mask(random, 2)
             : build(draw(random,
                          {.type = type, .size = random.below(14), .score = type == Type::F32}));
  const Ranges ranges(expr);
  const LoadRanges searched(ranges);
  Evaluator<float> evaluator(expr);
  Ranges::Scratch scratch;
  RangeCase result;
  for (int i = 0; i < boxes; ++i) {
    const RandomCaptured captured(random, random.chance(50) ? Values::Tame : Values::Any);
    Box box = captured.box();
    box.b = interval(random, 2), box.h = interval(random, 3);
    box.q = interval(random, 12), box.k = interval(random, 12);
    const std::vector<Range> scalars = captured.scalar_ranges();
    if (random.chance(50)) box.scalars = scalars;
    std::vector<Range> loads;
    if (random.chance(70)) {
      loads = searched.find(box, captured.tensors());
      box.loads = loads;
    }
    ranges.bound(box, scratch);
    const Range range = ranges.range(scratch);
    const TileClass kind = type == Type::Bool ? ranges.classify(box, scratch) : TileClass::Mixed;
    for (int j = 0; j < points; ++j) {
      Point<float> point = captured.point<float>(random);
      point.b = inside(random, box.b), point.h = inside(random, box.h);
      point.q = inside(random, box.q), point.k = inside(random, box.k);
      evaluator(point);
      const Cell<float>& value = evaluator.value();
      ++result.samples;
      result.decided += decided(type, range) ? 1 : 0;
      const bool missed =
          (kind == TileClass::Empty && value.b) || (kind == TileClass::Full && !value.b);
      if (holds(type, range, value) && !missed) continue;
      result.failure = print(expr, random_declarations()) + "\nover" + box_text(box) + "\nat " +
                       point_text(point) + "\nis " + value_text(type, value) + ", range i [" +
                       std::to_string(range.i.lo) + ", " + std::to_string(range.i.hi) + "] f [" +
                       std::to_string(range.f.lo) + ", " + std::to_string(range.f.hi) + "]" +
                       (range.f.nan ? " nan" : "");
      return result;
    }
  }
  return result;
}

}  // namespace fovea::test
