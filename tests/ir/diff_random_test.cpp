// Derivatives of random formulas by score, by every f32 scalar and by every element of an f32
// tensor, against central differences in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <map>

#include "ir/build.h"
#include "ir/diff.h"
#include "ir/print.h"
#include "ir/simplify.h"
#include "ir/topology.h"
#include "tests/ir/random_point.h"

namespace fovea::test {
namespace {

using namespace ir;

// Captured values are multiples of 2^-11 below 4, so that they can be moved by this exactly in f32.
// Truncation is then about 1e-10, rounding about 1e-11, both relative to values near 1.
constexpr double step = 0x1p-16;
constexpr double tolerance = 2e-5;

// Singular: the chain rule multiplies a pole by zero (pow(0.0 * score, 0.5), sigmoid(x / 0.0)),
// which is NaN in PyTorch too.
struct Tally {
  long compared = 0, skipped = 0, singular = 0;
};

// f at -1, -1/2, 0, 1/2, 1 steps gives the derivative, unless the function has a kink, a jump, a
// pole or large higher derivatives in between.
std::optional<double> central_difference(const std::function<double(double)>& f) {
  const double at = f(0);
  const double right = f(step), left = f(-step), near_right = f(step / 2), near_left = f(-step / 2);
  for (const double value : {at, right, left, near_right, near_left}) {
    if (!(std::fabs(value) < 1e4)) return std::nullopt;
  }
  const double far = (right - left) / (2 * step), near = (near_right - near_left) / step;
  const double best = (4 * near - far) / 3;
  const double size = std::max(1.0, std::fabs(best));
  const double bend = std::fabs((right - at) - (at - left)) / step;
  const double near_bend = std::fabs((near_right - at) - (at - near_left)) / (step / 2);
  const bool smooth = std::fabs(far - near) < tolerance * size && bend < 0.01 * size &&
                      near_bend < 0.6 * bend + 1e-6 * size;  // halves with the step
  return smooth ? std::optional(best) : std::nullopt;
}

// Constants such as ln 2 are f32 in derivatives: what they are multiplied with is uncertain by that
// much, however far it cancels later.
struct Derived {
  double value = 0, noise = 0;
};

Derived value_at(const Expr& expr, const Point<double>& point) {
  std::vector<Expr> all;
  for (const Node* node : operands_first({&expr, 1}).nodes) all.push_back(Expr::share(node));
  Evaluator<double> evaluator(all);
  evaluator(point);
  double largest = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double size = all[i]->type() == Type::F32 ? std::fabs(evaluator.value(i).f) : 0;
    if (std::isfinite(size)) largest = std::max(largest, size);
  }
  return {evaluator.value(all.size() - 1).f, 0x1p-23 * std::min(largest, 1e4)};
}

// Between bounds that meet, PyTorch's clamp passes nothing on from below: there the derivative is
// none.
bool clamp_bounds_meet(const Expr& formula, const Point<double>& point) {
  for (const Node* node : operands_first({&formula, 1}).nodes) {
    if (node->op() != Op::ClampF) continue;
    if (evaluate(node->arg(1), point).exact == evaluate(node->arg(2), point).exact) return true;
  }
  return false;
}

class Check {
 public:
  Check(const Expr& formula, RandomCaptured& captured, Point<double> point)
      : evaluator_(formula), captured_(captured), point_(point) {}

  void compare(const Derived& derived, const std::function<double(double)>& f,
               const std::string& by, Tally& tally) {
    const std::optional<double> wanted = central_difference(f);
    if (!wanted) {
      ++tally.skipped;
      return;
    }
    if (!std::isfinite(derived.value)) {
      ++tally.singular;
      return;
    }
    ++tally.compared;
    ASSERT_NEAR(derived.value, *wanted,
                tolerance * std::max(1.0, std::fabs(*wanted)) + derived.noise)
        << "by " << by << " at " << point_text(point_);
  }

  double at_score(double by) {
    Point<double> moved = point_;
    moved.score += by;
    evaluator_(moved);
    return evaluator_.value().f;
  }
  double at_scalar(std::uint32_t slot, double by) { return moved(captured_.scalar(slot).f, by); }
  double at_element(std::uint32_t slot, std::size_t element, double by) {
    return moved(captured_.element(slot, element), by);
  }

 private:
  double moved(float& place, double by) {
    const float before = place;
    place = static_cast<float>(static_cast<double>(before) + by);
    evaluator_(point_);
    place = before;
    return evaluator_.value().f;
  }

  Evaluator<double> evaluator_;
  RandomCaptured& captured_;
  Point<double> point_;
};

// Where a load reads at this point.
std::size_t element_of(const Node& load, const Point<double>& point) {
  const TensorView& tensor = point.tensors[load.slot()];
  std::int64_t at = 0;
  for (std::size_t i = 0; i < load.args().size(); ++i) {
    at += clamp_index(evaluate(load.arg(i), point).i, tensor.extent[i]) * tensor.stride[i];
  }
  return static_cast<std::size_t>(at);
}

void check_formula(const Expr& formula, RandomCaptured& captured, const Point<double>& point,
                   Tally& tally) {
  const Gradients gradients = differentiate(formula);
  Check check(formula, captured, point);
  check.compare(
      value_at(gradients.score, point), [&](double by) { return check.at_score(by); }, "score",
      tally);
  for (const ScalarGradient& scalar : gradients.scalars) {
    check.compare(
        value_at(scalar.gradient, point),
        [&](double by) { return check.at_scalar(scalar.slot, by); },
        "scalar " + std::to_string(scalar.slot), tally);
  }
  // Several loads may read one element: an engine adds them up there.
  std::map<std::pair<std::uint32_t, std::size_t>, Derived> elements;
  for (const LoadGradient& load : gradients.loads) {
    const bool movable = point.tensors[load.load->slot()].dtype == DType::F32;
    if (!movable) continue;  // 16-bit elements are too coarse for differences
    const std::pair place(load.load->slot(), element_of(*load.load, point));
    const Derived part = value_at(load.gradient, point);
    elements[place].value += part.value;
    elements[place].noise += part.noise;
  }
  for (const auto& [place, gradient] : elements) {
    const auto [slot, element] = place;
    check.compare(
        gradient, [&](double by) { return check.at_element(place.first, place.second, by); },
        "tensor " + std::to_string(slot) + " at " + std::to_string(element), tally);
  }
}

void run(std::uint64_t formulas, std::uint32_t size, const std::function<Expr(const Expr&)>& of) {
  const std::uint64_t seed = test_seed();
  Tally tally;
  for (std::uint64_t i = 0; i < cases(formulas); ++i) {
    Random random(seed, i);
    const Expr formula = of(build(draw(random, {.size = 2 + random.below(size), .smooth = true})));
    SCOPED_TRACE(seed_text(seed, i) + "\n" + print(formula, random_declarations()));
    for (int j = 0; j < 3; ++j) {
      RandomCaptured captured(random, Values::Tame);
      const Point<double> point = captured.point<double>(random);
      if (clamp_bounds_meet(formula, point)) continue;
      check_formula(formula, captured, point, tally);
      if (testing::Test::HasFailure()) return;
    }
  }
  std::cout << "compared " << tally.compared << " derivatives, skipped " << tally.skipped
            << ", singular " << tally.singular << "\n";
  EXPECT_LT(50 * tally.singular, tally.compared);
  EXPECT_GT(tally.compared, 2 * tally.skipped) << "too few points were smooth enough to compare";
}

TEST(DiffRandom, FirstDerivatives) {
  run(8000, 16, [](const Expr& formula) { return formula; });
}

TEST(DiffRandom, SecondDerivatives) {
  run(3000, 8, [](const Expr& formula) { return differentiate(formula).score; });
}

TEST(DiffRandom, SecondDerivativesOfSimplified) {
  run(2000, 8, [](const Expr& formula) { return simplify(differentiate(formula).score); });
}

}  // namespace
}  // namespace fovea::test
