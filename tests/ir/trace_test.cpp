// Formulas traced from lambdas are the same objects as the formulas written by hand.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "base/words.h"
#include "ir/language.h"
#include "ir/print.h"
#include "ir/program.h"

// After ours: GCC takes the enumerators of fovea::DType for shadows of fovea::F32.
#include "fovea/trace.hpp"
#include "tests/error_of.h"

namespace {

using fovea::Formula;
using fovea::Scalar;
using fovea::Tensor;
using fovea::ir::parse_program;

const Tensor slopes("slopes", fovea::f32, {fovea::H});
const Tensor table("table", fovea::bf16, {fovea::H, 64});
const Tensor doc("doc", fovea::i32, {fovea::B, fovea::Sq});
const Tensor kept("kept", fovea::boolean, {fovea::Skv});
const Tensor shift("shift", fovea::f32, {});
const Scalar cap("cap", 30.0f);
const Scalar window("window", 128);
const Scalar heat("heat");

const std::string all_declarations =
    "tensor=slopes:f32[H] tensor=table:bf16[H,64] tensor=doc:i32[B,Sq] tensor=kept:bool[Skv] "
    "tensor=shift:f32[] scalar=cap=30 scalar=window:i32=128 scalar=heat";

// The hand-written formula with those declarations that the traced one has.
std::string with_declarations(const Formula& traced, const std::string& hand) {
  std::string line = fovea::join_word(traced.key(), hand);
  for (const fovea::Word& word : fovea::split_words(all_declarations)) {
    const std::string name = word.value.substr(0, word.value.find_first_of(":="));
    for (const auto& used : traced.captured()) {
      if (used->name == name) line += " " + fovea::join_word(word.key, word.value);
    }
  }
  return line;
}

void expect_same(const Formula& traced, const std::string& hand) {
  SCOPED_TRACE(traced.text());
  const auto from_trace = parse_program(fovea::program(traced));
  const auto from_hand = parse_program(with_declarations(traced, hand));
  EXPECT_TRUE(from_trace == from_hand);
  EXPECT_EQ(print(from_trace), print(from_hand));
}

template <class F>
void mod_is(const std::string& hand, F lambda) {
  expect_same(fovea::formula(lambda), hand);
}
template <class F>
void mask_is(const std::string& hand, F lambda) {
  expect_same(fovea::mask(lambda), hand);
}

TEST(Trace, ModsThatPeopleWrite) {
  mod_is("cap * tanh(score / cap)",
         [](auto score, auto, auto, auto, auto) { return cap * tanh(score / cap); });
  mod_is("score + slopes[h] * (k - q)",
         [](auto score, auto, auto h, auto q, auto k) { return score + slopes[h] * (k - q); });
  mod_is("score + exp2(-8 * (h + 1) / H) * (k - q)", [](auto score, auto, auto h, auto q, auto k) {
    return score + exp2(-8 * (h + 1) / fovea::H) * (k - q);
  });
  mod_is("score + table[h, q - k + 32]",
         [](auto score, auto, auto h, auto q, auto k) { return score + table(h, q - k + 32); });
  mod_is("score * heat", [](auto score, auto, auto, auto, auto) { return score * heat; });
  mod_is("score + shift[]", [](auto score, auto, auto, auto, auto) { return score + shift(); });
  mod_is("score - 0.5 * log1p(abs(q - k))",
         [](auto score, auto, auto, auto q, auto k) { return score - 0.5 * log1p(abs(q - k)); });
  mod_is("q > k ? score : -inf", [](auto score, auto, auto, auto q, auto k) {
    return select(q > k, score, -std::numeric_limits<float>::infinity());
  });
  mod_is("score / sqrt(f32(Skv))",
         [](auto score, auto, auto, auto, auto) { return score / sqrt(f32(fovea::Skv)); });
  mod_is("score * f32(q >= k)",
         [](auto score, auto, auto, auto q, auto k) { return score * f32(q >= k); });
  mod_is("q - k", [](auto, auto, auto, auto q, auto k) { return q - k; });  // widened
  mod_is("0.0", [](auto, auto, auto, auto, auto) { return 0.0; });
}

TEST(Trace, MasksThatPeopleWrite) {
  mask_is("q >= k", [](auto, auto, auto q, auto k) { return q >= k; });
  mask_is("q >= k && q - k < window",
          [](auto, auto, auto q, auto k) { return q >= k && q - k < window; });
  mask_is("k < 100 || q >= k", [](auto, auto, auto q, auto k) { return k < 100 || q >= k; });
  mask_is("doc[b, q] == doc[b, k]",
          [](auto b, auto, auto q, auto k) { return doc(b, q) == doc(b, k); });
  mask_is("q >= k && (q - k) % 4 == 0",
          [](auto, auto, auto q, auto k) { return q >= k && (q - k) % 4 == 0; });
  mask_is("q // 16 == k // 16",
          [](auto, auto, auto q, auto k) { return floor_div(q, 16) == floor_div(k, 16); });
  mask_is("q + (Skv - Sq) >= k",
          [](auto, auto, auto q, auto k) { return q + (fovea::Skv - fovea::Sq) >= k; });
  mask_is("kept[k] && !(q < k)", [](auto, auto, auto q, auto k) { return kept[k] && !(q < k); });
  mask_is("abs(q - k) <= 8 == (h < Hkv)",
          [](auto, auto h, auto q, auto k) { return (abs(q - k) <= 8) == (h < fovea::Hkv); });
  mask_is("true", [](auto, auto, auto, auto) { return true; });
  mask_is("bool(doc[b, k])", [](auto b, auto, auto, auto k) { return boolean(doc(b, k)); });
  mask_is("kept[0] != true", [](auto, auto, auto, auto) { return kept[0] != true; });
}

TEST(Trace, EveryFunction) {
  mod_is("exp(score) + exp2(score) + expm1(score)",
         [](auto s, auto, auto, auto, auto) { return exp(s) + exp2(s) + expm1(s); });
  mod_is("log(score) * log2(score) * log1p(score)",
         [](auto s, auto, auto, auto, auto) { return log(s) * log2(s) * log1p(s); });
  mod_is("sqrt(score) - rsqrt(score) - pow(score, 1.5)",
         [](auto s, auto, auto, auto, auto) { return sqrt(s) - rsqrt(s) - pow(s, 1.5f); });
  mod_is("tanh(score) / (sigmoid(score) / softplus(score))",
         [](auto s, auto, auto, auto, auto) { return tanh(s) / (sigmoid(s) / softplus(s)); });
  mod_is("erf(score) + sin(score) + cos(score) + tan(score)",
         [](auto s, auto, auto, auto, auto) { return erf(s) + sin(s) + cos(s) + tan(s); });
  mod_is("floor(score) + ceil(score) + round(score) + sign(score) + abs(score)",
         [](auto s, auto, auto, auto, auto) {
           return floor(s) + ceil(s) + round(s) + sign(s) + abs(s);
         });
  mod_is("min(score, 3) + max(q, k) + clamp(score, -1, 1.5) + clamp(q, 0, k)",
         [](auto s, auto, auto, auto q, auto k) {
           return min(s, 3) + max(q, k) + clamp(s, -1, 1.5) + clamp(q, 0, k);
         });
  mod_is("i32(score) // 3 + div(q, 3) + rem(q, 3) + q % 3 + (-q) // k",
         [](auto s, auto, auto, auto q, auto k) {
           return floor_div(i32(s), 3) + div(q, 3) + rem(q, 3) + floor_mod(q, 3) + floor_div(-q, k);
         });
  mod_is("(q & 3 | k ^ 5) << 2 >> (~q & 1)",
         [](auto, auto, auto, auto q, auto k) { return ((q & 3) | (k ^ 5)) << 2 >> (~q & 1); });
  mod_is("q / k + 7 / 2",
         [](auto, auto, auto, auto q, auto k) { return q / k + fovea::I32(7) / 2; });
  mod_is("-score + i32(q > k) + select(bool(q), q, score)", [](auto s, auto, auto, auto q, auto k) {
    return -s + i32(q > k) + select(boolean(q), q, s);
  });
  mask_is("q < k || q <= k && q > 2 || q >= 3 && q != k", [](auto, auto, auto q, auto k) {
    return q < k || (q <= k && q > 2) || (q >= 3 && q != k);
  });
}

// Each operation of ops.def must be writable: this fails when one is added and not traced.
TEST(Trace, KnowsEveryOperation) {
  const std::ifstream file(FOVEA_SOURCE_DIR "/include/fovea/trace/operation.hpp");
  ASSERT_TRUE(file.is_open());
  std::ostringstream header;
  header << file.rdbuf();
  for (const fovea::ir::OpInfo& row : fovea::ir::all_ops) {
    if (row.arity() == 0) continue;
    const std::string quoted = "\"" + std::string(row.text) + "\"";
    EXPECT_NE(header.str().find(quoted), std::string::npos) << row.name;
  }
}

// Types are known when the lambda is compiled, except those of captured values.
TEST(Trace, TypesAreStatic) {
  using fovea::Any, fovea::Bool, fovea::F32, fovea::I32;
  fovea::formula([](auto score, auto, auto h, auto q, auto k) {
    static_assert(std::same_as<decltype(score), F32> && std::same_as<decltype(q), I32>);
    static_assert(std::same_as<decltype(q - k), I32> && std::same_as<decltype(q / k), F32>);
    static_assert(std::same_as<decltype(q + 1.0), F32> && std::same_as<decltype(q < k), Bool>);
    static_assert(std::same_as<decltype(slopes[h]), Any>);
    static_assert(std::same_as<decltype(slopes[h] * q), Any>);
    static_assert(std::same_as<decltype(slopes[h] * score), F32>);
    static_assert(std::same_as<decltype(tanh(cap)), F32>);
    static_assert(std::same_as<decltype(cap > 0), Bool>);
    static_assert(std::same_as<decltype(select(q < k, q, score)), F32>);
    const F32 slope = slopes[h];  // a load as what it is
    F32 total = 0;                // a literal
    for (int i = 1; i < 4; ++i) total += slope * i;
    total *= score, total -= q, total /= 2;
    return total;
  });
}

TEST(Trace, Bprop) {
  const auto mod =
      fovea::formula([](auto score, auto, auto, auto, auto) { return cap * tanh(score / cap); });
  const auto bprop = fovea::bprop([](auto score, auto grad, auto, auto, auto, auto) {
    const auto t = tanh(score / cap);
    return grad * (1 - t * t);
  });
  EXPECT_EQ(fovea::program(mod, bprop),
            "mod=\"cap * tanh(score / cap)\" "
            "bprop=\"let t0 = tanh(score / cap); grad * (1 - t0 * t0)\" scalar=\"cap:f32=30.0\"");
  EXPECT_NO_THROW(parse_program(fovea::program(mod, bprop)));
}

TEST(Trace, KeepsSharing) {
  const auto mod = fovea::formula([](auto score, auto, auto, auto, auto) {
    auto t = tanh(score);
    return t * t + t;
  });
  EXPECT_EQ(mod.text(), "let t0 = tanh(score); t0 * t0 + t0");
  // 2^1000 leaves as a tree, 1000 short pieces as a graph.
  const auto doubling = fovea::formula([](auto score, auto, auto, auto, auto) {
    for (int i = 0; i < 1000; ++i) score = score + score;
    return score;
  });
  EXPECT_LT(doubling.text().size(), 32000u);
  EXPECT_EQ(parse_program(fovea::program(doubling)).mod()->depth(), 1001u);
}

TEST(Trace, LetsAvoidCapturedNames) {
  const Scalar t0("t0"), t1("t1");
  const auto mod = fovea::formula([&](auto score, auto, auto, auto, auto) {
    auto x = score + t0;
    return x * x * t1;
  });
  EXPECT_EQ(mod.text(), "let t2 = score + t0; t2 * t2 * t1");
}

TEST(Trace, LongChains) {
  const auto chain = fovea::formula([](auto score, auto, auto, auto, auto) {
    for (int i = 0; i < 1500; ++i) score = tanh(score) * 0.5f;
    return score;
  });
  EXPECT_EQ(parse_program(fovea::program(chain)).mod()->depth(), 3001u);
  // Far more than the language takes: an error of the parser, not a crash of ours.
  const auto endless = fovea::formula([](auto score, auto, auto, auto, auto) {
    for (int i = 0; i < 200000; ++i) score = score + 1;
    return score;
  });
  EXPECT_GT(endless.text().size(), 200000u);
}

TEST(Trace, LiteralsReadBackBitForBit) {
  const float values[] = {0.0f,
                          -0.0f,
                          1.0f,
                          -1.0f,
                          0.1f,
                          1.0f / 3,
                          16777216.0f,
                          1e20f,
                          -3.4e38f,
                          std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()};
  for (const float value : values) {
    const auto mod = fovea::formula([&](auto, auto, auto, auto, auto) { return value; });
    const auto program = parse_program(fovea::program(mod));
    EXPECT_EQ(program.mod()->payload(), std::bit_cast<std::uint32_t>(value)) << mod.text();
  }
  const auto text = [](auto value) {
    return fovea::formula([&](auto score, auto, auto, auto, auto) { return score + value; }).text();
  };
  EXPECT_EQ(text(0.1), "score + 0.1");
  EXPECT_EQ(text(2.0), "score + 2.0");
  EXPECT_EQ(text(-2), "score + -2");
  EXPECT_EQ(text(std::size_t{7}), "score + 7");
  EXPECT_EQ(text(std::numeric_limits<double>::quiet_NaN()), "score + nan");
  EXPECT_EQ(text(std::numeric_limits<std::int32_t>::min()), "score + -2147483648");
  EXPECT_EQ(parse_program("mod=\"" + text(std::numeric_limits<std::int32_t>::min()) + "\""),
            parse_program("mod=\"score - 2147483648.0\""));
}

TEST(Trace, ProgramsMergeDeclarationsByName) {
  const auto mod = fovea::formula([](auto score, auto, auto h, auto, auto k) {
    return score + slopes[h] * f32(kept[k]) * cap;
  });
  const auto mask = fovea::mask([](auto, auto, auto, auto k) { return kept[k] && k < window; });
  EXPECT_EQ(mask.declarations(),
            (std::vector<std::string>{"tensor=\"kept:bool[Skv]\"", "scalar=\"window:i32=128\""}));
  EXPECT_EQ(fovea::program(mod, mask),
            "mod=\"score + slopes[h] * f32(kept[k]) * cap\" mask=\"kept[k] && k < window\" "
            "tensor=\"slopes:f32[H]\" tensor=\"kept:bool[Skv]\" scalar=\"cap:f32=30.0\" "
            "scalar=\"window:i32=128\"");
  EXPECT_EQ(fovea::program(), "");
}

template <class F>
std::string refusal(F what) {
  return fovea::test::error_of<std::invalid_argument>(what);
}

TEST(Trace, RefusesBadNames) {
  EXPECT_EQ(refusal([] { Scalar("2x"); }),
            "fovea: '2x' is not a name: a letter or _, then letters, digits and _");
  EXPECT_EQ(refusal([] { Tensor("a b", fovea::f32, {}); }),
            "fovea: 'a b' is not a name: a letter or _, then letters, digits and _");
  EXPECT_NE(refusal([] { Scalar(""); }), "no error");
  EXPECT_NE(refusal([] { Scalar("\"; x"); }), "no error");
  const std::size_t longest = fovea::ir::limits::name_length;
  EXPECT_EQ(refusal([&] { Scalar(std::string(longest, 'x')); }), "no error");
  EXPECT_NE(refusal([&] { Scalar(std::string(longest + 1, 'x')); }), "no error");
  for (const std::string& name : fovea::ir::language_names()) {
    const bool refused = refusal([&] { (void)Scalar(name); }) != "no error";
    EXPECT_EQ(refused, fovea::ir::is_reserved(name)) << name;
  }
}

TEST(Trace, RefusesBadDeclarations) {
  EXPECT_EQ(refusal([] { Tensor("t", fovea::f32, {-3}); }),
            "fovea: an extent must not be negative, got -3");
  EXPECT_EQ(refusal([] { Tensor("t", fovea::f32, std::vector<fovea::traced::Extent>(9, 2)); }),
            "fovea: tensor 't' has more than 8 dimensions");
  EXPECT_EQ(Tensor::largest_rank, fovea::ir::limits::rank);
  const Tensor other("slopes", fovea::f32, {fovea::Hkv});
  const auto both = [&](auto score, auto, auto h, auto, auto) {
    return score + slopes[h] + other[h];
  };
  const std::string two_ways =
      "fovea: the name 'slopes' is declared in two ways: slopes:f32[H] and slopes:f32[Hkv]";
  EXPECT_EQ(refusal([&] { fovea::formula(both); }), two_ways);
  const auto mod =
      fovea::formula([](auto score, auto, auto h, auto, auto) { return score + slopes[h]; });
  const auto mask = fovea::mask([&](auto, auto h, auto, auto) { return other[h] > 0; });
  EXPECT_EQ(refusal([&] { fovea::program(mod, mask); }), two_ways);
  EXPECT_EQ(refusal([&] { fovea::program(mod, mod); }), "fovea: a program has one mod, got two");
}

TEST(Trace, RefusesWhatOnlyTheRunShows) {
  const auto mod_refusal = [](auto lambda) { return refusal([&] { fovea::formula(lambda); }); };
  EXPECT_EQ(mod_refusal([](auto, auto, auto h, auto q, auto) { return slopes(h, q); }),
            "fovea: tensor 'slopes' has 1 dimensions, got 2 indices");
  EXPECT_EQ(mod_refusal([](auto, auto, auto h, auto, auto) { return slopes[slopes[h]]; }),
            "fovea: 'slopes' gives f32 where i32 is expected");
  EXPECT_EQ(mod_refusal([](auto, auto, auto h, auto, auto) { return slopes[h] % 2; }),
            "fovea: '%' does not take (f32, i32)");
  EXPECT_EQ(mod_refusal([](auto score, auto, auto, auto, auto k) { return score * kept[k]; }),
            "fovea: '*' does not take (f32, bool)");
  EXPECT_EQ(mod_refusal([](auto, auto, auto, auto, auto k) { return kept[k]; }),
            "fovea: 'kept' gives bool where f32 is expected");
  EXPECT_EQ(mod_refusal([](auto score, auto, auto, auto, auto) { return score + 1e39; }),
            "fovea: " + std::to_string(1e39) + " does not fit f32");
  EXPECT_EQ(mod_refusal([](auto score, auto, auto, auto, auto) { return score + 3000000000; }),
            "fovea: 3000000000 does not fit i32");
  EXPECT_EQ(refusal([] { fovea::mask([](auto, auto, auto, auto k) { return !slopes[k]; }); }),
            "fovea: '!' does not take (f32)");
}

TEST(Trace, FromManyThreads) {
  const auto trace = [] {
    return fovea::formula([](auto score, auto, auto h, auto q, auto k) {
      auto t = score / cap;
      return cap * tanh(t) * t + slopes[h] * (k - q);
    });
  };
  const std::string expected = trace().text();
  std::vector<std::string> texts(8);
  std::vector<std::thread> threads;
  for (std::string& text : texts) threads.emplace_back([&] { text = trace().text(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, expected);
}

}  // namespace
