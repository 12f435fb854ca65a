// The graphs that formulas are lowered to, interpreted here step by step, must give what ir/eval
// gives; and what cuDNN cannot express must be refused with its reason.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "attention/problem_text.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/lower.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "tests/engines/cudnn/step_meaning.h"

namespace fovea::cudnn {
namespace {

// Of a line with both directions, its backward.
Baked baked_of(const std::string& words) {
  const auto parsed = parse_problem_line("dtype=bf16 d=64 " + words);
  return bake(parsed.backward ? *parsed.backward : *parsed.forward).baked;
}

struct Position {
  float score, grad;
  std::array<std::int32_t, 4> at;  // b, h, q, k
};

// A GraphSpec as cuDNN would run it, for formulas without captured tensors.
class Interpreter {
 public:
  Interpreter(const Lowered& lowered, const std::vector<float>& literals, const Position& p)
      : lowered_(lowered), literals_(literals), p_(p) {
    for (const GraphStep& step : lowered.spec.steps) values_.push_back(run(step));
  }
  double value(const Ref& ref) const {
    switch (ref.kind) {
      case Ref::Kind::Score: return p_.score;
      case Ref::Kind::Grad: return p_.grad;
      case Ref::Kind::Step: return values_[ref.index];
      case Ref::Kind::Constant: {
        const Constant& c = lowered_.spec.constants[ref.index];
        return c.type == Type::I32 ? c.whole : c.real;
      }
      case Ref::Kind::Tensor: return tensor(lowered_.spec.tensors[ref.index]);
    }
    return 0;
  }

 private:
  double tensor(const GraphTensor& t) const {
    if (t.role == TensorRole::Table)
      return lowered_.tables[t.slot].values[static_cast<std::size_t>(p_.at[1])];
    if (t.role == TensorRole::Scalar) return literals_[t.slot];
    if (t.role == TensorRole::OffsetB) return 0;
    if (t.role == TensorRole::Uniform) {
      std::vector<ir::ScalarValue> scalars;
      for (const float x : literals_) scalars.push_back({x, 0});
      ir::Point<double> point;
      point.scalars = scalars;
      const UniformFormula& uniform = lowered_.uniforms[t.slot];
      const auto result = ir::evaluate(uniform.formula, point);
      if (t.type == Type::I32) return result.i;
      return uniform.decides ? result.exact : static_cast<float>(result.f);
    }
    ADD_FAILURE() << "a tensor that is not expected here";
    return 0;
  }

  double run(const GraphStep& s) const {
    const auto x = [&](std::size_t i) { return value(s.operands[i]); };
    // The first operand has the shape of the score.
    const Ref::Kind first = s.operands[s.mode == Mode::Select ? 1 : 0].kind;
    EXPECT_TRUE(first != Ref::Kind::Tensor && first != Ref::Kind::Constant);
    if (s.mode == Mode::Index) return p_.at[static_cast<std::size_t>(s.axis)];
    return meaning(s.mode, x);
  }

  const Lowered& lowered_;
  const std::vector<float>& literals_;
  const Position& p_;
  std::vector<double> values_;
};

constexpr std::array formulas{
    "mod=\"20 * tanh(score / 20)\"",
    "mod=alibi",
    "mod=\"score + exp2(-8 * (h + 1) / H) * abs(q - k)\" mask=\"q // 5 == k // 5\"",
    "mod=\"1 - score\"",
    "mod=\"3 / (abs(score) + 1) - 0.5\"",
    "mod=\"q > k ? score * 2 : -score\"",
    "mod=\"(q % 3 == 1 || k % 4 == 2) && h != 1 ? score : 0.25 * score\"",
    "mod=\"sigmoid(score) * softplus(score) + erf(score)\"",
    "mod=\"score * f32(q >= k) + f32(min(q, k) - max(h, 2))\"",
    "mod=\"clamp(score, -0.5, 0.5) + round(0.37 * q)\"",
    "mod=\"sqrt(score * score + 1) + log2(2 + abs(score)) + expm1(0.1 * score)\"",
    "mod=\"score + sign(score) + sin(0.1 * q) - cos(0.2 * k)\"",
    "mod=\"score + f32(b)\"",
    "mod=\"score\" mask=\"q > k + 2 && !(k == 3 || q == 7) != (q < 9)\"",
    "mod=\"score + f32(select(q < k, q * 2, k - 5))\"",
    "mod=\"score * (2.5 * 1.5 - 0.5)\"",
    "mod=\"q > k + 3 ? 0.01 * (q - k) : tanh(score)\"",
    "mod=\"!(q > k || h == 1) && k % 3 != 0 ? 1.5 : 2 * score\"",
    "mod=\"(q > k) == (h < 2 || k == 3) ? 0.5 : sin(score)\"",
    "mod=\"score < 0.3 ? 2.5 : score * score\"",
    "mod=\"(score <= 0.1 || q == k) != (k > 5) ? f32(q) : 0.5 * score\"",
    "mod=\"(q > 9 ? k > 4 : h == 2) ? 7.5 : tanh(score)\"",
    "mod=\"0.1 * (q - k) - tanh(score)\"",
    "mod=\"0.1 * (q - k) / (2 + tanh(score))\"",
};

class Lower : public testing::TestWithParam<const char*> {};

TEST_P(Lower, MeansWhatTheFormulaMeans) {
  const std::string line =
      "b=2 h=4 sq=48 d=64 dtype=bf16 direction=both " + std::string(GetParam());
  const ProblemLine parsed = parse_problem_line(line);
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const Problem* direction : {&*parsed.forward, &*parsed.backward}) {
    const Baking baking = bake(*direction);
    const Lowered lowered = lower(baking.baked.problem, 2);
    ASSERT_TRUE(lowered.reasons.empty()) << describe(lowered.reasons.front());
    const ir::Program& program = direction->program;
    for (int i = 0; i < 200; ++i) {
      const auto below = [&](int n) {
        return static_cast<std::int32_t>(random() % static_cast<unsigned>(n));
      };
      const Position p{normal(random), normal(random), {below(2), below(4), below(48), below(48)}};
      ir::Point<double> point;
      point.score = p.score, point.grad = p.grad;
      point.b = p.at[0], point.h = p.at[1], point.q = p.at[2], point.k = p.at[3];
      point.B = 2, point.H = 4, point.Hkv = 4, point.Sq = 48, point.Skv = 48;
      double expected = program.mod() ? ir::evaluate(program.mod(), point).f : p.score;
      const bool kept = !program.mask() || ir::evaluate(program.mask(), point).b;
      const Interpreter got(lowered, baking.literals, p);
      const bool band = lowered.spec.band.any();
      if (!kept && !band) expected = -INFINITY;
      if (kept || !band) {
        const double value = got.value(lowered.spec.modified);
        if (std::isinf(expected)) {
          EXPECT_EQ(value, expected);
        } else {
          EXPECT_NEAR(value, expected, 2e-5 * (1 + std::abs(expected)));
        }
      }
      if (lowered.spec.bprop && kept) {
        const ir::Expr derived = ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)).score;
        const double right = ir::evaluate(derived, point).f;
        EXPECT_NEAR(got.value(*lowered.spec.bprop), right, 5e-5 * (1 + std::abs(right)));
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Formulas, Lower, testing::ValuesIn(formulas));

struct Refusal {
  const char* code;
  const char* words;
};
class Refuse : public testing::TestWithParam<Refusal> {};
TEST_P(Refuse, WithItsReason) {
  const Lowered lowered =
      lower(baked_of("b=2 h=4 sq=48 " + std::string(GetParam().words)).problem, 2);
  ASSERT_FALSE(lowered.reasons.empty());
  EXPECT_EQ(lowered.reasons.front().code, GetParam().code);
  EXPECT_FALSE(lowered.reasons.front().advice.empty());
}
INSTANTIATE_TEST_SUITE_P(
    Formulas, Refuse,
    testing::Values(
        Refusal{"gather", "mod=\"score + t[h, q - k + 48]\" tensor=\"t:f32[H,96]\""},
        Refusal{"gather", "mod=\"score + t[q, q]\" tensor=\"t:f32[Sq,Sq]\""},
        Refusal{"gather", "mod=\"score + t[q]\" tensor=\"t:f32[7]\""},
        Refusal{"captured_type", "mod=\"score + t[q]\" tensor=\"t:u8[Sq]\""},
        Refusal{"bool_tensor", "mask=\"t[q,k]\" tensor=\"t:bool[Sq,Skv]\""},
        Refusal{"operation_not_in_cudnn", "mask=\"(q & 4) == 0\""},
        Refusal{"inexact_decision", "mask=\"log(f32(q) + 1) > 2\""},
        Refusal{"inexact_decision", "mask=\"0.3 * q + 0.7 * k > 5\""},
        Refusal{"power_of_negative", "mod=\"pow(score, 3.0)\""},
        Refusal{"division_of_whole_numbers", "mask=\"q // (k - 3) == 0\""},
        Refusal{"captured_strides",
                "mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\" grads=t direction=backward "
                "tensor_strides=t:1,4,192"},
        Refusal{"captured_strides",
                "mod=\"score + t[h]\" tensor=\"t:bf16[H]\" tensor_strides=t:-1"},
        Refusal{"captured_strides", "mod=\"score * t[h,0]\" tensor=\"t:f32[H,2]\""},
        Refusal{"captured_strides", "mod=\"score + t[q,k,1]\" tensor=\"t:f32[Sq,Skv,2]\""},
        Refusal{"captured_strides", "mod=\"score + t[q,k,h]\" tensor=\"t:bf16[Sq,Skv,H]\""},
        Refusal{"captured_gradient",
                "mod=\"score * t[h]\" tensor=\"t:bf16[H]\" grads=q,k,v,t direction=backward"},
        // The gradient of a bias: beside a mask that is no diagonal, of a part of its rows, beside
        // a derivative of the caller's, with values on the device.
        Refusal{"captured_gradient",
                "mod=\"score + t[q,k]\" tensor=\"t:bf16[Sq,Skv]\" mask=\"(q + k) % 3 != 0\" "
                "grads=t direction=backward"},
        Refusal{"captured_gradient",
                "mod=\"score + t[q,k]\" tensor=\"t:bf16[64,64]\" grads=t direction=backward"},
        Refusal{"bprop_and_captured_gradient",
                "mod=\"score + t[q,k]\" tensor=\"t:bf16[Sq,Skv]\" bprop=\"2*grad\" grads=t "
                "direction=backward"},
        Refusal{"bias_gradient_and_device_values",
                "mod=\"score + t[q,k]\" tensor=\"t:bf16[Sq,Skv]\" values=device grads=t "
                "direction=backward"},
        Refusal{"captured_at_device_offset",
                "mod=\"score + t[q]\" tensor=\"t:f32[64]\" values=device q_offset=3"},
        Refusal{"captured_at_device_offset",
                "mod=\"score + t[h]\" tensor=\"t:f32[H]\" values=device h_offset=1 h_global=8"},
        Refusal{"whole_numbers_too_large", "mask=\"b * 100 + q >= k\" b_offset=1"},
        Refusal{"scalar_gradient", "mod=\"score * c\" scalar=\"c=2\" grads=q,c direction=backward"},
        Refusal{"bias_gradient_type",
                "mod=\"score + t[h,q,k]\" tensor=\"t:f32[H,Sq,Skv]\" grads=t direction=backward"}));

TEST(Batches, ArePowersOfTwo) {
  const auto of = [](const std::string& words) {
    return batches(baked_of("h=2 sq=48 " + words).problem);
  };
  EXPECT_EQ(of("b=8"), (std::vector<std::int64_t>{8}));
  EXPECT_EQ(of("b=13"), (std::vector<std::int64_t>{8, 4, 1}));
  // Sums over the batch are made in one go.
  EXPECT_EQ(of("b=13 sink=1 grads=q,sink direction=backward"), (std::vector<std::int64_t>{13}));
  EXPECT_EQ(of("b=5 dropout=0.1 rng=engine"), (std::vector<std::int64_t>{5}));
}

TEST(Lower, EveryTensorHasAUidOfItsOwn) {
  std::string sum = "score";
  for (int i = 0; i < 25; ++i) {
    sum += " + t[" + std::to_string(i) + "] * u[" + std::to_string(i) + "]";
  }
  const std::string line = "h=2 sq=48 mod=\"" + sum + "\" tensor=t:f32[25] tensor=u:f32[25]";
  const Lowered lowered = lower(baked_of(line).problem, 1);
  ASSERT_TRUE(lowered.reasons.empty()) << describe(lowered.reasons.front());
  std::set<std::int64_t> uids;
  for (const GraphTensor& tensor : lowered.spec.tensors) uids.insert(tensor.uid());
  EXPECT_EQ(uids.size(), lowered.spec.tensors.size());
}

// Scoped by version and architecture.
TEST(KnownBad, IsScoped) {
  const Problem problem = *parse_problem_line("h=2 sq=48 d=64 dtype=bf16").forward;
  EXPECT_EQ(known_bad(91000, 90, problem).size(), 1u);
  EXPECT_EQ(known_bad(91001, 80, problem).front().code, "known_bad");
  EXPECT_TRUE(known_bad(91002, 90, problem).empty());
  EXPECT_TRUE(known_bad(90900, 90, problem).empty());
  EXPECT_TRUE(known_bad(91900, 90, problem).empty());
  EXPECT_TRUE(workarounds_for(91900, 90).narrow_inputs);
  EXPECT_FALSE(workarounds_for(92000, 90).narrow_inputs);  // not looked at
  EXPECT_FALSE(workarounds_for(91900, 100).narrow_inputs);
}

TEST(KnownBad, WhatIsAvoidedFollowsTheTable) {
  const auto graph = [](const std::string& words, const Workarounds& avoid) {
    return lower(baked_of("b=2 h=4 sq=48 " + words).problem, 2, avoid);
  };
  const Workarounds nothing{false, false, false, false, false};
  const std::string narrow = "mod=\"score + t[b]\" tensor=t:f32[B]";
  EXPECT_EQ(graph(narrow, {}).spec.find(TensorRole::Captured)->dim, (Dims{2, 1, 48, 1}));
  EXPECT_EQ(graph(narrow, nothing).spec.find(TensorRole::Captured)->dim, (Dims{2, 1, 1, 1}));
  const std::string compared = "mask=\"k + 2 < q || k == 9\"";
  EXPECT_GT(graph(compared, {}).spec.steps.size(), graph(compared, nothing).spec.steps.size());
  const std::string bias =
      "mod=\"tanh(score) + t[h,q,k]\" tensor=t:bf16[H,Sq,Skv] grads=q,t direction=backward";
  EXPECT_EQ(graph(bias, {}).reasons.front().code, "captured_gradient");
  EXPECT_TRUE(graph(bias, nothing).reasons.empty());
  EXPECT_EQ(graph("mod=\"f32(q)\"", {}).reasons.front().code, "score_ignored");
  EXPECT_TRUE(graph("mod=\"f32(q)\"", nothing).reasons.empty());
}

TEST(Bake, ValuesAreNotBaked) {
  const auto baked = [](const std::string& words) { return baked_of("b=2 h=2 sq=48 " + words); };
  EXPECT_EQ(baked("mod=softcap(20) scale=0.1"), baked("mod=softcap(50) scale=0.7"));
  EXPECT_EQ(baked("mask=causal q_offset=5"), baked("mask=causal q_offset=900"));
  EXPECT_NE(baked("mask=causal q_offset=5"), baked("mask=causal"));
  EXPECT_EQ(baked("b_offset=3 mod=\"score + f32(b)\""), baked("mod=\"score + f32(b)\""));
  // If f32 must hold a number made of b, it matters how large that can be.
  EXPECT_NE(baked("b_offset=3 mask=\"b * 9 + q >= k\""), baked("mask=\"b * 9 + q >= k\""));
}

Lowered lowered(const std::string& words, int sq = 48) {
  return lower(baked_of("b=2 h=4 sq=" + std::to_string(sq) + " " + words).problem, 2);
}

TEST(DeviceValues, AreInputsOfTheGraph) {
  const std::string words = "mod=\"score * a / c\" scalar=a=1 scalar=c=2 mask=causal q_offset=1 ";
  const auto by_value = [](const Lowered& made, TensorRole role) {
    const GraphTensor* const tensor = made.spec.find(role);
    EXPECT_NE(tensor, nullptr);
    return tensor != nullptr && tensor->by_value;
  };
  const Lowered host = lowered(words), device = lowered(words + "values=device");
  EXPECT_TRUE(by_value(host, TensorRole::Scale));
  EXPECT_TRUE(by_value(host, TensorRole::OffsetQ));
  EXPECT_EQ(host.uniforms.size(), 1u);  // a / c, computed at each call
  EXPECT_FALSE(by_value(device, TensorRole::Scale));
  EXPECT_FALSE(by_value(device, TensorRole::OffsetQ));
  EXPECT_FALSE(by_value(device, TensorRole::Scalar));
  EXPECT_TRUE(device.uniforms.empty());  // nobody knows their values before it runs
}

// cuDNN has no graph of a derivative without a modifier, nor of one that reads what lengths mask.
TEST(Derivatives, StandBesideAStepOfTheirOwn) {
  const auto plain = lowered("mod=score bprop=\"2*grad\" direction=backward", 128);
  ASSERT_TRUE(plain.spec.has_modifier());
  EXPECT_EQ(plain.spec.forward_steps, 1u);
  const auto forward_steps = [](const std::string& words) {
    return lowered("mod=\"exp(0.5*score)\" direction=backward " + words, 128).spec.forward_steps;
  };
  EXPECT_EQ(forward_steps("klens=5,9"), forward_steps("") + 1);
  EXPECT_EQ(lowered("mod=score direction=backward", 128).spec.forward_steps, 0u);
}

TEST(Views, KnowWhatTheyLeaveOut) {
  const auto view = [](const std::string& words) {
    return lowered("direction=backward grads=t " + words).views.at(1);
  };
  EXPECT_FALSE(view("mod=\"score + t[h,q,k]\" tensor=t:bf16[H,Sq,Skv]").partial);
  EXPECT_FALSE(view("mod=\"score + t[q,k]\" tensor=t:bf16[Sq,Skv]").partial);
  EXPECT_TRUE(view("mod=\"score + t[1,q,k]\" tensor=t:bf16[2,Sq,Skv]").partial);
  EXPECT_TRUE(view("mod=\"score + t[h,q,k]\" tensor=t:bf16[H,Sq,Skv] h_global=6").partial);
}

TEST(TensorStrides, AreThoseOfTheGraph) {
  const auto captured = [](const std::string& strides, const std::string& more = "") {
    const Lowered made = lowered("mod=\"score + t[h,q,k]\" tensor=t:bf16[4,48,48] " + more +
                                 " tensor_strides=t:" + strides);
    EXPECT_TRUE(made.reasons.empty());
    return *made.spec.find(more.empty() ? TensorRole::Captured : TensorRole::GradBias);
  };
  EXPECT_EQ(captured("2304,48,1").stride, (Dims{9216, 2304, 48, 1}));
  EXPECT_EQ(captured("48,192,1").stride, (Dims{9216, 48, 192, 1}));
  EXPECT_EQ(captured("0,48,1").dim, (Dims{1, 1, 48, 48}));  // it broadcasts
  // A gradient is dense, however the tensor lies.
  EXPECT_EQ(captured("5000,64,1", "direction=backward grads=t").stride, (Dims{9216, 2304, 48, 1}));
  // Saying what is so anyway makes no other plan.
  const auto baked = [](const std::string& words) {
    const std::string line = "b=2 h=4 sq=48 d=64 dtype=bf16 mod=\"score + t[h]\" tensor=t:f32[4] ";
    return bake(*parse_problem_line(line + words).forward).baked;
  };
  EXPECT_EQ(baked(""), baked("tensor_strides=t:1"));
  EXPECT_NE(baked(""), baked("tensor_strides=t:2"));
}

}  // namespace
}  // namespace fovea::cudnn
