// What loads read: every element type, clamped indices, empty tensors, strides.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/dtype.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "ir/range.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

template <class T>
TensorView view(const std::vector<T>& data, DType dtype, std::vector<std::int64_t> extents) {
  return TensorView::dense(data.data(), dtype, extents);
}

Cell<float> read(const TensorView& tensor, std::vector<std::int32_t> index) {
  return read_element<float>(tensor, index);
}

TEST(Load, ElementTypes) {
  const std::vector<float> f32{1.5f, -0.0f};
  const std::vector<double> f64{0.1};
  const std::vector<std::int64_t> i64{std::int64_t{1} << 40, -(std::int64_t{1} << 40), -7,
                                      std::numeric_limits<std::int32_t>::max() + std::int64_t{1}};
  const std::vector<std::uint8_t> bytes{0, 1, 2, 255};
  EXPECT_EQ(read(view(f32, DType::F32, {2}), {0}).f, 1.5f);
  EXPECT_TRUE(std::signbit(read(view(f32, DType::F32, {2}), {1}).f));
  EXPECT_EQ(read(view(f64, DType::F64, {1}), {0}).f, 0.1f);
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {0}).i, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {1}).i, std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {2}).i, -7);
  EXPECT_EQ(read(view(i64, DType::I64, {4}), {3}).i, std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(read(view(bytes, DType::U8, {4}), {3}).i, 255);
  EXPECT_FALSE(read(view(bytes, DType::Bool, {4}), {0}).b);
  EXPECT_TRUE(read(view(bytes, DType::Bool, {4}), {2}).b);
}

TEST(Load, IndicesAreClamped) {
  const std::vector<std::int32_t> data{10, 11, 12, 20, 21, 22};
  const TensorView tensor = view(data, DType::I32, {2, 3});
  constexpr std::int32_t int_min = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t int_max = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(read(tensor, {1, 2}).i, 22);
  EXPECT_EQ(read(tensor, {-1, 1}).i, 11);
  EXPECT_EQ(read(tensor, {2, 3}).i, 22);
  EXPECT_EQ(read(tensor, {int_min, int_max}).i, 12);
  EXPECT_EQ(read(tensor, {int_max, int_min}).i, 20);
}

TEST(Load, EmptyTensorsReadAsZero) {
  const std::vector<float> data{5};
  EXPECT_EQ(read(view(data, DType::F32, {0}), {0}).f, 0);
  EXPECT_EQ(read(view(data, DType::F32, {3, 0}), {1, 7}).f, 0);
  EXPECT_EQ(read(TensorView{nullptr, DType::F32, 0, {}, {}}, {}).f, 0);
}

TEST(Load, RankZeroAndStrides) {
  const std::vector<float> data{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(read(view(data, DType::F32, {}), {}).f, 1);
  TensorView transposed = view(data, DType::F32, {3, 2});
  transposed.extent = {2, 3}, transposed.stride = {1, 2};
  EXPECT_EQ(read(transposed, {1, 2}).f, 6);
  transposed.stride = {0, 1};  // broadcast
  EXPECT_EQ(read(transposed, {1, 2}).f, 3);
}

// The index of a load decides, so it is computed in f32 even if the values are double.
TEST(Load, IndicesAreThoseOfFloat) {
  Declarations declared;
  declare(declared, parse_tensor("t:f32[3]"));
  declare(declared, parse_scalar("x"));
  const std::vector<float> data{1, 2, 3};
  const TensorView tensors[] = {view(data, DType::F32, {3})};
  const ScalarValue scalars[] = {{0.1f, 0}};
  const Expr expr = parse_formula("t[i32(x * 10.0)]", declared);  // 1 in f32, 1.0000000149 in f64
  Point<double> point;
  point.tensors = tensors, point.scalars = scalars;
  EXPECT_EQ(evaluate(expr, point).f, 2);
}

// Minima and maxima of parts of tensors, against reading every element.

constexpr DType types[] = {DType::F32, DType::F16, DType::BF16, DType::F64,
                           DType::I32, DType::I64, DType::U8,   DType::Bool};

void fill(Random& random, DType type, std::vector<std::byte>& bytes) {
  const auto size = static_cast<std::size_t>(dtype_size(type));
  const bool tame = random.chance(50);
  for (std::size_t at = 0; at + size <= bytes.size(); at += size) {
    const auto put = [&](auto x) { std::memcpy(bytes.data() + at, &x, sizeof x); };
    const float real = tame ? random.normal() : random_float(random);
    const std::int32_t integer = tame ? random.between(-99, 99) : random_int(random);
    switch (type) {
      case DType::F32: put(real); break;
      case DType::F16: put(float_to_half(real)); break;
      case DType::BF16: put(float_to_bfloat16(real)); break;
      case DType::F64: put(static_cast<double>(real) * 1e20); break;
      case DType::I32: put(integer); break;
      case DType::I64: put(std::int64_t{integer} * 3); break;
      case DType::U8: put(static_cast<std::uint8_t>(integer)); break;
      case DType::Bool: put(static_cast<std::uint8_t>(random.chance(tame ? 97 : 3) ? 2 : 0)); break;
    }
  }
}

// Every element, as formulas read it.
Range read_all(const TensorView& tensor, const TensorPart& part) {
  Range range{{INT64_MAX, INT64_MIN}, RealInterval::none(), {false, false}};
  range.f.nan = false;
  std::array<std::int32_t, limits::rank> at{};
  const auto rank = static_cast<std::size_t>(tensor.rank);
  for (std::size_t i = 0; i < rank; ++i) at[i] = static_cast<std::int32_t>(part.first[i]);
  for (;;) {
    const Cell<float> x = read_element<float>(tensor, {at.data(), rank});
    range.i = {std::min<std::int64_t>(range.i.lo, x.i), std::max<std::int64_t>(range.i.hi, x.i)};
    // Not fmin: it gives NaN for a signalling one.
    if (x.f < range.f.lo) range.f.lo = x.f;
    if (x.f > range.f.hi) range.f.hi = x.f;
    range.f.nan = range.f.nan || std::isnan(x.f);
    range.b = {range.b.can_false || !x.b, range.b.can_true || x.b};
    std::size_t i = rank;
    for (; i > 0 && at[i - 1] == part.last[i - 1]; --i) {
      at[i - 1] = static_cast<std::int32_t>(part.first[i - 1]);
    }
    if (i == 0) return range;
    ++at[i - 1];
  }
}

void expect_same(Type type, const Range& a, const Range& b) {
  switch (type) {
    case Type::F32:
      ASSERT_EQ(a.f.lo, b.f.lo);
      ASSERT_EQ(a.f.hi, b.f.hi);
      ASSERT_EQ(a.f.nan, b.f.nan);
      return;
    case Type::I32: ASSERT_EQ(a.i, b.i); return;
    case Type::Bool:
      ASSERT_EQ(a.b.can_true, b.b.can_true);
      ASSERT_EQ(a.b.can_false, b.b.can_false);
      return;
  }
}

TEST(Extremes, AreThoseOfEveryElement) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(20000); ++i) {
    Random random(seed, i);
    TensorView view;
    view.dtype = random.pick(types);
    view.rank = random.between(0, 3);
    std::int64_t stride = random.chance(70) ? 1 : random.between(0, 3);
    TensorPart part;
    const auto rank = static_cast<std::size_t>(view.rank);
    const std::size_t longest = random.below(3);
    for (std::size_t d = rank; d-- > 0;) {
      view.extent[d] = d == longest ? random.between(1, 150) : random.between(1, 5);
      view.stride[d] = stride;
      stride = (stride + 1) * view.extent[d];
      part.first[d] = random.between(0, static_cast<std::int32_t>(view.extent[d]) - 1);
      part.last[d] = random.between(static_cast<std::int32_t>(part.first[d]),
                                    static_cast<std::int32_t>(view.extent[d]) - 1);
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(stride + 1) * 8);
    fill(random, view.dtype, bytes);
    view.data = bytes.data();
    expect_same(loaded_type(view.dtype), extremes(view, part), read_all(view, part));
    ASSERT_FALSE(::testing::Test::HasFatalFailure())
        << seed_text(seed, i) << ", " << dtype_name(view.dtype) << " rank " << rank;
  }
}

TEST(Extremes, ATensorWithNothingInItReadsAsZero) {
  for (const DType type : types) {
    const std::int64_t extents[] = {0};
    for (const TensorView& view :
         {TensorView::dense(nullptr, type, {}), TensorView::dense(&type, type, extents)}) {
      const Range range = extremes(view, {});
      EXPECT_EQ(range.i, IntInterval::of(0));
      EXPECT_TRUE(range.f.single() && range.f.lo == 0);
      EXPECT_TRUE(range.b.never());
    }
  }
}

// The caller's memory gives what a Scratch gives.
TEST(Extremes, RangesInMemoryOfTheCaller) {
  Declarations declared;
  declare(declared, parse_tensor("doc:i32[Skv]"));
  declare(declared, parse_tensor("at:i32[Skv]"));
  const Ranges mask(parse_formula("doc[at[k]] == doc[q]", declared, Role::Mask));
  const LoadRanges searched(mask);
  const std::vector<std::int32_t> docs{0, 0, 1, 1, 2, 2, 3, 3}, at{0, 1, 1, 0, 5, 6, 7, 90};
  const std::int64_t extents[] = {8};
  std::vector<TensorView> tensors(2);
  tensors[0] = TensorView::dense(docs.data(), DType::I32, extents);
  tensors[1] = TensorView::dense(at.data(), DType::I32, extents);
  std::vector<Range> values(mask.step_count() + searched.step_count()), inner(searched.count()),
      found(searched.count());
  std::vector<char> broken(values.size());
  const Ranges::Memory memory{values, broken};
  Ranges::Scratch scratch;
  for (std::int64_t k = 0; k < 8; ++k) {
    Box box;
    box.q = {4, 5}, box.k = {k, k};
    for (std::size_t load = 0; load < searched.count(); ++load) {
      found[load] =
          searched.find({.load = load, .tensors = tensors, .found = found}, box, {memory, inner});
    }
    const std::vector<Range> loads = searched.find(box, tensors);
    for (std::size_t load = 0; load < loads.size(); ++load) EXPECT_EQ(loads[load].i, found[load].i);
    box.loads = found;
    const TileClass kind = mask.classify(box, memory);
    EXPECT_EQ(kind, mask.classify(box, scratch));
    EXPECT_EQ(kind, k == 4 ? TileClass::Full : TileClass::Empty) << k;
  }
}

}  // namespace
}  // namespace fovea::test
