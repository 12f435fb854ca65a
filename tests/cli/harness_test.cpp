// The parts that every check of an engine stands on: placed memory, limits, test data.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "cli/check/call.h"
#include "cli/check/compare.h"
#include "cli/check/gradient_check.h"
#include "cli/check/placed.h"

namespace fovea::cli {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

NamedArray named(std::initializer_list<double> values, const std::string& dtype = "f32") {
  NamedArray out{"x", zeros(dtype, {static_cast<std::int64_t>(values.size())})};
  std::int64_t i = 0;
  for (const double x : values) out.array.set(i++, x);
  return out;
}

bool within(const NamedArray& got, const NamedArray& reference, double limit) {
  return compare(got, reference.array, limit).within;
}

TEST(Compare, JudgesTheNormAndEveryElement) {
  EXPECT_TRUE(within(named({1, 2}), named({1, 2}), 0));
  EXPECT_TRUE(within(named({1.001, 1}), named({1, 1}), 1e-3));
  EXPECT_FALSE(within(named({1.002, 1}), named({1, 1}), 1e-3));
  // One element among many: the norm hardly moves, the element does.
  NamedArray reference{"x", zeros("f64", {100000})};
  for (std::int64_t i = 0; i < reference.array.size(); ++i) reference.array.set(i, 1);
  NamedArray off = reference;
  off.array.set(17, 1.02);
  EXPECT_LT(compare(off, reference.array, 1e-3).relative, 1e-3);
  EXPECT_FALSE(within(off, reference, 1e-3));
}

TEST(Compare, WantsInfinitiesAndNanWhereTheReferenceHasThem) {
  EXPECT_TRUE(within(named({-inf, 1, nan}), named({-inf, 1, nan}), 1e-6));
  EXPECT_FALSE(within(named({inf, 1}), named({-inf, 1}), 1e-6));
  EXPECT_FALSE(within(named({-1e30, 1}), named({-inf, 1}), 1e-6));
  EXPECT_FALSE(within(named({nan, 1}), named({0, 1}), 1e-6));
  EXPECT_FALSE(within(named({0, 1}), named({nan, 1}), 1e-6));
}

TEST(Compare, MeetsAReferenceOfZeroExactly) {
  EXPECT_TRUE(within(named({0, -0.0}), named({0, 0}), 1e-2));
  EXPECT_FALSE(within(named({0, 1e-30}), named({0, 0}), 1e-2));
}

TEST(Compare, LimitsAreThoseOfTheCoarserType) {
  EXPECT_EQ(error_limit("f32", "f32", false), 2e-6);
  EXPECT_EQ(error_limit("bf16", "f32", false), 6e-3);
  EXPECT_EQ(error_limit("f32", "f16", false), 8e-4);
  EXPECT_DOUBLE_EQ(error_limit("bf16", "bf16", true), 1.8e-2);
}

TEST(Placed, KeepsItsElementsApartFromTheirSurroundings) {
  const Placement placement{"f32", {2, 3}, {10, 2}};
  Placed output(placement);
  EXPECT_TRUE(output.surroundings_untouched());
  EXPECT_TRUE(output.has_unwritten_element());
  auto* data = static_cast<float*>(output.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 128, 64u);  // no more than is promised
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) data[10 * i + 2 * j] = static_cast<float>(3 * i + j);
  }
  EXPECT_TRUE(output.surroundings_untouched());
  EXPECT_FALSE(output.has_unwritten_element());
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(output.take().get(i), static_cast<double>(i));
  for (const int outside : {-1, 1, 3, 9, 15}) {
    const float before = data[outside];
    data[outside] = 0;
    EXPECT_FALSE(output.surroundings_untouched()) << outside;
    std::memcpy(&data[outside], &before, sizeof before);
  }
  output.poison();
  EXPECT_TRUE(output.has_unwritten_element());
}

TEST(Placed, ReadsRepeatedElementsBackAsEqual) {
  Placed input({"f32", {2, 2}, {0, 1}}, named({1, 2, 3, 4}).array);
  const Array seen = Placed({"f32", {2, 2}, {0, 1}}, named({3, 4, 3, 4}).array).take();
  EXPECT_EQ(input.take().bytes, seen.bytes);
  EXPECT_TRUE(input.bytes_untouched());
  *static_cast<float*>(input.data()) = 0;
  EXPECT_FALSE(input.bytes_untouched());
}

// What a workspace is: bytes, from an aligned address on, and not one more.
TEST(Placed, WatchesBothSidesOfAWorkspace) {
  for (const std::int64_t size : {0, 1, 64, 1000}) {
    for (const std::int64_t outside : {std::int64_t{-256}, std::int64_t{-1}, size, size + 255}) {
      Placed workspace(Placement::dense("u8", {size}));
      auto* bytes = static_cast<unsigned char*>(workspace.data());
      std::memset(bytes, 0, static_cast<std::size_t>(size));
      EXPECT_TRUE(workspace.surroundings_untouched());
      bytes[outside] = 0;
      EXPECT_FALSE(workspace.surroundings_untouched()) << size << " " << outside;
    }
  }
}

TEST(Array, GetsWhatWasSet) {
  for (const char* dtype : {"f32", "f16", "bf16", "f64", "i32", "i64"}) {
    Array array = zeros(dtype, {4});
    const double values[] = {-2, 0, 1, 120};
    for (std::int64_t i = 0; i < 4; ++i) array.set(i, values[i]);
    for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(array.get(i), values[i]) << dtype;
  }
  Array half = zeros("f16", {4});
  const double values[] = {std::ldexp(1.0, -24), 65504, 1e6, -0.1};
  for (std::int64_t i = 0; i < 4; ++i) half.set(i, values[i]);
  EXPECT_EQ(half.get(0), values[0]);
  EXPECT_EQ(half.get(1), values[1]);
  EXPECT_EQ(half.get(2), inf);
  EXPECT_EQ(half.get(3), -0.0999755859375);
}

TEST(IndexBound, IsTheSmallestExtentThatATensorIndexes) {
  const fovea_sizes sizes{2, 4, 2, 10, 12, 8, 8, 0, 0};
  const Program program = Program(
      "mod=\"score + t[i[b,q], h] + u[j[k]] + f32(n[h])\" tensor=\"t:f32[5,H]\" tensor=\"u:f32[Skv]\" "
      "tensor=\"i:i32[B,Sq]\" tensor=\"j:i32[Skv]\" tensor=\"n:i32[H]\"");
  EXPECT_EQ(index_bound(program.get(), "i", sizes), 5);
  EXPECT_EQ(index_bound(program.get(), "j", sizes), 12);
  EXPECT_EQ(index_bound(program.get(), "n", sizes), 8);
  const Program shared = Program(
      "mod=\"let a = i[q]; score + t[a] + w[a]\" tensor=\"t:f32[7]\" tensor=\"w:f32[3]\" "
      "tensor=\"i:i32[Sq]\"");
  EXPECT_EQ(index_bound(shared.get(), "i", sizes), 3);
}

TEST(Workload, PoisonsExactlyWhatNoQuerySees) {
  const std::string line = "h=4 hkv=2 sq=3 skv=6 d=2 mask=\"k < 2 || (h == 3 && k == 4)\"";
  const Workload workload = make_workload(line, 1, {.poison_masked_kv = true});
  for (std::int64_t g = 0; g < 2; ++g) {
    for (std::int64_t k = 0; k < 6; ++k) {
      const bool seen = k < 2 || (g == 1 && k == 4);
      const std::int64_t row = key_row(workload, 0, g, k, 2);
      EXPECT_EQ(std::isfinite(workload.k.get(row)), seen) << g << " " << k;
      EXPECT_EQ(std::isfinite(workload.v.get(row + 1)), seen) << g << " " << k;
    }
  }
}

TEST(GradientCheck, FindsAWrongDerivativeAndSkipsKinks) {
  const std::string line = "h=1 sq=5 d=4 direction=both ";
  const auto right = check_gradients(make_workload(line, 1), 4);
  ASSERT_EQ(right.size(), 3u);
  for (const GradientCheck& one : right) {
    EXPECT_TRUE(one.within) << one.name << one.complaint;
    EXPECT_EQ(one.samples, 5) << one.name;
  }
  const auto wrong =
      check_gradients(make_workload(line + "mod=\"score*0.5\" bprop=\"grad*0.5001\"", 1), 4);
  EXPECT_FALSE(wrong[0].within);  // dq
  EXPECT_FALSE(wrong[1].within);  // dk
  EXPECT_TRUE(wrong[2].within);   // dv does not depend on it
  const auto steps = check_gradients(
      make_workload(line + "mod=\"score + 0.3 * f32(i32(score * 1e4) % 2)\"", 1), 0);
  EXPECT_EQ(steps[0].kinks, 1);
  EXPECT_TRUE(steps[0].within);
}

}  // namespace
}  // namespace fovea::cli
