// Every gradient against central differences of the forward in double, over random small problems
// with features combined. The number in a failure's trace draws its problem again.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <sstream>

#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

// What the gradients are of: dot(dO, O) + dot(dlse, lse), where lse is finite.
double loss(Example& example) {
  example.forward();
  double sum = 0;
  for (std::size_t i = 0; i < example.o.count(); ++i) {
    sum += example.grad_o.number(i) * example.o.number(i);
  }
  for (std::size_t i = 0; example.problem.grad_lse && i < example.lse.count(); ++i) {
    const double lse = example.lse.number(i);
    if (std::isfinite(lse)) sum += example.grad_lse.number(i) * lse;
  }
  return sum;
}

double slope(Example& example, const std::function<void(double)>& move, double step) {
  move(step);
  const double above = loss(example);
  move(-step);
  const double below = loss(example);
  move(0);
  return (above - below) / (2 * step);
}

// The error of steps h and h / 2 cancels to the fourth order: steps can be large enough for f32.
double extrapolated_slope(Example& example, const std::function<void(double)>& move, double step) {
  return (4 * slope(example, move, step / 2) - slope(example, move, step)) / 3;
}

void expect_close(double gradient, double difference, const std::string& what) {
  EXPECT_NEAR(gradient, difference, 2e-7 * std::max(1.0, std::fabs(difference))) << what;
}

// Some elements of one input.
void check_elements(Example& example, Array& input, const Array& gradient, const std::string& what,
                    std::mt19937_64& random) {
  std::vector<std::size_t> elements(input.count());
  std::iota(elements.begin(), elements.end(), std::size_t{0});
  std::shuffle(elements.begin(), elements.end(), random);
  if (elements.size() > 5) elements.resize(5);
  const std::vector<double> gradients = gradient.numbers();
  for (const std::size_t i : elements) {
    const double value = input.number(i);
    const auto move = [&](double by) { input.put(i, value + by); };
    expect_close(gradients[i], extrapolated_slope(example, move, 1e-3),
                 what + " element " + std::to_string(i));
  }
}

void check_all(Example& example, std::mt19937_64& random) {
  example.forward_and_backward();
  check_elements(example, example.q, example.grad_q, "dq", random);
  check_elements(example, example.k, example.grad_k, "dk", random);
  check_elements(example, example.v, example.grad_v, "dv", random);
  if (example.problem.want_sink) {
    check_elements(example, example.sink, example.grad_sink, "dsink", random);
  }
  for (std::size_t slot = 0; slot < example.tensors.size(); ++slot) {
    if (!example.problem.want_tensors[slot]) continue;
    check_elements(example, example.tensors[slot].value, example.tensors[slot].gradient,
                   example.problem.program.tensors()[slot].name, random);
  }
  for (std::size_t slot = 0; slot < example.scalars.size(); ++slot) {
    if (!example.problem.want_scalars[slot]) continue;
    const float value = example.scalars[slot].f;
    const auto move = [&](double by) {
      example.scalars[slot].f = value + static_cast<float>(by);
      ASSERT_EQ(static_cast<double>(example.scalars[slot].f), static_cast<double>(value) + by);
    };
    expect_close(example.scalar_gradients[slot].number(0),
                 extrapolated_slope(example, move, 1.0 / 512),
                 example.problem.program.scalars()[slot].name);
  }
}

TEST(FiniteDifferences, RandomProblems) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Example example = random_example(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(example.problem));
    std::mt19937_64 random(seed);
    check_all(example, random);
    if (HasFailure()) return;
  }
}

// The draw is wide enough: each feature is met, and met with gradients that are not all zero.
TEST(FiniteDifferences, TheDrawCoversEveryFeature) {
  int packed = 0, grouped = 0, sinks = 0, dropped = 0, padded = 0, shifted = 0, hand_written = 0;
  int captured = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const Problem problem = random_example(seed).problem;
    packed += problem.layout == Layout::Thd;
    grouped += problem.sizes.h != problem.sizes.hkv;
    sinks += problem.sink;
    dropped += problem.dropout > 0;
    padded += problem.has_q_lengths && problem.has_k_lengths;
    shifted += problem.q_offset != 0 || problem.has_k_offsets;
    hand_written += static_cast<bool>(problem.program.bprop());
    captured += !problem.program.tensors().empty();
  }
  for (const int met : {packed, grouped, sinks, dropped, padded, shifted, hand_written, captured}) {
    EXPECT_GE(met, 20);
  }
}

}  // namespace
}  // namespace fovea::test
