// Calls through the C interface: what is bound per call, defaults, and what is said about them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/capi/c_call.h"

namespace {

using namespace fovea::testing;

std::vector<float> output(CCall& call) {
  EXPECT_EQ(call.outcome(), "accepted");
  const fovea_sizes& s = call.config.sizes;
  const float* o = call.floats("o");
  return {o, o + s.b * s.h * s.sq * s.dv};
}

const char* const softcap_line =
    "b=1 h=2 sq=8 d=4 mod=\"cap * tanh(score / cap) + bias[h]\" mask=causal scalar=cap "
    "tensor=bias:f32[H]";

TEST(Call, OtherDataOfACapturedTensorGivesOtherResultsFromTheSamePlan) {
  CCall call("h=2 sq=8 d=4 mod=\"score * t[k]\" tensor=t:f32[Skv]");
  const std::vector<float> first = output(call);
  std::vector<float> other(8, 0.0f);
  const std::uint64_t builds = statistics().builds;
  call.tensors[0].array.data = other.data();
  const std::vector<float> second = output(call);
  EXPECT_NE(first, second);
  EXPECT_EQ(statistics().builds, builds);
  // With all scores 0 the rows are the mean of V.
  float mean = 0;
  for (int i = 0; i < 8; ++i) mean += call.floats("v")[i * 4] / 8;
  EXPECT_NEAR(second[0], mean, 1e-6);
}

TEST(Call, ANewValueOfAScalarOrALiteralBuildsNothing) {
  CCall call(softcap_line);
  const std::vector<float> first = output(call);
  const std::uint64_t builds = statistics().builds;
  call.scalars[0].value = 0.25;
  EXPECT_NE(output(call), first);
  CCall three("h=2 sq=8 d=4 mod=\"3.5 * tanh(score / 3.5)\"");
  const std::uint64_t with_literal = statistics().builds;
  CCall four("h=2 sq=8 d=4 mod=\"4.5 * tanh(score / 4.5)\"");
  EXPECT_NE(output(three), output(four));
  EXPECT_LE(with_literal, builds + 1);
  EXPECT_EQ(statistics().builds, with_literal);
}

TEST(Call, ASmallerBatchRunsOnTheSamePlan) {
  CCall call("b=3 h=2 sq=8 d=4 mask=causal");
  const std::uint64_t builds = statistics().builds;
  const std::vector<float> whole = output(call);
  fovea_sizes smaller = call.config.sizes;
  smaller.b = 1;
  call.bindings.sizes = &smaller;
  std::vector<float> o(whole.size(), -7.0f);
  call.bindings.o.data = o.data();
  EXPECT_EQ(call.outcome(), "accepted");
  EXPECT_TRUE(std::equal(o.begin(), o.begin() + 64, whole.begin()));
  EXPECT_EQ(o[64], -7.0f);
  EXPECT_EQ(statistics().builds, builds);
}

TEST(Call, ReportsOwnTheirTextAndErrorsAreOfTheirThread) {
  const auto problem = parse_problem("h=2 sq=8 d=4");
  fovea_answer answer = FOVEA_NO;
  fovea_report first = nullptr, second = nullptr;
  const fovea_plan_options options = reference_options();
  ASSERT_EQ(fovea_supported(problem.get(), nullptr, &answer, &first), FOVEA_OK);
  const std::string kept = fovea_report_text(first);
  ASSERT_EQ(fovea_supported(problem.get(), &options, &answer, &second), FOVEA_OK);
  EXPECT_EQ(fovea_report_text(first), kept);
  EXPECT_STREQ(fovea_report_text(second), "reference");
  fovea_report_destroy(second);
  EXPECT_EQ(fovea_report_text(first), kept);
  fovea_report_destroy(first);

  fovea_problem none = nullptr;
  EXPECT_EQ(fovea_problem_parse("b=x", &none, nullptr), FOVEA_INVALID_ARGUMENT);
  const std::string mine = fovea_last_error();
  EXPECT_NE(mine, "");
  std::thread([&] {
    EXPECT_STREQ(fovea_last_error(), "");
    fovea_problem nothing = nullptr;
    EXPECT_EQ(fovea_problem_parse("sq=y", &nothing, nullptr), FOVEA_INVALID_ARGUMENT);
    EXPECT_NE(fovea_last_error(), mine);
  }).join();
  EXPECT_EQ(fovea_last_error(), mine);
}

TEST(Call, DevicePointersOfValuesAreReadWhenTheCallRuns) {
  CCall call(softcap_line);
  call.scalars[0].value = 0.25;
  call.bindings.scale = {0.75f, 1, nullptr};
  const std::vector<float> by_value = output(call);
  const float cap = 0.25f, scale = 0.75f;
  call.scalars[0].value = 99;
  call.scalars[0].device = &cap;
  call.bindings.scale = {1.5f, 1, &scale};
  EXPECT_EQ(output(call), by_value);
}

TEST(Call, NumbersOfF64TensorsAreDoubles) {
  // Two scores alike: lse is the score and log(2).
  CCall call("sq=1 skv=2 d=1 dtype=f64 mod=\"score * x\" scalar=x=1 lse=1");
  auto* const q = static_cast<double*>(call.memory("q"));
  auto* const k = static_cast<double*>(call.memory("k"));
  q[0] = 1;
  k[0] = k[1] = 1;
  const auto lse_of = [&](double scale, double x) {
    call.bindings.scale_f64 = scale;
    call.scalars[0].value = x;
    EXPECT_EQ(call.outcome(), "accepted");
    return *static_cast<double*>(call.memory("lse"));
  };
  EXPECT_EQ(lse_of(0.1, 1), 0.1 + std::log(2.0));
  EXPECT_EQ(lse_of(1, 0.1), 0.1 + std::log(2.0));
  const double third = 1.0 / 3;
  call.scalars[0].device = &third;
  EXPECT_EQ(lse_of(1, 0), third + std::log(2.0));
}

TEST(Call, AScalarHasItsDefaultUnlessItIsBound) {
  CCall bound("h=2 sq=8 d=4 mod=\"score * x\" scalar=x=0.5");
  const std::vector<float> expected = output(bound);
  bound.bindings.scalar_count = 0;
  EXPECT_EQ(output(bound), expected);
}

TEST(Call, StridesOfTheCallWin) {
  CCall call("h=2 sq=8 d=4");
  const std::vector<float> dense = output(call);
  // The same q with a row of padding after each row.
  std::vector<float> padded(2 * 8 * 8);
  for (int row = 0; row < 16; ++row) {
    std::copy_n(call.floats("q") + row * 4, 4, padded.begin() + row * 8);
  }
  call.bindings.q = {padded.data(), {128, 64, 8, 1}};
  EXPECT_EQ(output(call), dense);
}

TEST(Call, AllStridesZeroAreWrittenAsSuch) {
  CCall dense("direction=backward h=2 sq=8 d=4");
  std::vector<float> ones(64, 1.0f);
  dense.bindings.grad_o.data = ones.data();
  ASSERT_EQ(dense.outcome(), "accepted");
  const std::vector<float> expected(dense.floats("dq"), dense.floats("dq") + 64);
  float one = 1;
  dense.bindings.grad_o = {&one, {FOVEA_ZERO_STRIDE, 0, 0, 0}};
  ASSERT_EQ(dense.outcome(), "accepted");
  EXPECT_EQ(std::vector<float>(dense.floats("dq"), dense.floats("dq") + 64), expected);

  const auto described = parse_problem("direction=backward h=2 sq=8 d=4 do_strides=0,0,0,0");
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  ASSERT_EQ(fovea_problem_describe(described.get(), &config), FOVEA_OK);
  EXPECT_EQ(config.do_strides[0], FOVEA_ZERO_STRIDE);
  fovea_problem again = nullptr;
  ASSERT_EQ(fovea_problem_create(&config, &again), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(fovea_problem_equal(again, described.get()), 1);
  fovea_problem_destroy(again);
}

TEST(Call, RefusedBindingsWriteNothing) {
  CCall call("h=2 sq=8 d=4 lse=1");
  const std::vector<float> before(call.floats("o"), call.floats("o") + 64);
  call.bindings.lse = nullptr;
  EXPECT_EQ(call.outcome(), "FOVEA_INVALID_ARGUMENT: lse: must not be null");
  EXPECT_EQ(std::vector<float>(call.floats("o"), call.floats("o") + 64), before);
}

TEST(Call, ForwardAsksForItsWorkspaceWithoutRunning) {
  CCall call("h=2 sq=8 d=4");
  const fovea_plan_options options = reference_options();
  std::size_t bytes = 0;
  ASSERT_EQ(fovea_forward(call.problem.get(), &options, nullptr, &bytes), FOVEA_OK);
  EXPECT_EQ(bytes, call.bindings.workspace_bytes);
  fovea_sizes larger = call.config.sizes;
  larger.sq = larger.skv = 1000;
  fovea_bindings sized{};
  sized.struct_size = sizeof sized;
  sized.sizes = &larger;
  std::size_t more = 0;
  ASSERT_EQ(fovea_forward(call.problem.get(), &options, &sized, &more), FOVEA_OK);
  EXPECT_GT(more, bytes);
}

// Only what sizes can break is checked again, with the same words as for a problem.
TEST(Call, AWorkspaceIsNotAskedForWithSizesThatNoProblemHas) {
  struct Row {
    const char* line;
    fovea_sizes sizes;
    const char* error;
  };
  const Row rows[] = {
      {"h=2 sq=8 d=4", {1, 3, 2, 8, 8, 4, 4, 0, 0}, "h=3: must be a multiple of hkv=2"},
      {"h=2 sq=8 d=4", {1, 2, 2, 8, 8, 4, 4, 5, 0}, "tq=5: only layout=thd has packed rows"},
      {"h=2 sq=8 d=4 q_offset=7",
       {1, 2, 2, 2147483645, 8, 1, 1, 0, 0},
       "q_offset=7: positions must stay below 2^31 (sq=2147483645)"},
      {"h=2 sq=8 d=4 mod=\"score + t[h,q,k]\" tensor=t:f32[Sq,Sq,Skv]",
       {1, 1, 1, 2000000000, 2000000000, 1, 1, 0, 0},
       "tensor t=[2000000000,2000000000,2000000000]: has more bytes than 64 bits can count"},
  };
  for (const Row& row : rows) {
    CCall call(row.line);
    std::size_t bytes = 0;
    EXPECT_EQ(fovea_plan_workspace(call.plan.get(), &row.sizes, &bytes), FOVEA_INVALID_ARGUMENT);
    EXPECT_STREQ(fovea_last_error(), row.error);
    fovea_sizes fine = call.config.sizes;
    fine.sq = 16;
    EXPECT_EQ(fovea_plan_workspace(call.plan.get(), &fine, &bytes), FOVEA_OK) << row.line;
  }
}

TEST(Call, AClassifiedTileIsWhatTheMaskSays) {
  const auto program = parse_program("mask=\"doc[q] == doc[k]\" tensor=doc:i32[Sq]");
  std::vector<std::int32_t> doc(64);
  for (int i = 0; i < 64; ++i) doc[static_cast<std::size_t>(i)] = i / 16;
  fovea_tensor_binding binding{"doc", {}, {}};
  binding.array.data = doc.data();
  fovea_box box{};
  box.struct_size = sizeof box;
  box.at.struct_size = sizeof box.at;
  box.at.Sq = box.at.Skv = 64;
  box.at.tensors = &binding;
  box.at.tensor_count = 1;
  const auto tile = [&](std::int32_t q, std::int32_t k) {
    box.q_first = q, box.q_last = q + 16, box.k_first = k, box.k_last = k + 16;
    fovea_tile_class out = FOVEA_TILE_MIXED;
    EXPECT_EQ(fovea_program_classify(program.get(), &box, &out), FOVEA_OK) << fovea_last_error();
    return out;
  };
  EXPECT_EQ(tile(16, 16), FOVEA_TILE_FULL);
  EXPECT_EQ(tile(16, 32), FOVEA_TILE_EMPTY);
  EXPECT_EQ(tile(8, 8), FOVEA_TILE_MIXED);
}

void keep_line(void* context, const char* line) {
  static_cast<std::vector<std::string>*>(context)->push_back(line);
}

TEST(Verbose, EveryCallIsALineThatReadsBackWithItsValues) {
  CCall call("b=2 h=2 sq=8 d=4 dropout=0.5 qlens=bound mod=\"score * x\" scalar=x q_offset=bound");
  std::vector<std::string> lines;
  fovea_set_log(keep_line, &lines);
  const std::int32_t lengths[] = {3, 8};
  call.bindings.q_lengths = lengths;
  call.scalars[0].value = 1.5;
  call.bindings.seed.value = 42;
  EXPECT_EQ(call.outcome(), "accepted");
  fovea_set_log(nullptr, nullptr);
  ASSERT_EQ(lines.size(), 1u);
  const std::string& said = lines[0];
  ASSERT_TRUE(said.starts_with("fovea run '")) << said;
  EXPECT_TRUE(said.ends_with("' --engine reference  # call")) << said;
  const std::string line = said.substr(11, said.rfind("' --engine") - 11);
  for (const auto& [key, value] :
       {std::pair{"qlens", "3,8"}, std::pair{"seed", "42"}, std::pair{"q_offset", "0,1"},
        std::pair{"scalar", "x:f32=1.5"}}) {
    fovea_report found = nullptr;
    ASSERT_EQ(fovea_line_value(line.c_str(), key, &found), FOVEA_OK) << fovea_last_error();
    EXPECT_EQ(text_of(found), value) << key << " in " << line;
  }
  const auto again = parse_problem(line);
  EXPECT_EQ(fovea_problem_equal(again.get(), call.problem.get()), 1) << line;
}

TEST(Call, TheHostsThreadsAreAccepted) {
  CCall call("h=2 sq=8 d=4");
  const std::vector<float> own = output(call);
  const auto run_backwards = [](void*, std::size_t count, void (*task)(void*, std::size_t),
                                void* context) {
    while (count-- > 0) task(context, count);
  };
  const fovea_executor executor{sizeof executor, nullptr, 4, run_backwards};
  call.bindings.executor = &executor;
  EXPECT_EQ(output(call), own);
}

TEST(Call, FoveasOwnThreadsMayBeLimited) {
  CCall call("h=4 sq=64 d=16");
  const std::vector<float> own = output(call);
  for (const int threads : {0, 1, 2, 1000}) {
    const fovea_executor at_most{sizeof at_most, nullptr, threads, nullptr};
    call.bindings.executor = &at_most;
    EXPECT_EQ(output(call), own) << threads;
  }
}

// A program's text is read again if its literals were rounded to f32.
TEST(Describe, F64TensorsKeepNumbersAsDoubles) {
  const auto program = parse_program("mod=\"score * 0.30151134457776363 + x\" scalar=x=0.1");
  const auto line_of = [&](fovea_dtype dtype, fovea_program with) {
    fovea_problem_config config{};
    config.struct_size = sizeof config;
    config.sizes = {1, 1, 1, 8, 8, 4, 4, 0, 0};
    config.dtype = dtype;
    config.program = with;
    config.scale_f64 = 0.7071067811865476;
    fovea_problem made = nullptr;
    EXPECT_EQ(fovea_problem_create(&config, &made), FOVEA_OK) << fovea_last_error();
    const Owned<fovea_problem> problem(made);
    fovea_report report = nullptr;
    EXPECT_EQ(fovea_problem_print(problem.get(), &report), FOVEA_OK);
    return text_of(report);
  };
  const std::string in_double =
      "sq=8 d=4 dtype=f64 mod=\"x + score * 0.30151134457776363\" scalar=x:f32=0.1 "
      "scale=0.7071067811865476";
  const std::string in_f32 =
      "sq=8 d=4 mod=\"x + score * 0.30151135\" scalar=x:f32=0.1 scale=0.70710677";
  EXPECT_EQ(line_of(FOVEA_F64, program.get()), in_double);
  EXPECT_EQ(line_of(FOVEA_F32, program.get()), in_f32);

  const auto read = parse_problem(in_double);
  fovea_program of_problem = nullptr;
  ASSERT_EQ(fovea_problem_program(read.get(), &of_problem), FOVEA_OK);
  const Owned<fovea_program> owned(of_problem);
  EXPECT_EQ(line_of(FOVEA_F64, of_problem), in_double);
  EXPECT_EQ(line_of(FOVEA_F32, of_problem), in_f32);
}

TEST(Describe, EveryFieldComesBack) {
  const auto original = parse_problem(
      "direction=backward b=2 h=4 hkv=2 sq=8 skv=6 d=4 dv=2 dtype=bf16 layout=bshd scale=0.5 "
      "dropout=0.25 sink=1 qlens=bound klens=bound dlse=1 mod=\"score + t[h]\" tensor=t:f32[H] "
      "grads=q,v,t,sink o_dtype=f32 grad_dtype=f32 q_strides=512,4,64,1 h_offset=4 h_global=16 "
      "b_offset=3 q_offset=5 k_offset=bound deterministic=1 capture=1");
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  ASSERT_EQ(fovea_problem_describe(original.get(), &config), FOVEA_OK);
  fovea_problem again = nullptr;
  ASSERT_EQ(fovea_problem_create(&config, &again), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(fovea_problem_equal(original.get(), again), 1);
  fovea_problem_destroy(again);
}

}  // namespace
