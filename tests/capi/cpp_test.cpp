// The C++ interface (fovea/fovea.hpp) over the C one.
#include <gtest/gtest.h>
#include <fovea/fovea.hpp>

#include <cmath>
#include <numeric>
#include <random>

namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

// The status and the text of what it throws.
template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const fovea::Error& error) {
    return std::string(fovea_status_name(error.status())) + ": " + error.what();
  }
  return "accepted";
}

struct Data {
  static constexpr int b = 2, h = 2, s = 6, d = 4;
  std::vector<float> q = random_floats(b * h * s * d, 1), k = random_floats(b * h * s * d, 2);
  std::vector<float> v = random_floats(b * h * s * d, 3), grad_o = random_floats(b * h * s * d, 4);
  std::vector<float> o = std::vector<float>(b * h * s * d), lse = std::vector<float>(b * h * s);

  static fovea::View view(std::vector<float>& x) {
    return fovea::Tensor::bhsd(x.data(), b, h, s, d);
  }
  static fovea::View view(const std::vector<float>& x) {
    return fovea::Tensor::bhsd(x.data(), b, h, s, d);
  }
  double loss(const fovea::AttentionOptions& options) {
    fovea::Attention attend(view(q), view(k), view(v), options);
    attend.forward({.o = view(o)});
    return std::inner_product(o.begin(), o.end(), grad_o.begin(), 0.0);
  }
};

const fovea::Tensor slope("slope", fovea::f32, {fovea::H});
const fovea::Scalar cap("cap", 3.0f);
fovea::Formula capped_alibi() {
  return fovea::formula([](auto score, auto, auto h, auto q, auto k) {
    return cap * tanh(score / cap) + slope[h] * (k - q);
  });
}

TEST(Cpp, TracedAndWrittenFormulasAreTheSameProgram) {
  const fovea::Program traced(capped_alibi());
  const fovea::Program written(
      "mod=\"c * tanh(score / c) + s[h] * (k - q)\" scalar=c tensor=s:f32[H]");
  EXPECT_TRUE(traced == written);
  EXPECT_FALSE(traced == fovea::Program("mod=alibi"));
  EXPECT_EQ(fovea::Program(traced.line()), traced);
}

TEST(Cpp, GradientsAgreeWithFiniteDifferences) {
  Data data;
  std::vector<float> slopes{0.5f, -0.25f}, grad_slopes(2), dq(data.q.size()), dk(dq), dv(dq);
  float grad_cap = 0;
  fovea::AttentionOptions options{.mod = capped_alibi(),
                                  .mask = "causal",
                                  .captured = {value(slope, slopes), value(cap, 3)},
                                  .engine = "reference"};
  fovea::Attention attend(Data::view(data.q), Data::view(data.k), Data::view(data.v), options);
  attend.forward({.o = Data::view(data.o), .lse = data.lse});
  attend.backward({.o = Data::view(data.o), .lse = data.lse, .grad_o = Data::view(data.grad_o)},
                  {.q = Data::view(dq),
                   .k = Data::view(dk),
                   .v = Data::view(dv),
                   .captured = {gradient(slope, grad_slopes), gradient(cap, grad_cap)}});
  EXPECT_EQ(attend.engine(), "reference");

  constexpr float step = 1e-2f;
  const auto difference = [&](float& x) {
    const float before = x;
    x = before + step;
    const double up = data.loss(options);
    x = before - step;
    const double down = data.loss(options);
    x = before;
    return (up - down) / (2 * double{step});
  };
  for (const std::size_t i : {0u, 17u, 50u}) {
    EXPECT_NEAR(dq[i], difference(data.q[i]), 2e-3) << i;
    EXPECT_NEAR(dk[i], difference(data.k[i]), 2e-3) << i;
    EXPECT_NEAR(dv[i], difference(data.v[i]), 2e-3) << i;
  }
  EXPECT_NEAR(grad_slopes[0], difference(slopes[0]), 5e-3);
  EXPECT_NEAR(grad_slopes[1], difference(slopes[1]), 5e-3);
  options.captured[1] = value(cap, 3.01);
  const double up = data.loss(options);
  options.captured[1] = value(cap, 2.99);
  EXPECT_NEAR(grad_cap, (up - data.loss(options)) / 0.02, 2e-3);
}

TEST(Cpp, LayoutsAndStridesAreViewsOfTheSameNumbers) {
  Data data;
  const fovea::AttentionOptions options{.mask = "causal", .engine = "reference"};
  data.loss(options);
  const std::vector<float> expected = data.o;
  constexpr int b = Data::b, h = Data::h, s = Data::s, d = Data::d;
  const auto to_bshd = [](const std::vector<float>& x) {
    std::vector<float> out(x.size());
    for (int i = 0; i < b * h * s * d; ++i) {
      const int f = i % d, p = i / d % s, head = i / d / s % h, batch = i / d / s / h;
      out[static_cast<std::size_t>(((batch * s + p) * h + head) * d + f)] =
          x[static_cast<std::size_t>(i)];
    }
    return out;
  };
  const std::vector<float> q = to_bshd(data.q), k = to_bshd(data.k), v = to_bshd(data.v);
  std::vector<float> o(q.size(), 0.0f);
  const auto bshd = [](auto& x) { return fovea::Tensor::bshd(x.data(), b, s, h, d); };
  fovea::attention(bshd(q), bshd(k), bshd(v), options).forward({.o = bshd(o)});
  EXPECT_EQ(o, to_bshd(expected));
  // q as strides over the bshd memory, all else bhsd.
  fovea::Attention mixed(fovea::Tensor::strided(q.data(), {b, h, s, d}, {s * h * d, d, h * d, 1}),
                         Data::view(data.k), Data::view(data.v), options);
  mixed.forward({.o = Data::view(data.o)});
  EXPECT_EQ(data.o, expected);
}

TEST(Cpp, PackedSequences) {
  constexpr int h = 2, d = 4, t = 7;
  std::vector<float> q = random_floats(t * h * d, 5), k = random_floats(t * h * d, 6);
  std::vector<float> v = random_floats(t * h * d, 7), o(t * h * d);
  const std::vector<std::int32_t> starts{0, 3, 7};
  const auto thd = [](std::vector<float>& x) { return fovea::Tensor::thd(x.data(), t, h, d); };
  fovea::Attention attend(
      thd(q), thd(k), thd(v),
      {.mask = "causal", .q_starts = starts, .k_starts = starts, .engine = "reference"});
  attend.forward({.o = thd(o)});
  for (const int row : {0, 3}) {  // the first row of a sequence sees its own key only
    for (int i = 0; i < h * d; ++i) {
      const auto at = static_cast<std::size_t>(row * h * d + i);
      EXPECT_FLOAT_EQ(o[at], v[at]) << at;
    }
  }
}

TEST(Cpp, ErrorsHaveTheStatusAndTheTextOfTheCInterface) {
  const std::string unknown = error_of([] { fovea::Program("mod=\"scor + 1\""); });
  EXPECT_EQ(unknown, std::string("FOVEA_INVALID_ARGUMENT: ") + fovea_last_error());
  EXPECT_NE(unknown.find("did you mean 'score'?"), std::string::npos) << unknown;
  Data data;
  const std::string engine = error_of([&] { data.loss({.engine = "referense"}); });
  EXPECT_NE(engine.find(": engine 'referense' is unknown; did you mean 'reference'? (engines: "),
            std::string::npos)
      << engine;
  EXPECT_EQ(error_of([] { fovea::load_bundle("/nowhere/plans.fovea"); }),
            "FOVEA_INVALID_ARGUMENT: /nowhere/plans.fovea: cannot be opened: No such file or "
            "directory");
}

TEST(Cpp, ConstMemoryIsNotWritten) {
  Data data;
  const std::vector<float> o(data.q.size());
  std::vector<float> lse(3);
  fovea::Attention attend(Data::view(data.q), Data::view(data.k), Data::view(data.v),
                          {.engine = "reference"});
  EXPECT_EQ(error_of([&] { attend.forward({.o = Data::view(o)}); }),
            "FOVEA_INVALID_ARGUMENT: o is const, but it would be written");
  EXPECT_EQ(error_of([&] { attend.forward({.o = Data::view(data.o), .lse = lse}); }),
            "FOVEA_INVALID_ARGUMENT: lse has 3 numbers, not 24");
}

TEST(Cpp, MemoryThatIsTooSmallIsRefused) {
  Data data;
  std::vector<float> one_slope(1);
  std::vector<double> doubles(2);
  const auto outcome = [&](const fovea::Binding& binding) {
    return error_of(
        [&] { data.loss({.mod = capped_alibi(), .captured = {binding}, .engine = "reference"}); });
  };
  const std::string status = "FOVEA_INVALID_ARGUMENT: ";
  EXPECT_EQ(outcome(value(slope, one_slope)), status + "'slope' has 1 elements, not 2");
  EXPECT_EQ(outcome(value(slope, doubles)), status + "'slope' has elements of 8 bytes, not 4");
  std::vector<float> two(2);
  EXPECT_EQ(outcome(value(slope, std::span(two))), "accepted");
  const fovea_array strided{two.data(), FOVEA_F32, 1, {2}, {1}};
  EXPECT_EQ(outcome(value(slope, strided)), "accepted");
  EXPECT_THROW(fovea::Tensor::bhsd(two, 1, 1, 2, 2), std::invalid_argument);
  EXPECT_EQ(fovea::Tensor::bhsd(std::span(two), 1, 1, 1, 2).data, two.data());
}

TEST(Cpp, ProgramsPrintDoublesForDoubles) {
  const fovea::Program program("mod=\"score * 0.3333333333333333 + c\" scalar=c=29.7");
  EXPECT_EQ(program.line(), "mod=\"c + score * 0.33333334\" scalar=c:f32=29.7");
  EXPECT_EQ(fovea::report_of(fovea_program_print, program.get(), FOVEA_TEXT_DOUBLE),
            "mod=\"c + score * 0.3333333333333333\" scalar=c:f32=29.7");
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  fovea::check(fovea_program_scalar(program.get(), 0, &info));
  EXPECT_EQ(info.value, 29.7);
}

TEST(Cpp, ProblemsAndSupport) {
  const auto [forward, backward] = fovea::Problem::parse("h=2 sq=8 d=4 direction=both");
  ASSERT_TRUE(backward.has_value());
  EXPECT_EQ(forward.line(), "h=2 sq=8 d=4 lse=1");
  EXPECT_TRUE(fovea::Problem(backward->line()) == *backward);
  const fovea::Support support = fovea::supported(forward, {.engine = "reference", .device = ""});
  EXPECT_TRUE(support);
  EXPECT_EQ(support.text, "reference");
  EXPECT_EQ(fovea::supported(forward).text, "cpu");
  const fovea::Problem in_double("h=2 sq=8 d=4 dtype=f64");
  EXPECT_FALSE(fovea::supported(in_double));  // the reference alone can, and it was not named
  EXPECT_NE(fovea::explain(forward, {"reference", "h200"}).find("engine reference runs on a CPU"),
            std::string::npos)
      << fovea::explain(forward, {"reference", "h200"});
}

TEST(Cpp, HalfPrecisionByName) {
  std::vector<std::uint16_t> one(2 * 4, 0x3f80), o(2 * 4);  // 1.0 in bf16
  const auto view = [](std::vector<std::uint16_t>& x) {
    return fovea::Tensor::bhsd<FOVEA_BF16>(x.data(), 1, 1, 2, 4);
  };
  fovea::Attention attend(view(one), view(one), view(one), {.engine = "reference"});
  attend.forward({.o = view(o)});
  EXPECT_EQ(o, one);
}

// Starts in the memory of a GPU are not looked at, and these pointers lead nowhere.
TEST(Cpp, PackedSequencesOfAGpuNeedTheirLongest) {
  auto* const somewhere = reinterpret_cast<std::uint16_t*>(64);
  const std::span<const std::int32_t> starts(reinterpret_cast<const std::int32_t*>(64), 3);
  const fovea::View view = fovea::Tensor::thd<FOVEA_BF16>(somewhere, 16, 2, 64);
  fovea::Attention attend(view, view, view,
                          {.q_starts = starts, .k_starts = starts, .device = "cuda:0"});
  const std::string error = error_of([&] { attend.forward({.o = view}); });
  EXPECT_NE(error.find("longest_q, longest_k"), std::string::npos) << error;
}

}  // namespace
