// An adjoint is a value under a guard: it counts if the guard holds and is 0 otherwise. A select
// passes its adjoint to each branch under the branch's condition, and products with local
// derivatives stay inside the guard, so that a NaN or Inf of the branch that is not taken never
// becomes 0 * NaN.
#include "ir/diff.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <random>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "ir/build.h"
#include "ir/eval.h"
#include "ir/simplify.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

Expr number(float value) { return constant(value); }
Expr ln2() { return literal(std::numbers::ln2_v<float>, std::numbers::ln2); }
Expr two_over_sqrt_pi() {
  return literal(2 * std::numbers::inv_sqrtpi_v<float>, 2 * std::numbers::inv_sqrtpi);
}

// `value` if `guard` (a bool expression) holds.
struct Guarded {
  Expr guard;
  Expr value;

  Expr materialize() const { return select(guard, value, number(0)); }
};

// The sum of two guarded values, guarded by either.
Guarded add(const Guarded& a, const Guarded& b) {
  if (a.guard == b.guard) return {a.guard, a.value + b.value};
  if (a.guard == not_(b.guard)) return {constant(true), select(a.guard, a.value, b.value)};
  return {or_(a.guard, b.guard), a.materialize() + b.materialize()};
}

// g && c and g && !c together are g: the two branches of one select meet again.
std::optional<Guarded> join(const Guarded& a, const Guarded& b) {
  const auto split = [](const Expr& guard) {
    return guard->op() == Op::And ? std::vector<Expr>(guard->args().begin(), guard->args().end())
                                  : std::vector<Expr>{guard};
  };
  for (const Expr& condition : split(a.guard)) {
    const Expr opposite = not_(condition);
    for (const Expr& other : split(b.guard)) {
      if (other != opposite) continue;
      const auto rest = [](const Expr& guard, const Expr& without) {
        if (guard == without) return constant(true);
        return guard->arg(0) == without ? guard->arg(1) : guard->arg(0);
      };
      const Expr outer = rest(a.guard, condition);
      if (outer != rest(b.guard, opposite)) continue;
      return Guarded{outer, select(condition, a.value, b.value)};
    }
  }
  return std::nullopt;
}

// Beyond this many different guards at one node, pairs are no longer searched for.
constexpr std::size_t most_guards_joined = 16;

void join_pairs(std::vector<Guarded>& terms) {
  for (std::size_t i = 0; i < terms.size(); ++i) {
    for (std::size_t j = i + 1; j < terms.size(); ++j) {
      const auto both = join(terms[i], terms[j]);
      if (!both) continue;
      terms[i] = *both;
      terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(j));
      return join_pairs(terms);
    }
  }
}

Guarded sum(const std::vector<Guarded>& arriving) {
  std::vector<Guarded> terms;  // one per guard
  for (const Guarded& term : arriving) {
    const auto at = std::ranges::find(terms, term.guard, &Guarded::guard);
    if (at == terms.end()) {
      terms.push_back(term);
    } else {
      at->value = at->value + term.value;
    }
  }
  if (terms.size() <= most_guards_joined) join_pairs(terms);
  Guarded total = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) total = add(total, terms[i]);
  return total;
}

// What one operand of a node receives: `value`, if `guard` holds.
struct Share {
  std::size_t operand;
  Expr value;
  Expr guard = constant(true);
};

// The shares of a node's operands in its adjoint g. x, y: operands; r: the node itself.
std::vector<Share> shares(const Node& node, const Expr& g) {
  const Expr r = Expr::share(&node);
  const auto operand = [&](std::size_t i) { return i < node.args().size() ? node.arg(i) : Expr{}; };
  const Expr x = operand(0), y = operand(1), z = operand(2);
  switch (node.op()) {
    case Op::AddF: return {{0, g}, {1, g}};
    case Op::SubF: return {{0, g}, {1, -g}};
    case Op::MulF: return {{0, g * y}, {1, g * x}};
    case Op::DivF: return {{0, g / y}, {1, -(g * r) / y}};
    case Op::NegF: return {{0, -g}};
    case Op::AbsF: return {{0, g * make(Op::SignF, {x})}};
    case Op::MinF:  // ties share, as in PyTorch
      return {{0, select(equal(x, y), g * number(0.5f), g), not_(y < x)},
              {1, select(equal(x, y), g * number(0.5f), g), not_(x < y)}};
    case Op::MaxF:
      return {{0, select(equal(x, y), g * number(0.5f), g), not_(x < y)},
              {1, select(equal(x, y), g * number(0.5f), g), not_(y < x)}};
    case Op::ClampF:  // both bounds belong to x
      return {{0, g, and_(y <= x, x <= z)}, {1, g, and_(y < z, x < y)}, {2, g, or_(z < x, z < y)}};
    case Op::Exp: return {{0, g * r}};
    case Op::Exp2: return {{0, g * r * ln2()}};
    case Op::Expm1: return {{0, g * (r + number(1))}};
    case Op::Log: return {{0, g / x}};
    case Op::Log2: return {{0, g / (x * ln2())}};
    case Op::Log1p: return {{0, g / (x + number(1))}};
    case Op::Sqrt: return {{0, g / (r + r)}};
    case Op::Rsqrt: return {{0, g * number(-0.5f) * (r * r * r)}};
    case Op::Pow: {
      const Expr by_x = g * (y * make(Op::Pow, {x, y - number(1)}));
      const Expr zero_base = and_(equal(x, number(0)), number(0) <= y);
      return {{0, by_x, not_(equal(y, number(0)))},
              {1, g * r * make(Op::Log, {x}), not_(zero_base)}};
    }
    case Op::Tanh: return {{0, g * (number(1) - r * r)}};
    case Op::Sigmoid: return {{0, g * (r * (number(1) - r))}};
    case Op::Softplus: return {{0, g * make(Op::Sigmoid, {x})}};
    case Op::Erf: return {{0, g * (make(Op::Exp, {-(x * x)}) * two_over_sqrt_pi())}};
    case Op::Sin: return {{0, g * make(Op::Cos, {x})}};
    case Op::Cos: return {{0, -(g * make(Op::Sin, {x}))}};
    case Op::Tan: return {{0, g * (r * r + number(1))}};
    case Op::SelectF: return {{1, g, x}, {2, g, not_(x)}};
    // Flat almost everywhere, or not f32: nothing flows on.
    case Op::SignF:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round:
    case Op::AddI:
    case Op::SubI:
    case Op::MulI:
    case Op::FloorDiv:
    case Op::FloorMod:
    case Op::TruncDiv:
    case Op::TruncRem:
    case Op::NegI:
    case Op::AbsI:
    case Op::MinI:
    case Op::MaxI:
    case Op::ClampI:
    case Op::LtF:
    case Op::LtI:
    case Op::LeF:
    case Op::LeI:
    case Op::EqF:
    case Op::EqI:
    case Op::EqB:
    case Op::NeF:
    case Op::NeI:
    case Op::NeB:
    case Op::And:
    case Op::Or:
    case Op::Not:
    case Op::SelectI:
    case Op::SelectB:
    case Op::BitAnd:
    case Op::BitOr:
    case Op::BitXor:
    case Op::BitNot:
    case Op::Shl:
    case Op::Shr:
    case Op::FloatOfInt:
    case Op::FloatOfBool:
    case Op::IntOfFloat:
    case Op::IntOfBool:
    case Op::BoolOfFloat:
    case Op::BoolOfInt:
    // Leaves and loads are where adjoints arrive.
    FOVEA_LEAF_CASES:
      return {};
  }
  return {};
}

bool is_input(Op op) {
  return op == Op::Score || op == Op::Grad || op == Op::ScalarF || op == Op::LoadF;
}

// Which nodes lead to an f32 input by f32 operands: the others need no adjoint.
std::vector<bool> live_nodes_of(const Order& order) {
  std::vector<bool> live(order.nodes.size(), false);
  for (std::size_t i = 0; i < order.nodes.size(); ++i) {
    const Node& node = *order.nodes[i];
    live[i] = is_input(node.op());
    if (node.type() != Type::F32 || is_input(node.op())) continue;  // an index has no gradient
    for (const Expr& arg : node.args()) {
      live[i] = live[i] || (arg->type() == Type::F32 && live[order.number.find(arg.get())]);
    }
  }
  return live;
}

}  // namespace

Gradients differentiate(const Expr& formula, const Expr& seed) {
  const Order order = operands_first({&formula, 1});
  const std::vector<bool> live = live_nodes_of(order);
  std::vector<std::vector<Guarded>> arriving(order.nodes.size());
  if (live.back()) arriving.back().push_back({constant(true), seed});

  Gradients out{number(0), {}, {}, number(0)};
  for (std::size_t i = order.nodes.size(); i-- > 0;) {
    if (arriving[i].empty()) continue;
    const Node& node = *order.nodes[i];
    const Guarded adjoint = sum(arriving[i]);
    arriving[i].clear();
    if (is_input(node.op())) {
      const Expr gradient = adjoint.materialize();
      if (node.op() == Op::Score) out.score = gradient;
      if (node.op() == Op::Grad) out.grad = gradient;
      if (node.op() == Op::ScalarF) out.scalars.push_back({node.slot(), gradient});
      if (node.op() == Op::LoadF) out.loads.push_back({Expr::share(&node), gradient});
      continue;
    }
    for (const Share& share : shares(node, adjoint.value)) {
      const std::uint32_t to = order.number.find(node.arg(share.operand).get());
      if (live[to]) arriving[to].push_back({and_(adjoint.guard, share.guard), share.value});
    }
  }
  std::ranges::reverse(out.loads);  // nodes were met last use first
  std::ranges::reverse(out.scalars);
  return out;
}

Gradients differentiate(const Expr& formula) { return differentiate(formula, number(1)); }

namespace {

// c * tanh(x / c): its c and its u = x / c. Null if the node is something else.
struct SoftCap {
  Expr c, u;
};
SoftCap as_soft_cap(const Node& node) {
  if (node.op() != Op::MulF) return {};
  for (std::size_t i = 0; i < 2; ++i) {
    const Expr& c = node.arg(i);
    const Expr& other = node.arg(1 - i);
    if (other->op() != Op::Tanh || other->arg(0)->op() != Op::DivF) continue;
    if (other->arg(0)->arg(1) == c) return {c, other->arg(0)};
  }
  return {};
}

// The gradient by c of the soft cap alone, as differentiate() derives it. Null: c is no input.
Expr derived_by_cap(const Expr& soft_cap, const Expr& c) {
  const Gradients by = differentiate(soft_cap, leaf(Op::Grad));
  for (const LoadGradient& load : by.loads) {
    if (load.load == c) return simplify(load.gradient);
  }
  for (const ScalarGradient& scalar : by.scalars) {
    if (c->op() == Op::ScalarF && c->slot() == scalar.slot) {
      return simplify(scalar.gradient);
    }
  }
  return {};
}

// tanh(u) - u (1 - tanh(u)^2). Below 0.25 by its series, which is then 1e-7 off at most; above, the
// difference has lost less than four bits.
Expr stable_by_cap(const Expr& u) {
  constexpr std::array<float, 5> series{2.0f / 3, -8.0f / 15, 34.0f / 105, -496.0f / 2835,
                                        2764.0f / 31185};
  const Expr square = u * u;
  Expr sum = constant(series.back());
  for (std::size_t i = series.size() - 1; i-- > 0;) sum = sum * square + constant(series[i]);
  const Expr t = make(Op::Tanh, {u});
  const Expr difference = t - u * (constant(1.0f) - t * t);
  return select(square < constant(0.0625f), u * square * sum, difference);
}

}  // namespace

Expr stable_gradient(const Expr& mod, const Expr& gradient) {
  const Order order = operands_first({&mod, 1});
  for (const Node* node : order.nodes) {
    const SoftCap soft_cap = as_soft_cap(*node);
    if (!soft_cap.c) continue;
    const Expr derived = derived_by_cap(Expr::share(node), soft_cap.c);
    if (derived && derived == simplify(gradient)) {
      return leaf(Op::Grad) * stable_by_cap(soft_cap.u);
    }
  }
  return gradient;
}

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
