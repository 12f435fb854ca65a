// Bad arguments of every function: null pointers, structs, enumerations, configs, options, lines.
// Each with the whole text it must be refused with.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>

#include "tests/capi/c_call.h"

namespace {

using namespace fovea::testing;

struct BadCall {
  std::function<fovea_status()> call;
  std::string expected;
};

void check(const std::vector<BadCall>& cases) {
  for (const BadCall& bad : cases) {
    SCOPED_TRACE(bad.expected);
    EXPECT_EQ(bad.call(), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(fovea_last_error(), bad.expected);
  }
}

// An enumeration with a number that is none of its enumerators.
template <class Enum>
Enum none(int value) {
  Enum out{};
  std::memcpy(&out, &value, sizeof value);
  return out;
}

struct Objects {
  Owned<fovea_program> program = parse_program("mod=\"score * x\" scalar=x=2 mask=causal");
  Owned<fovea_problem> problem = parse_problem("h=2 sq=8 d=4");
  Owned<fovea_problem> backward = parse_problem("direction=backward h=2 sq=8 d=4");
  fovea_program p = program.get();
  fovea_problem f = problem.get();
  fovea_report report = nullptr;
  fovea_answer answer = FOVEA_NO;
  fovea_plan plan = nullptr;
  std::size_t bytes = 0;
  double error = 0;
  fovea_tile_class tile = FOVEA_TILE_MIXED;
  fovea_point point{};
  fovea_value value{};
  fovea_box box{};
  fovea_plan_options reference = reference_options();

  Objects() {
    point.struct_size = sizeof point;
    value.struct_size = sizeof value;
    box.struct_size = sizeof box;
    box.at = point;
  }
};

TEST(BadArguments, NullPointers) {
  Objects o;
  fovea_program program = nullptr;
  fovea_problem problem = nullptr;
  fovea_bundle bundle = nullptr;
  fovea_problem_config config{};
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  check({
      {[&] { return fovea_program_parse(nullptr, &program); }, "line is NULL"},
      {[&] { return fovea_program_parse("", nullptr); }, "program is NULL"},
      {[&] { return fovea_program_print(nullptr, FOVEA_TEXT_CANONICAL, &o.report); },
       "program is NULL"},
      {[&] { return fovea_program_print(o.p, FOVEA_TEXT_CANONICAL, nullptr); }, "report is NULL"},
      {[&] {
         return fovea_program_differentiate(nullptr, "score", FOVEA_TEXT_CANONICAL, &o.report);
       },
       "program is NULL"},
      {[&] { return fovea_program_differentiate(o.p, "score", FOVEA_TEXT_CANONICAL, nullptr); },
       "report is NULL"},
      {[&] { return fovea_program_check_bprop(nullptr, 1, 1, &o.error, nullptr); },
       "program is NULL"},
      {[&] { return fovea_program_check_bprop(o.p, 1, 1, nullptr, nullptr); }, "error is NULL"},
      {[&] { return fovea_program_tensor(nullptr, 0, &info); }, "program is NULL"},
      {[&] { return fovea_program_scalar(o.p, 0, nullptr); }, "info is NULL"},
      {[&] { return fovea_program_evaluate(o.p, nullptr, 0, &o.value); }, "point is NULL"},
      {[&] { return fovea_program_evaluate(o.p, &o.point, 0, nullptr); }, "value is NULL"},
      {[&] { return fovea_program_classify(o.p, nullptr, &o.tile); }, "box is NULL"},
      {[&] { return fovea_program_classify(o.p, &o.box, nullptr); }, "tile is NULL"},
      {[&] { return fovea_problem_create(nullptr, &problem); }, "config is NULL"},
      {[&] { return fovea_problem_create(&config, nullptr); }, "problem is NULL"},
      {[&] { return fovea_problem_parse(nullptr, &problem, nullptr); }, "line is NULL"},
      {[&] { return fovea_problem_parse("", nullptr, nullptr); }, "problem is NULL"},
      {[&] { return fovea_line_value(nullptr, "b", &o.report); }, "line is NULL"},
      {[&] { return fovea_line_value("b=1", nullptr, &o.report); }, "key is NULL"},
      {[&] { return fovea_line_value("b=1", "b", nullptr); }, "value is NULL"},
      {[&] { return fovea_problem_program(nullptr, &program); }, "problem is NULL"},
      {[&] { return fovea_problem_program(o.f, nullptr); }, "program is NULL"},
      {[&] { return fovea_problem_print(nullptr, &o.report); }, "problem is NULL"},
      {[&] { return fovea_problem_describe(nullptr, &config); }, "problem is NULL"},
      {[&] { return fovea_problem_describe(o.f, nullptr); }, "config is NULL"},
      {[&] { return fovea_supported(nullptr, nullptr, &o.answer, nullptr); }, "problem is NULL"},
      {[&] { return fovea_supported(o.f, nullptr, nullptr, nullptr); }, "answer is NULL"},
      {[&] { return fovea_explain(nullptr, nullptr, 0, &o.report); }, "problem is NULL"},
      {[&] { return fovea_explain(o.f, nullptr, 0, nullptr); }, "report is NULL"},
      {[&] { return fovea_parallel_plan(nullptr, nullptr, nullptr, 0, &o.report); },
       "problem is NULL"},
      {[&] { return fovea_parallel_plan(o.f, nullptr, nullptr, 0, &o.report); }, "config is NULL"},
      {[&] { return fovea_plan_create(nullptr, nullptr, &o.plan); }, "problem is NULL"},
      {[&] { return fovea_plan_create(o.f, nullptr, nullptr); }, "plan is NULL"},
      {[&] { return fovea_plan_workspace(nullptr, nullptr, &o.bytes); }, "plan is NULL"},
      {[&] { return fovea_plan_run(nullptr, nullptr); }, "plan is NULL"},
      {[&] { return fovea_forward(nullptr, nullptr, nullptr, nullptr); }, "problem is NULL"},
      {[&] { return fovea_forward(o.f, &o.reference, nullptr, nullptr); }, "bindings is NULL"},
      {[&] { return fovea_backward(nullptr, nullptr, nullptr, nullptr); }, "problem is NULL"},
      {[&] { return fovea_cache_statistics(nullptr); }, "stats is NULL"},
      {[&] { return fovea_doctor(nullptr); }, "report is NULL"},
      {[&] { return fovea_bundle_load(nullptr); }, "path is NULL"},
      {[&] { return fovea_bundle_create("x", nullptr); }, "bundle is NULL"},
      {[&] { return fovea_bundle_create(nullptr, &bundle); }, "path is NULL"},
      {[&] { return fovea_bundle_create("", &bundle); }, "path is empty; it must name a file"},
      {[&] { return fovea_bundle_add(nullptr, o.f, nullptr, nullptr); }, "bundle is NULL"},
      {[&] { return fovea_bundle_merge(nullptr, "x"); }, "bundle is NULL"},
      {[&] { return fovea_bundle_finish(nullptr, nullptr, nullptr); }, "bundle is NULL"},
      {[&] { return fovea_disk_cache_folder(nullptr); }, "report is NULL"},
      {[&] { return fovea_disk_cache_list(0, nullptr, nullptr); }, "report is NULL"},
  });
}

TEST(BadArguments, NumbersAndNames) {
  Objects o;
  CCall call("h=2 sq=8 d=4");
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  fovea_plan_options options = reference_options();
  const auto supported = [&](const char* engine, const char* device) {
    options.engine = engine;
    options.device = device;
    return fovea_supported(o.f, &options, &o.answer, nullptr);
  };
  const fovea_sizes negative{1, 2, 2, -8, 8, 4, 4, 0, 0};
  check({
      {[&] { return fovea_program_print(o.p, none<fovea_text_form>(7), &o.report); },
       "form is 7, which is no fovea_text_form (0 to 2)"},
      {[&] { return fovea_program_differentiate(o.p, "scor", FOVEA_TEXT_CANONICAL, &o.report); },
       "by is 'scor', which is neither score nor captured by the program; did you mean 'score'?"},
      {[&] { return fovea_program_check_bprop(o.p, 1, 0, &o.error, nullptr); },
       "points is 0; it must be 1 to 10000000"},
      {[&] { return fovea_program_check_bprop(o.p, 1, 9, &o.error, nullptr); },
       "check_bprop: the program has no bprop formula"},
      {[&] { return fovea_program_tensor(o.p, 0, &info); },
       "i is 0, but the program captures 0 tensors"},
      {[&] { return fovea_program_scalar(o.p, 1, &info); },
       "i is 1, but the program captures 1 scalars"},
      {[&] { return fovea_explain(o.f, nullptr, 12, &o.report); },
       "flags is 12; it may have FOVEA_EXPLAIN_JSON (1) and FOVEA_EXPLAIN_PROVE (2)"},
      {[&] { return supported("refrence", nullptr); },
       "engine 'refrence' is unknown; did you mean 'reference'? (engines: cudnn, jit, cpu, reference)"},
      {[&] { return supported(nullptr, "cpuu"); },
       "device=cpuu: is not cpu, cuda:N, a100, h200, b200 or the path of a JSON description; did you mean "
       "'cpu'?"},
      {[&] { return supported(nullptr, "cuda:x"); },
       "device=cuda:x: a GPU is named cuda:N, N being its number"},
      {[&] { return supported(nullptr, "/nowhere/at/all.json"); },
       "device=/nowhere/at/all.json: there is no such file"},
      {[&] { return fovea_forward(o.backward.get(), &o.reference, nullptr, &o.bytes); },
       "problem is a backward; fovea_forward takes a forward"},
      {[&] { return fovea_backward(o.f, &o.reference, nullptr, &o.bytes); },
       "problem is a forward; fovea_backward takes a backward"},
      {[&] { return fovea_plan_workspace(call.plan.get(), &negative, &o.bytes); },
       "sq=-8: must be 0 or more"},
      {[&] { return fovea_line_value("b=\"1", "b", &o.report); },
       "at character 3 of the line: this quote is never closed"},
      {[&] {
         o.point.Sq = -3;
         return fovea_program_evaluate(o.p, &o.point, 0, &o.value);
       },
       "point.Sq is -3; it must be 0 or more"},
      {[&] {
         o.box.q_first = 3;
         return fovea_program_classify(o.p, &o.box, &o.tile);
       },
       "box.q_first is 3 and box.q_last is 0; a tile is first <= x < last, so last must not be "
       "less"},
      {[&] {
         o.box.at.struct_size = 4;
         return fovea_program_classify(o.p, &o.box, &o.tile);
       },
       "box.at.struct_size is 4; set it to sizeof(fovea_point), 96 here"},
      {[&] {
         options.struct_size = 3;
         return supported("reference", nullptr);
       },
       "options.struct_size is 3; too small: set it to sizeof(fovea_plan_options), 32 here"},
  });
}

// Rules of a Problem that lines.txt has, too, are not repeated.
struct BadConfig {
  std::function<void(fovea_problem_config&)> breaks;
  const char* expected;
};

TEST(BadArguments, Configs) {
  using Config = fovea_problem_config;
  static const int something = 0;
  const BadConfig cases[] = {
      {[](Config& c) { c.direction = none<fovea_direction>(3); },
       "config.direction is 3, which is no fovea_direction (0 to 2)"},
      {[](Config& c) { c.layout = none<fovea_layout>(-1); },
       "config.layout is -1, which is no fovea_layout (0 to 3)"},
      {[](Config& c) { c.dtype = none<fovea_dtype>(9); },
       "config.dtype is 9, which is no fovea_dtype (0 to 8)"},
      {[](Config& c) { c.dq_dtype = none<fovea_dtype>(1000); },
       "config.dq_dtype is 1000, which is no fovea_dtype (0 to 8)"},
      {[](Config& c) { c.rng = none<fovea_rng>(5); },
       "config.rng is 5, which is no fovea_rng (0 to 1)"},
      {[](Config& c) { c.dtype = FOVEA_I32; }, "q_dtype=i32: must be f32, bf16, f16 or f64"},
      {[](Config& c) { c.reserved[3] = &something; },
       "config.reserved[3] is set; reserved fields must be NULL"},
      {[](Config& c) { c.sizes.hkv = 3; }, "h=4: must be a multiple of hkv=3"},
      {[](Config& c) { c.sizes.d = std::int64_t{1} << 62; },
       "d=4611686018427387904: must be below 2^31"},
      {[](Config& c) { c.grads = "q"; }, "config.grads is 'q', but a forward has no gradients"},
      {[](Config& c) { c.has_grad_lse = 1; },
       "dlse=1: is an input of a backward; this is a forward"},
      {[](Config& c) { c.dq_dtype = FOVEA_BF16; },
       "dq: a forward has no gradients: leave its type f32 and its strides absent"},
      {[](Config& c) { c.dk_strides[3] = 1; },
       "dk: a forward has no gradients: leave its type f32 and its strides absent"},
      {[](Config& c) { c.q_strides[0] = -1; }, "q_strides=-1,0,0,0: strides must be 0 or more"},
      {[](Config& c) { c.o_strides[0] = FOVEA_ZERO_STRIDE; },
       "o_strides=0,0,0,0: elements of an output must not overlap (extents 1,4,8,4)"},
      {[](Config& c) { c.direction = FOVEA_BACKWARD, c.lse = 1; },
       "lse=1: is an output of a forward; a backward reads it always"},
      {[](Config& c) { c.has_q_offsets = 1, c.q_offset = 4; },
       "q_offset=4: offsets are bound per sequence (has_q_offsets); must be 0"},
  };
  for (const BadConfig& bad : cases) {
    SCOPED_TRACE(bad.expected);
    Config config{};
    config.struct_size = sizeof config;
    config.sizes = {1, 4, 2, 8, 8, 4, 4, 0, 0};
    bad.breaks(config);
    fovea_problem problem = nullptr;
    EXPECT_EQ(fovea_problem_create(&config, &problem), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(problem, nullptr);
    EXPECT_STREQ(fovea_last_error(), bad.expected);
  }
}

struct BadLine {
  std::string parser, line, expected;
};

std::vector<BadLine> read_cases() {
  std::ifstream file(FOVEA_SOURCE_DIR "/tests/error/lines.txt");
  std::vector<BadLine> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("  > ")) {
      std::string& expected = cases.back().expected;
      expected += (expected.empty() ? "" : "\n") + line.substr(4);
      continue;
    }
    const std::size_t space = line.find(' '), arrow = line.find(" => ");
    cases.push_back({line.substr(0, space), line.substr(space + 1, arrow - space - 1),
                     arrow == std::string::npos ? "" : line.substr(arrow + 4)});
  }
  return cases;
}

std::string refusal(const BadLine& bad) {
  fovea_status status = FOVEA_OK;
  if (bad.parser == "program") {
    fovea_program program = nullptr;
    status = fovea_program_parse(bad.line.c_str(), &program);
    EXPECT_EQ(program, nullptr);
  } else {
    fovea_problem problem = nullptr, backward = nullptr;
    status = fovea_problem_parse(bad.line.c_str(), &problem, &backward);
    EXPECT_EQ(problem, nullptr);
    EXPECT_EQ(backward, nullptr);
  }
  EXPECT_EQ(status, FOVEA_INVALID_ARGUMENT);
  return fovea_last_error();
}

TEST(BadLines, AreRefusedWithTheirTexts) {
  const std::vector<BadLine> cases = read_cases();
  EXPECT_GE(cases.size(), 100u);
  for (const BadLine& bad : cases) {
    SCOPED_TRACE(bad.parser + " " + bad.line);
    ASSERT_NE(bad.expected, "");
    EXPECT_EQ(refusal(bad), bad.expected);
  }
}

// Failures that are not due to an invalid argument have another status.
TEST(OtherStatuses, UnsupportedAndDevice) {
  Objects o;
  fovea_problem in_double = nullptr;  // the reference engine alone can, and it was not named
  ASSERT_EQ(fovea_problem_parse("h=2 sq=4 d=4 dtype=f64", &in_double, nullptr), FOVEA_OK);
  EXPECT_EQ(fovea_plan_create(in_double, nullptr, &o.plan), FOVEA_UNSUPPORTED);
  fovea_problem_destroy(in_double);
  EXPECT_EQ(o.plan, nullptr);
  EXPECT_NE(std::string(fovea_last_error()).find("reference"), std::string::npos);
  fovea_plan_options options = reference_options();
  options.device = "cuda:77";
  EXPECT_EQ(fovea_plan_create(o.f, &options, &o.plan), FOVEA_DEVICE_ERROR);
  EXPECT_NE(std::string(fovea_last_error()).find("device cuda:77: "), std::string::npos);
  options.device = "h200";
  EXPECT_EQ(fovea_plan_create(o.f, &options, &o.plan), FOVEA_UNSUPPORTED);
  EXPECT_NE(std::string(fovea_last_error()).find("runs on a CPU"), std::string::npos);
}

}  // namespace
