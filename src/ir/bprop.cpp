#include "ir/bprop.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"

namespace fovea::ir {
namespace {

constexpr int small_size = 6;                 // of B, H, Sq, Skv at a random point
constexpr std::int64_t most_elements = 4096;  // of one captured tensor

// Captured tensors with random contents. A tensor larger than the bound repeats itself along its
// first dimensions (stride 0), so that any declared extent can be drawn.
class RandomCaptured {
 public:
  RandomCaptured(const Declarations& declarations, std::mt19937_64& random)
      : declarations_(declarations), random_(random) {
    for (const TensorDecl& tensor : declarations.tensors) allocate(tensor);
    scalars_.resize(declarations.scalars.size());
  }

  void draw() {
    for (std::size_t slot = 0; slot < views_.size(); ++slot) fill(slot);
    std::uniform_real_distribution<float> positive(0.5f, 3.0f);
    for (std::size_t slot = 0; slot < scalars_.size(); ++slot) {
      const auto& value = declarations_.scalars[slot].value;
      const float drawn =
          value ? static_cast<float>(*value) * positive(random_) : positive(random_);
      scalars_[slot] = {drawn, arith::to_int(drawn)};
    }
  }

  std::span<const TensorView> tensors() const { return views_; }
  std::span<const ScalarValue> scalars() const { return scalars_; }

 private:
  // Elements are kept as f32, i32 or bool whatever the declared storage: loads give those types.
  void allocate(const TensorDecl& tensor) {
    TensorView view;
    const Type type = loaded_type(tensor.dtype);
    view.dtype = type == Type::F32 ? DType::F32 : type == Type::I32 ? DType::I32 : DType::Bool;
    view.rank = static_cast<int>(tensor.extents.size());
    std::int64_t elements = 1;
    for (std::size_t i = tensor.extents.size(); i-- > 0;) {
      const Extent& extent = tensor.extents[i];
      view.extent[i] = extent.kind == Extent::Kind::Number ? extent.number : small_size;
      const bool fits = view.extent[i] <= most_elements / std::max<std::int64_t>(elements, 1);
      view.stride[i] = fits ? elements : 0;
      if (fits) elements *= view.extent[i];
    }
    storage_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(elements, 1)));
    view.data = storage_.back().data();
    views_.push_back(view);
  }

  void fill(std::size_t slot) {
    std::normal_distribution<float> normal;
    for (std::uint32_t& word : storage_[slot]) {
      switch (views_[slot].dtype) {
        case DType::F32: word = std::bit_cast<std::uint32_t>(normal(random_)); break;
        case DType::I32: word = static_cast<std::uint32_t>(random_() % small_size); break;
        default: word = (random_() & 1) != 0 ? 0x01010101u : 0; break;  // four equal bools
      }
    }
  }

  const Declarations& declarations_;
  std::mt19937_64& random_;
  std::vector<std::vector<std::uint32_t>> storage_;
  std::vector<TensorView> views_;
  std::vector<ScalarValue> scalars_;
};

double relative_error(double hand, double derived) {
  if (std::isnan(hand) && std::isnan(derived)) return 0;
  if (hand == derived) return 0;  // also infinities
  const double error = std::fabs(hand - derived) / std::max(1.0, std::fabs(derived));
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

std::string describe(const Point<double>& p, const Declarations& declarations) {
  std::ostringstream out;
  out.precision(9);
  out << "score=" << p.score << " grad=" << p.grad << " b=" << p.b << " h=" << p.h << " q=" << p.q
      << " k=" << p.k;
  for (std::size_t slot = 0; slot < declarations.scalars.size(); ++slot) {
    const ScalarDecl& scalar = declarations.scalars[slot];
    out << ' ' << scalar.name << '=';
    if (scalar.type == Type::F32) {
      out << p.scalars[slot].f;
    } else {
      out << p.scalars[slot].i;
    }
  }
  return out.str();
}

}  // namespace

BpropCheck check_bprop(const Program& program, std::uint64_t seed, int points) {
  if (!program.bprop()) throw InvalidArgument("check_bprop: the program has no bprop formula");
  const Expr derived = differentiate(program.mod(), leaf(Op::Grad)).score;
  const Expr roots[] = {program.bprop(), derived};
  Evaluator<double> evaluator(roots);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 3);
  std::uniform_int_distribution<std::int32_t> position(0, small_size - 1);
  RandomCaptured captured(program.declarations(), random);

  BpropCheck check;
  check.seed = seed;
  check.points = points;
  for (int i = 0; i < points; ++i) {
    captured.draw();
    Point<double> point;
    point.score = normal(random);
    point.grad = normal(random);
    point.b = position(random), point.h = position(random);
    point.q = position(random), point.k = position(random);
    point.B = point.H = point.Hkv = point.Sq = point.Skv = small_size;
    point.scalars = captured.scalars();
    point.tensors = captured.tensors();
    evaluator(point);
    const double hand = evaluator.value(0).f, right = evaluator.value(1).f;
    const double error = relative_error(hand, right);
    if (error < check.worst_error || (i > 0 && error == check.worst_error)) continue;
    check.worst_error = error;
    check.hand = hand;
    check.derived = right;
    check.worst_point = describe(point, program.declarations());
  }
  return check;
}

}  // namespace fovea::ir
