// Tangents against central differences of forward and backward in double, over random small
// problems with features combined; and the symmetry of second derivatives, which front ends rely
// on.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

// A direction in which everything that has a gradient moves.
struct Direction {
  Direction(const Example& example, std::uint64_t seed) : random(seed) {
    const std::array<const Array*, 3> of{&example.q, &example.k, &example.v};
    for (std::size_t i = 0; i < of.size(); ++i) {
      const Problem& p = example.problem;
      const Strides s = dense_strides(p.layout, p.sizes, named_tensors()[i]);
      inputs[i] = Array(of[i]->dtype, of[i]->extents, {s.b, s.h, s.s, s.d});
      inputs[i].fill_normal(random);
    }
    sink = Array::dense(example.sink.dtype, example.sink.extents);
    sink.fill_normal(random);
    for (const CapturedArrays& tensor : example.tensors) {
      tensors.push_back(Array::dense(tensor.value.dtype, tensor.value.extents));
      if (ir::loaded_type(tensor.value.dtype) == ir::Type::F32) tensors.back().fill_normal(random);
      ir::TensorView view{tensors.back().data(), tensors.back().dtype,
                          static_cast<int>(tensors.back().extents.size())};
      std::ranges::copy(tensors.back().extents, view.extent.begin());
      std::ranges::copy(tensors.back().strides, view.stride.begin());
      views.push_back(view);
    }
    for (const ir::ScalarDecl& scalar : example.problem.program.scalars()) {
      scalars.push_back({{scalar.type == ir::Type::F32 ? 0.5f : 0.0f, 0}, nullptr});
    }
  }

  std::mt19937_64 random;
  std::array<Array, 3> inputs;
  Array sink;
  std::vector<Array> tensors;
  std::vector<ir::TensorView> views;
  std::vector<PerCall<ir::ScalarValue>> scalars;
};

void add(Array& to, const Array& direction, double step) {
  for (std::size_t i = 0; i < to.count(); ++i) to.put(i, to.number(i) + step * direction.number(i));
}

void move(Example& example, const Direction& direction, double step) {
  add(example.q, direction.inputs[0], step);
  add(example.k, direction.inputs[1], step);
  add(example.v, direction.inputs[2], step);
  add(example.sink, direction.sink, step);
  for (std::size_t slot = 0; slot < example.tensors.size(); ++slot) {
    Array& tensor = example.tensors[slot].value;
    if (ir::loaded_type(tensor.dtype) == ir::Type::F32) {
      add(tensor, direction.tensors[slot], step);
    }
  }
  for (std::size_t slot = 0; slot < example.scalars.size(); ++slot) {
    example.scalars[slot].f += static_cast<float>(step) * direction.scalars[slot].value.f;
  }
}

using Numbers = std::vector<double>;
void append(Numbers& to, const Array& array) {
  const Numbers numbers = array.numbers();
  to.insert(to.end(), numbers.begin(), numbers.end());
}

// Of everything that the direction moves, in its order.
Numbers gradients_of(const Example& example) {
  Numbers out;
  for (const Array* array : {&example.grad_q, &example.grad_k, &example.grad_v})
    append(out, *array);
  if (example.problem.want_sink) append(out, example.grad_sink);
  for (std::size_t slot = 0; slot < example.tensors.size(); ++slot) {
    if (example.problem.want_tensors[slot]) append(out, example.tensors[slot].gradient);
  }
  for (std::size_t slot = 0; slot < example.scalars.size(); ++slot) {
    if (example.problem.want_scalars[slot]) append(out, example.scalar_gradients[slot]);
  }
  return out;
}

Numbers numbers_of(const Example& example, const Direction& direction) {
  Numbers out;
  for (const Array& array : direction.inputs) append(out, array);
  if (example.problem.want_sink) append(out, direction.sink);
  for (std::size_t slot = 0; slot < example.tensors.size(); ++slot) {
    if (example.problem.want_tensors[slot]) append(out, direction.tensors[slot]);
  }
  for (std::size_t slot = 0; slot < example.scalars.size(); ++slot) {
    if (example.problem.want_scalars[slot]) {
      out.push_back(static_cast<double>(direction.scalars[slot].value.f));
    }
  }
  return out;
}

Numbers moved(Example& example, const Direction& direction, double step) {
  move(example, direction, step);
  example.forward_and_backward();
  move(example, direction, -step);
  Numbers out = example.o.numbers();
  append(out, example.lse);
  const Numbers gradients = gradients_of(example);
  out.insert(out.end(), gradients.begin(), gradients.end());
  return out;
}

// Steps h and h / 2 cancel to the fourth order.
Numbers differences(Example& example, const Direction& direction) {
  const double h = 1.0 / 2048;
  const Numbers a = moved(example, direction, h), b = moved(example, direction, -h);
  const Numbers c = moved(example, direction, h / 2), d = moved(example, direction, -h / 2);
  Numbers out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double coarse = (a[i] - b[i]) / (2 * h), fine = (c[i] - d[i]) / h;
    out[i] = std::isfinite(a[i]) ? (4 * fine - coarse) / 3 : 0;
  }
  return out;
}

// O', lse', then the changes of gradients. o and lse must be those of the example's point.
Numbers tangent(Example& example, const Direction& direction) {
  example.forward();
  std::vector<float> literals;
  const std::unique_ptr<Plan> plan = example.plan(fovea::Direction::Tangent, literals);
  GuardedBytes workspace(plan->workspace_bytes(example.problem.sizes));
  const Problem& p = example.problem;
  const Strides s = dense_strides(p.layout, p.sizes, named_tensors()[3]);
  Array o(example.o.dtype, example.o.extents, {s.b, s.h, s.s, s.d}), lse = example.lse;
  o.memory.poison(), lse.memory.poison();
  Bindings call = example.bindings();
  call.tangent_q = direction.inputs[0].data(), call.tangent_k = direction.inputs[1].data();
  call.tangent_v = direction.inputs[2].data(), call.tangent_sink = direction.sink.data();
  call.tensor_tangents = direction.views, call.scalar_tangents = direction.scalars;
  call.tangent_o = o.data(), call.tangent_lse = lse.data();
  call.literals = literals;
  call.workspace = workspace.data(), call.workspace_bytes = workspace.size();
  plan->run(call);
  EXPECT_TRUE(workspace.zones_intact() && o.memory.zones_intact() && lse.memory.zones_intact());
  Numbers out = o.numbers();
  append(out, lse);
  const Numbers gradients = gradients_of(example);
  out.insert(out.end(), gradients.begin(), gradients.end());
  return out;
}

bool is_derived(const Problem& problem) { return !problem.program.bprop(); }

TEST(Tangent, FollowsDifferencesOfForwardAndBackward) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Example example = random_example(seed);
    if (!is_derived(example.problem)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(example.problem));
    const Direction direction(example, seed + 1000);
    const Numbers expected = differences(example, direction);
    const Numbers got = tangent(example, direction);
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 2e-6 * std::max(1.0, std::fabs(expected[i]))) << i;
    }
  }
}

TEST(Tangent, SecondDerivativesAreSymmetric) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Example example = random_example(seed);
    if (!is_derived(example.problem)) continue;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + describe(example.problem));
    const Direction a(example, seed + 1), b(example, seed + 2);
    const std::size_t outputs = example.o.count() + example.lse.count();
    const auto along = [&](const Direction& one, const Direction& other) {
      const Numbers change = tangent(example, one), by = numbers_of(example, other);
      double sum = 0;
      for (std::size_t i = 0; i < by.size(); ++i) sum += change[outputs + i] * by[i];
      return sum;
    };
    const double first = along(a, b), second = along(b, a);
    EXPECT_NEAR(first, second, 1e-9 * std::max(1.0, std::fabs(first)));
  }
}

// One row of scores, not all of them: linear in the length.
TEST(Tangent, WorkspaceIsLinearInTheLength) {
  std::vector<float> literals;
  const auto bytes = [&](std::int64_t length) {
    Problem problem = make_problem(small_sizes(length, length), R"(mod="score*score")");
    problem.want_tensors.clear(), problem.want_scalars.clear();
    const Baking baking = reference_engine().bake(problem, Device{});
    Problem baked = baking.baked.problem;
    baked.direction = fovea::Direction::Tangent;
    const Judged judged = reference_engine().judge({baked}, Device{});
    return reference_engine().compile({baked}, judged, Device{})->workspace_bytes(problem.sizes);
  };
  EXPECT_LT(bytes(1 << 16), 17 * bytes(1 << 12));
}

TEST(Tangent, RefusesADerivativeByHand) {
  Problem problem = make_problem(small_sizes(2, 2), R"(mod="2 * score" bprop="2 * grad")");
  problem.direction = fovea::Direction::Tangent;
  const Baking baking = reference_engine().bake(problem, Device{});
  const Judged judged = reference_engine().judge(baking.baked, Device{});
  ASSERT_EQ(judged.answer, Answer::No);
  EXPECT_EQ(judged.reasons.front().code, "tangent_of_bprop");
}

// The draw is wide enough: each feature is met, and met with gradients that are not all zero.
TEST(RandomExample, CoversEveryFeature) {
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
