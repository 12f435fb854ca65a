// What people write, and its derivatives, rendered for 16-bit and for f32 tensors and compiled by
// the host's compiler: against ir/eval in double, scores of any size and infinities among them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "engines/jit/render.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/lift.h"
#include "ir/parse.h"
#include "ir/simplify.h"
#include "tests/engines/jit/rendered_code.h"
#include "tests/ir/random.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr const char* usual_formulas[] = {
    "mod=\"softcap(30)\"",
    "mod=\"softcap(-3)\"",
    "mod=\"softcap(0.0001)\"",
    "mod=\"softcap(1e12)\"",
    "mod=\"tanh(score / 1e-42)\"",
    "mod=\"tanh(score / cap[q]) * cap[q]\" tensor=\"cap:f32[Sq]\"",
    "mod=\"tanh(score) + tanh(score / 5) * s\" scalar=s=2",
    "mod=\"alibi\"",
    "mod=\"slope[h] * (q - k) + score\" tensor=\"slope:f32[H]\"",
    "mod=\"score - slope[q] * f32(2 * q + 5 - k - k)\" tensor=\"slope:f32[Sq]\"",
    "mod=\"score - 0.1 * abs(q - k)\"",
    "mod=\"softcap(20) + slope[h] * (k - q)\" tensor=\"slope:f32[H]\"",
    "mod=\"q >= k ? score : -inf\"",
    "mod=\"q == k ? score * 3 : s\" scalar=s=2",
    "mod=\"k < q ? slope[k] : score\" tensor=\"slope:f32[Skv]\"",
    "mod=\"score + bias[h, q, k]\" tensor=\"bias:f32[H,Sq,Skv]\"",
    "mod=\"score + table[h, clamp(k - q + 20, 0, 40)]\" tensor=\"table:f32[H,41]\"",
    "mod=\"score * slope[k] - slope[q] * score + 0.5\" tensor=\"slope:f32[Sq]\"",
    "mod=\"score * sigmoid(1.702 * score) / 3\"",
    "mod=\"0.5 * score * (1 + erf(score / 1.41421356))\"",
    "mod=\"score - strength[h] * tanh(abs(q - k) / 32)\" tensor=\"strength:f32[H]\"",
    "mod=\"score - log1p(0.3 * abs(q - k))\"",
    "mod=\"score / (1 + exp(-score)) - softplus(score) + 3 / (2 + cos(score))\"",
    "mod=\"min(score, 4) + max(score, -2) * relu\" scalar=relu=0.5",
};

struct Case {
  Program program;
  jit::RenderOptions options;
  jit::Rendered rendered;
  std::vector<Expr> roots;
  std::vector<ScalarValue> scalars;
  std::vector<TensorView> tensors;
};

Case make_case(const char* text, bool precise, std::span<const float> data) {
  Case out;
  const Lifted lifted = lift_literals(parse_program(text));
  out.program = lifted.program;
  for (const ScalarDecl& scalar : out.program.scalars()) {
    out.scalars.push_back({static_cast<float>(scalar.value.value_or(0)), 0});
  }
  for (std::size_t i = 0; i < lifted.literals.size(); ++i) {
    out.scalars[out.scalars.size() - lifted.literals.size() + i].f = lifted.literals[i];
  }
  for (const TensorDecl& tensor : out.program.tensors()) {
    constexpr std::int64_t extents[] = {3, 41, 150};
    const std::size_t rank = tensor.extents.size();
    out.tensors.push_back(
        TensorView::dense(data.data(), DType::F32, std::span(extents).last(rank)));
  }
  const Gradients gradients = differentiate(out.program.mod(), leaf(Op::Grad));
  out.roots = {out.program.mod(), jit::score_gradient(out.program)};
  for (const LoadGradient& load : gradients.loads) out.roots.push_back(simplify(load.gradient));
  for (const ScalarGradient& s : gradients.scalars) out.roots.push_back(simplify(s.gradient));
  for (std::size_t i = 2; i < out.roots.size(); ++i) {
    out.options.extra.push_back({"root" + std::to_string(i), out.roots[i]});
  }
  out.options.precise = precise;
  out.options.gradient = true;
  Problem problem;
  problem.program = out.program;
  out.rendered = jit::render(problem, out.options);
  return out;
}

double largest(std::span<const Cell<double>> values) {
  double most = 0;
  for (const Cell<double>& value : values) {
    if (std::isfinite(value.f)) most = std::max(most, std::fabs(value.f));
  }
  return most;
}

void check(const RenderedCode& code, std::size_t number, const Case& one, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Evaluator<double> twice(one.roots);
  Evaluator<float> single(one.roots);
  std::vector<Cell<double>> values(twice.value_count());
  const std::vector<long long> words =
      pack_words(one.rendered, one.program, one.tensors, one.scalars, false);
  for (int i = 0; i < 400; ++i) {
    Point<float> p;
    p.score = random.normal() * (random.chance(50) ? 20 : 0.01f);
    if (random.chance(4)) p.score = random.chance(50) ? infinity : -infinity;
    p.grad = random.normal();
    const std::int32_t far = random.chance(20) ? 65500 : 0;
    p.h = 1, p.H = 8, p.q = far + random.between(0, 40), p.k = far + random.between(0, 149);
    p.scalars = one.scalars, p.tensors = one.tensors;
    const Point<double> exact{p.score, p.grad, p.b,  p.h,   p.q,       p.k,      p.B,
                              p.H,     p.Hkv,  p.Sq, p.Skv, p.scalars, p.tensors};
    const Answer answer = code.ask(number, probe_at(p, words));
    twice.run(exact, values);
    single(p);
    for (std::size_t root = 0; root < one.roots.size(); ++root) {
      const double wanted = twice.value(values, root).f;
      const double got = std::bit_cast<float>(root == 0   ? answer.score
                                              : root == 1 ? answer.gradient
                                                          : answer.extra[root - 2]);
      if (got == static_cast<double>(static_cast<float>(wanted))) continue;
      if (std::isnan(wanted)) continue;  // inf * 0: what is nearly 0 here gives inf
      if (std::isnan(got) && std::isnan(single.value(root).f)) continue;  // 0 * inf in f32
      const double within = (one.options.precise ? 1e-6 : 1e-5) * (root == 0 ? 1 : 5);
      ASSERT_NEAR(got, wanted, within * std::max(std::fabs(wanted), std::min(largest(values), 1e6)))
          << "root " << root << ", score " << p.score << ", q " << p.q << ", k " << p.k << '\n'
          << one.rendered.text;
    }
  }
}

TEST(Render, UsualFormulasAndTheirDerivatives) {
  Random random(test_seed());
  std::vector<float> data(3 * 41 * 150);
  for (float& x : data) x = random.normal() + 3;
  RenderedCode code;
  std::vector<Case> all;
  for (const char* text : usual_formulas) {
    for (const bool precise : {false, true}) {
      all.push_back(make_case(text, precise, data));
      code.add(all.back().rendered, all.back().options);
    }
  }
  ASSERT_EQ(code.build(), "");
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(usual_formulas[i / 2]);
    check(code, i, all[i], random);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fovea::test
