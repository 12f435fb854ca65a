// Every rule of a Problem, each with its text.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "attention/problem_text.h"
#include "attention/validate.h"
#include "base/error.h"
#include "ir/parse.h"

namespace fovea {
namespace {

std::string refusal(const Problem& problem) {
  try {
    validate(problem);
    return "accepted";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

struct Rule {
  std::string text;
  std::function<void(Problem&)> breaks;
};

Problem forward() { return *parse_problem_line("b=2 h=4 hkv=2 sq=8 skv=16 d=32").forward; }
Problem backward() {
  return *parse_problem_line(
              "direction=backward b=2 h=4 hkv=2 sq=8 skv=16 d=32 sink=1 "
              R"~(mod="score*heat + bias[h]" scalar=heat tensor=bias:f16[H] )~"
              R"~(mask="doc[q] < n" tensor=doc:i32[Sq] scalar=n:i32)~")
              .backward;
}
constexpr std::int64_t big = std::int64_t{1} << 31;

const Rule size_rules[] = {
    {"b=-1: must be 0 or more", [](Problem& p) { p.sizes.b = -1; }},
    {"h=-4: must be 0 or more", [](Problem& p) { p.sizes.h = -4; }},
    {"hkv=-1: must be 0 or more", [](Problem& p) { p.sizes.hkv = -1; }},
    {"sq=-1: must be 0 or more", [](Problem& p) { p.sizes.sq = -1; }},
    {"skv=-1: must be 0 or more", [](Problem& p) { p.sizes.skv = -1; }},
    {"d=-1: must be 0 or more", [](Problem& p) { p.sizes.d = -1; }},
    {"dv=-1: must be 0 or more", [](Problem& p) { p.sizes.dv = -1; }},
    {"tq=-1: must be 0 or more", [](Problem& p) { p.sizes.t_q = -1; }},
    {"tk=-1: must be 0 or more", [](Problem& p) { p.sizes.t_k = -1; }},
    {"sq=2147483648: must be below 2^31", [](Problem& p) { p.sizes.sq = big; }},
    {"b=2147483648: must be below 2^31", [](Problem& p) { p.sizes.b = big; }},
    {"h=5: must be a multiple of hkv=2", [](Problem& p) { p.sizes.h = 5; }},
    {"hkv=0: must be 1 or more where there are heads", [](Problem& p) { p.sizes.hkv = 0; }},
    {"tq=5: only layout=thd has packed rows", [](Problem& p) { p.sizes.t_q = 5; }},
    {"tk=5: only layout=thd has packed rows", [](Problem& p) { p.sizes.t_k = 5; }},
    {"q=[2000000000,4,2000000000,32]: has more bytes than 64 bits can count (batch, heads, "
     "positions, features)",
     [](Problem& p) { p.sizes.b = p.sizes.sq = 2000000000; }},
    {"v=[0,2,2000000000,2000000000]: has more bytes than 64 bits can count (batch, heads, "
     "positions, features)",
     [](Problem& p) { p.sizes.b = 0, p.sizes.skv = p.sizes.dv = 2000000000; }},
};

const Rule number_rules[] = {
    {"scale=inf: must be finite", [](Problem& p) { p.scale = INFINITY; }},
    {"scale=nan: must be finite", [](Problem& p) { p.scale = NAN; }},
    {"dropout=1: must be at least 0 and less than 1", [](Problem& p) { p.dropout = 1; }},
    {"dropout=-0.1: must be at least 0 and less than 1", [](Problem& p) { p.dropout = -0.1f; }},
    {"dropout=nan: must be at least 0 and less than 1", [](Problem& p) { p.dropout = NAN; }},
    {"b_offset=-1: must be 0 or more", [](Problem& p) { p.b_offset = -1; }},
    {"h_offset=-1: must be 0 or more", [](Problem& p) { p.h_offset = -1; }},
    {"q_offset=-1: must be 0 or more", [](Problem& p) { p.q_offset = -1; }},
    {"k_offset=-1: must be 0 or more", [](Problem& p) { p.k_offset = -1; }},
    {"k_offset=2147483647: positions must stay below 2^31 (skv=16)",
     [](Problem& p) { p.k_offset = 2147483647; }},
    {"b_offset=2147483647: positions must stay below 2^31 (b=2)",
     [](Problem& p) { p.b_offset = 2147483647; }},
    {"h_global=-1: must be 0 or more", [](Problem& p) { p.h_global = -1; }},
    {"h_global=3: must be at least h_offset + h = 4", [](Problem& p) { p.h_global = 3; }},
    {"h_global=8: must be at least h_offset + h = 9",
     [](Problem& p) { p.h_global = 8, p.h_offset = 5; }},
    {"b=2: dropout numbers b * H + h (offsets included) in 32 bits",
     [](Problem& p) { p.dropout = 0.5f, p.b_offset = 1 << 30; }},
    {"q_offset=3: offsets are bound per sequence (has_q_offsets); must be 0",
     [](Problem& p) { p.has_q_offsets = true, p.q_offset = 3; }},
    {"k_offset=3: offsets are bound per sequence (has_k_offsets); must be 0",
     [](Problem& p) { p.has_k_offsets = true, p.k_offset = 3; }},
    {"direction=7: is no such value", [](Problem& p) { p.direction = static_cast<Direction>(7); }},
    {"layout=4: is no such value", [](Problem& p) { p.layout = static_cast<Layout>(4); }},
    {"rng=2: is no such value", [](Problem& p) { p.rng = static_cast<Rng>(2); }},
    {"precision=9: is no such value", [](Problem& p) { p.precision = static_cast<Precision>(9); }},
    {"k_dtype=99: is no such value", [](Problem& p) { p.k.dtype = static_cast<DType>(99); }},
};

const Rule tensor_rules[] = {
    {"k_dtype=bf16: q, k and v must have one type; q is f32",
     [](Problem& p) { p.k.dtype = DType::BF16; }},
    {"q_dtype=i32: must be f32, bf16, f16 or f64", [](Problem& p) { p.q.dtype = DType::I32; }},
    {"o_dtype=u8: must be f32, bf16, f16 or f64", [](Problem& p) { p.o.dtype = DType::U8; }},
    {"o_dtype=f64: f64 is for all tensors or none; q is f32",
     [](Problem& p) { p.o.dtype = DType::F64; }},
    {"o_dtype=f32: f64 is for all tensors or none; q is f64",
     [](Problem& p) { p.q.dtype = p.k.dtype = p.v.dtype = DType::F64; }},
    {"q_strides=1024,256,-32,1: strides must be 0 or more",
     [](Problem& p) { p.q.strides = Strides{1024, 256, -32, 1}; }},
    {"v_strides=0,9223372036854775807,9223372036854775807,1: reaches further than 64 bits can count",
     [](Problem& p) {
       constexpr auto far = std::numeric_limits<std::int64_t>::max();
       p.v.strides = Strides{0, far, far, 1};
     }},
    {"o_strides=0,256,32,1: elements of an output must not overlap (extents 2,4,8,32)",
     [](Problem& p) { p.o.strides = Strides{0, 256, 32, 1}; }},
    {"o_strides=1024,256,31,1: elements of an output must not overlap (extents 2,4,8,32)",
     [](Problem& p) { p.o.strides = Strides{1024, 256, 31, 1}; }},
    {"o_strides=0,0,0,0: elements of an output must not overlap (extents 2,4,8,32)",
     [](Problem& p) { p.o.strides = Strides{}; }},
    {"q_strides=5,32,128,1: the batch stride must be 0 under layout=thd",
     [](Problem& p) { p.layout = Layout::Thd, p.q.strides = Strides{5, 32, 128, 1}; }},
};

const Rule program_rules[] = {
    {"tensor=t: is captured, but there is no mod or mask to use it",
     [](Problem& p) { p.program = ir::parse_program("tensor=t:f32[H]"); }},
    {"scalar=x: is captured, but there is no mod or mask to use it",
     [](Problem& p) { p.program = ir::parse_program("scalar=x=1"); }},
    {"tensor=v: is what grads calls the problem's own; choose another name",
     [](Problem& p) { p.program = ir::parse_program(R"~(mod="score+v[h]" tensor=v:f32[H])~"); }},
    {"scalar=sink: is what grads calls the problem's own; choose another name",
     [](Problem& p) { p.program = ir::parse_program(R"~(mod="score+sink" scalar=sink)~"); }},
    {"tensor t=[4000000000,4000000000]: has more bytes than 64 bits can count",
     [](Problem& p) {
       p.program = ir::parse_program(R"~(mod="score+t[h,0]" tensor=t:f32[4000000000,4000000000])~");
     }},
    {"dlse=1: is an input of a backward; this is a forward", [](Problem& p) { p.grad_lse = true; }},
    {"grads: only a backward has gradients to choose; this is a forward",
     [](Problem& p) { p.want_q = false; }},
    {"grads: only a backward has gradients to choose; this is a forward",
     [](Problem& p) { p.want_sink = true; }},
    {"grads: only a backward has gradients to choose; this is a forward",
     [](Problem& p) { p.want_tensors = {true}; }},
    {"dq: a forward has no gradients: leave its type f32 and its strides absent",
     [](Problem& p) { p.grad_q.dtype = DType::BF16; }},
    {"do: a forward has no gradients: leave its type f32 and its strides absent",
     [](Problem& p) { p.grad_o.strides = Strides{}; }},
};

const Rule backward_rules[] = {
    {"lse=1: is an output of a forward; a backward reads it always",
     [](Problem& p) { p.lse = true; }},
    {"row_max=1: is an output of a forward; this is a backward",
     [](Problem& p) { p.row_max = true; }},
    {"max_logit=1: is an output of a forward; this is a backward",
     [](Problem& p) { p.max_logit = true; }},
    {"grads: has 0 flags for 2 captured tensors", [](Problem& p) { p.want_tensors.clear(); }},
    {"grads: has 3 flags for 2 captured scalars", [](Problem& p) { p.want_scalars.resize(3); }},
    {"grads=doc: is a tensor that is not float", [](Problem& p) { p.want_tensors = {true, true}; }},
    {"grads=n: is a scalar that is not float", [](Problem& p) { p.want_scalars = {true, true}; }},
    {"grads=sink: the problem has no sink (sink=1)",
     [](Problem& p) { p.sink = false, p.want_sink = true; }},
    {"grads: a backward must want at least one gradient",
     [](Problem& p) { p.want_q = p.want_k = p.want_v = false; }},
    {"dq_dtype=bool: must be f32, bf16, f16 or f64",
     [](Problem& p) { p.grad_q.dtype = DType::Bool; }},
    {"do_dtype=f64: f64 is for all tensors or none; q is f32",
     [](Problem& p) { p.grad_o.dtype = DType::F64; }},
    {"dk_strides=0,512,32,1: elements of an output must not overlap (extents 2,2,16,32)",
     [](Problem& p) { p.grad_k.strides = Strides{0, 512, 32, 1}; }},
};

template <std::size_t n>
void expect_rules(const Rule (&rules)[n], const Problem& start) {
  ASSERT_EQ(refusal(start), "accepted");
  for (const Rule& rule : rules) {
    Problem broken = start;
    rule.breaks(broken);
    EXPECT_EQ(refusal(broken), rule.text);
  }
}

TEST(ValidateProblem, Sizes) { expect_rules(size_rules, forward()); }
TEST(ValidateProblem, Numbers) { expect_rules(number_rules, forward()); }
TEST(ValidateProblem, Tensors) { expect_rules(tensor_rules, forward()); }
TEST(ValidateProblem, Programs) { expect_rules(program_rules, forward()); }
TEST(ValidateProblem, Backward) { expect_rules(backward_rules, backward()); }

TEST(ValidateProblem, ZeroSizesAreValid) {
  for (std::int64_t Sizes::* size : {&Sizes::b, &Sizes::sq, &Sizes::skv, &Sizes::d, &Sizes::dv}) {
    Problem p = forward();
    p.sizes.*size = 0;
    EXPECT_EQ(refusal(p), "accepted");
  }
  Problem headless = forward();
  headless.sizes.h = 0;
  EXPECT_EQ(refusal(headless), "accepted");
  headless.sizes.hkv = 0;
  EXPECT_EQ(refusal(headless), "accepted");
}

// A gradient that comes from a sum has zero strides; inputs may overlap themselves.
TEST(ValidateProblem, InputsMayHaveZeroStrides) {
  Problem p = backward();
  p.grad_o.strides = p.q.strides = p.k.strides = p.v.strides = p.o.strides = Strides{};
  EXPECT_EQ(refusal(p), "accepted");
  Problem unwanted = backward();
  unwanted.want_k = false;
  unwanted.grad_k.strides = Strides{};
  EXPECT_EQ(refusal(unwanted), "accepted");
}

TEST(ValidateProblem, OutputsOfOneElementMayHaveAnyStride) {
  Problem p = forward();
  p.sizes.b = 1;
  p.o.strides = Strides{0, 256, 32, 1};
  EXPECT_EQ(refusal(p), "accepted");
}

}  // namespace
}  // namespace fovea
