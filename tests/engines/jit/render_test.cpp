// Rendered formulas, compiled by the host's compiler, against ir/eval: bit for bit if they
// decide, within limits if they do not.
#include "engines/jit/render.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/print.h"
#include "ir/topology.h"
#include "tests/engines/jit/rendered_code.h"
#include "tests/ir/random_point.h"
#include "tests/ir/usual_formulas.h"

namespace fovea::test {
namespace {

using namespace ir;

Problem problem_with(Program program) {
  Problem problem;
  problem.direction = Direction::Backward;
  problem.program = std::move(program);
  return problem;
}

Cell<float> cell_of(Type type, unsigned bits) {
  switch (type) {
    case Type::F32: return Cell<float>::real(std::bit_cast<float>(bits));
    case Type::I32: return Cell<float>::integer(std::bit_cast<std::int32_t>(bits));
    case Type::Bool: break;
  }
  return Cell<float>::boolean(bits != 0);
}

// One random case: a program, what is rendered of it, and what it captures.
struct Case {
  Program program;
  jit::RenderOptions options;
  jit::Rendered rendered;
  std::vector<Expr> roots;  // keep, score, gradient, the extra ones
  std::vector<ScalarValue> scalars;
};

// Scalars of the program: those declared, then literals that were lifted.
std::vector<ScalarValue> with_literals(std::span<const ScalarValue> declared,
                                       std::span<const float> literals) {
  std::vector<ScalarValue> out(declared.begin(), declared.end());
  for (const float literal : literals) out.push_back({literal, 0});
  return out;
}

Case finish(Case out, const RandomCaptured& captured, bool lift) {
  Lifted lifted{out.program, {}};
  if (lift) lifted = lift_literals(out.program);
  out.program = lifted.program;
  out.scalars = with_literals(captured.scalars(), lifted.literals);
  out.options.gradient = true;
  out.rendered = jit::render(problem_with(out.program), out.options);
  out.roots = {out.program.mask(), out.program.mod(), jit::score_gradient(out.program)};
  for (const jit::ExtraRoot& root : out.options.extra) out.roots.push_back(root.value);
  return out;
}

// A case whose roots all decide something, so that all must be exact.
Case exact_case(Random& random, const RandomCaptured& captured) {
  const auto draw_one = [&](Type type, bool grad) {
    return build(draw(random, {.type = type, .size = random.below(24), .grad = grad}));
  };
  Case out;
  const Expr mod = draw_one(Type::F32, false), bprop = draw_one(Type::F32, true);
  const Expr mask =
      build(draw(random, {.type = Type::Bool, .size = random.below(24), .score = false}));
  out.program = Program::with_slots(random_declarations(), mod, mask, bprop);
  out.options.precise = random.chance(50);
  const auto add = [&](const Expr& value) {
    out.options.extra.push_back({"extra" + std::to_string(out.options.extra.size()), value});
  };
  add(decision(mod));
  add(decision(bprop));
  for (std::uint32_t i = random.below(3); i > 0; --i) {
    const Expr value = draw_one(random.chance(50) ? Type::F32 : Type::I32, true);
    add(value);
    add(decision(value));
  }
  return finish(std::move(out), captured, false);
}

// Tensors with other strides, and now and then with nothing in them.
std::vector<TensorView> varied_views(Random& random, const RandomCaptured& captured) {
  std::vector<TensorView> views(captured.tensors().begin(), captured.tensors().end());
  for (TensorView& view : views) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.rank); ++i) {
      if (random.chance(3)) view.extent[i] = 0;
      if (random.chance(10)) view.stride[i] = 0;
      if (random.chance(10) && view.extent[i] > 1) --view.extent[i];
    }
  }
  return views;
}

unsigned answer_bits(const ProbeAnswer& answer, std::size_t root) {
  return root == 0   ? answer.keep
         : root == 1 ? answer.score
         : root == 2 ? answer.gradient
                     : answer.extra[root - 3];
}

void check_exact(const RenderedCode& code, std::size_t number, const Case& one, Random& random) {
  const RandomCaptured captured(random, Values::Any);
  Evaluator<float> eval(one.roots);
  for (int i = 0; i < 60; ++i) {
    const std::vector<TensorView> views = varied_views(random, captured);
    Point<float> point = captured.point<float>(random);
    point.tensors = views;
    const std::vector<long long> words =
        pack_words(one.rendered, one.program, views, captured.scalars(), random.chance(50));
    const ProbeAnswer answer = code.ask(number, probe_at(point, words));
    eval(point);
    for (std::size_t root = 0; root < one.roots.size(); ++root) {
      const Type type = one.roots[root]->type();
      const Cell<float> got = cell_of(type, answer_bits(answer, root));
      ASSERT_TRUE(same_value(type, got, eval.value(root)))
          << "root " << root << ", " << point_text(point) << '\n'
          << value_text(type, got) << " but " << value_text(type, eval.value(root)) << '\n'
          << print(one.roots[root], random_declarations()) << '\n'
          << one.rendered.text;
    }
  }
}

// Compiles random cases that `make` draws, and checks each of them.
template <class Make, class Check>
void run_cases(Values values, const Make& make, const Check& check) {
  const std::uint64_t seed = test_seed();
  RenderedCode code;
  std::vector<Case> all;
  for (std::uint64_t i = 0; i < cases(160); ++i) {
    Random random(seed, i);
    const RandomCaptured captured(random, values);
    all.push_back(make(random, captured));
    code.add(all.back().rendered, all.back().options);
  }
  ASSERT_EQ(code.build(), "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(seed_text(seed, i));
    check(code, i, all[i], seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Render, WhatDecidesIsExact) {
  run_cases(Values::Any, exact_case,
            [](const RenderedCode& code, std::size_t i, const Case& one, std::uint64_t seed) {
              Random random(seed, 1000 + i);
              check_exact(code, i, one, random);
            });
}

// The largest number that occurs, which rounding errors are measured by.
double largest(std::span<const Cell<double>> values, bool finite = false) {
  double most = 0;
  for (const Cell<double>& value : values) {
    if (!finite || std::isfinite(value.f)) most = std::max(most, std::fabs(value.f));
  }
  return most;
}

// Whether an error of 1e-7 of an operand may become any error of the result: at infinite slopes,
// and at the ends of where a function is defined.
bool has_edges(const Expr& formula) {
  return std::ranges::any_of(operands_first({&formula, 1}).nodes, [](const Node* node) {
    switch (node->op()) {
      case Op::DivF:
      case Op::Log:
      case Op::Log2:
      case Op::Log1p:
      case Op::Sqrt:
      case Op::Rsqrt:
      case Op::Pow:
      case Op::Tan: return true;
      default: return false;
    }
  });
}

Case close_case(Random& random, const RandomCaptured& captured) {
  const auto draw_one = [&](bool grad) {
    return build(draw(random, {.size = random.below(10), .grad = grad, .smooth = true}));
  };
  Case out;
  out.program = Program::with_slots(random_declarations(), draw_one(false), constant(true), {});
  out.options.extra = {{"one", draw_one(true)}, {"two", draw_one(true)}};
  const auto edges = [](const jit::ExtraRoot& root) { return has_edges(root.value); };
  out.options.precise = random.chance(30) || has_edges(out.program.mod()) ||
                        std::ranges::any_of(out.options.extra, edges);
  return finish(std::move(out), captured, random.chance(50));
}

void check_close(const RenderedCode& code, std::size_t number, const Case& one, Random& random,
                 const RandomCaptured& captured) {
  Evaluator<float> single(one.roots);
  Evaluator<double> twice(one.roots);
  std::vector<Cell<double>> values(twice.value_count());
  const double limit = one.options.precise ? 1e-6 : 1e-5;
  for (int i = 0; i < 100; ++i) {
    Point<float> point = captured.point<float>(random);
    point.scalars = one.scalars;
    Point<double> exact{point.score, point.grad,  point.b,      point.h,   point.q,
                        point.k,     point.B,     point.H,      point.Hkv, point.Sq,
                        point.Skv,   one.scalars, point.tensors};
    const std::vector<long long> words =
        pack_words(one.rendered, one.program, point.tensors, one.scalars, random.chance(50));
    const ProbeAnswer answer = code.ask(number, probe_at(point, words));
    single(point);
    twice.run(exact, values);
    for (std::size_t root = 1; root < one.roots.size(); ++root) {
      const double wanted = twice.value(values, root).f;
      const double rounded = static_cast<double>(single.value(root).f);
      const double got = std::bit_cast<float>(answer_bits(answer, root));
      if (std::isnan(wanted) && std::isnan(got)) continue;
      if (std::isnan(wanted) || std::isnan(rounded) || std::fabs(wanted) > 1e37) continue;
      // If f32 itself is far off, so may we be.
      const double noise = std::fabs(rounded - wanted);
      if (noise > 1e-4 * std::fabs(wanted) + 1e-6) continue;
      ASSERT_NEAR(got, wanted, 200 * noise + limit * (std::fabs(wanted) + largest(values)))
          << "root " << root << ", f32 gives " << rounded << ", " << point_text(point) << '\n'
          << print(one.roots[root], one.program.declarations()) << '\n'
          << one.rendered.text;
    }
  }
}

TEST(Render, WhatDecidesNothingIsClose) {
  run_cases(Values::Tame, close_case,
            [](const RenderedCode& code, std::size_t i, const Case& one, std::uint64_t seed) {
              Random random(seed, i);
              const RandomCaptured captured(random, Values::Tame);  // the same numbers again
              check_close(code, i, one, random, captured);
            });
}

// Usual formulas and their derivatives, rendered for 16-bit and for f32 tensors: against ir/eval in
// double, scores of any size and infinities among them.
struct UsualCase {
  UsualCase(const char* text, bool precise) : formula(text) {
    for (std::size_t i = 2; i < formula.roots.size(); ++i) {
      options.extra.push_back({"root" + std::to_string(i), formula.roots[i]});
    }
    options.precise = precise;
    options.gradient = true;
    Problem problem;
    problem.program = formula.program;
    rendered = jit::render(problem, options);
  }
  UsualFormula formula;
  jit::RenderOptions options;
  jit::Rendered rendered;
};

void check_usual(const RenderedCode& code, std::size_t number, const UsualCase& one,
                 Random& random) {
  const std::vector<Expr>& roots = one.formula.roots;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Evaluator<double> twice(roots);
  Evaluator<float> single(roots);
  std::vector<Cell<double>> values(twice.value_count());
  const std::vector<long long> words = pack_words(one.rendered, one.formula.program,
                                                  one.formula.tensors, one.formula.scalars, false);
  for (int i = 0; i < 400; ++i) {
    Point<float> p;
    p.score = random.normal() * (random.chance(50) ? 20 : 0.01f);
    if (random.chance(4)) p.score = random.chance(50) ? infinity : -infinity;
    p.grad = random.normal();
    const std::int32_t far = random.chance(20) ? 65500 : 0;
    p.h = 1, p.H = 8, p.q = far + random.between(0, 40), p.k = far + random.between(0, 149);
    p.scalars = one.formula.scalars, p.tensors = one.formula.tensors;
    const Point<double> exact{p.score, p.grad, p.b,  p.h,   p.q,       p.k,      p.B,
                              p.H,     p.Hkv,  p.Sq, p.Skv, p.scalars, p.tensors};
    const ProbeAnswer answer = code.ask(number, probe_at(p, words));
    twice.run(exact, values);
    single(p);
    for (std::size_t root = 0; root < roots.size(); ++root) {
      const double wanted = twice.value(values, root).f;
      const double got = std::bit_cast<float>(root == 0   ? answer.score
                                              : root == 1 ? answer.gradient
                                                          : answer.extra[root - 2]);
      if (got == static_cast<double>(static_cast<float>(wanted))) continue;
      if (std::isnan(wanted)) continue;  // inf * 0: what is nearly 0 here gives inf
      if (std::isnan(got) && std::isnan(single.value(root).f)) continue;  // 0 * inf in f32
      const double within = (one.options.precise ? 1e-6 : 1e-5) * (root == 0 ? 1 : 5);
      ASSERT_NEAR(got, wanted,
                  within * std::max(std::fabs(wanted), std::min(largest(values, true), 1e6)))
          << "root " << root << ", score " << p.score << ", q " << p.q << ", k " << p.k << '\n'
          << one.rendered.text;
    }
  }
}

TEST(Render, UsualFormulasAndTheirDerivatives) {
  Random random(test_seed());
  RenderedCode code;
  std::vector<UsualCase> all;
  for (const char* text : usual_formulas) {
    for (const bool precise : {false, true}) {
      all.emplace_back(text, precise);
      code.add(all.back().rendered, all.back().options);
    }
  }
  ASSERT_EQ(code.build(), "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(usual_formulas[i / 2]);
    check_usual(code, i, all[i], random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fovea::test
