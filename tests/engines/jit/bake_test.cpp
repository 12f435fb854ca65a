// What a plan of engine jit depends on: a new length, batch, scale, number or place builds nothing.
#include "tests/engines/jit/jit_case.h"

namespace fovea::jit::testing {
namespace {

TEST(JitBake, SizesAndValuesAreNotBaked) {
  const Baked first =
      baked_forward("b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal");
  for (
      const char* const line : {
          "b=3 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal",
          "b=2 h=16 hkv=4 sq=999 skv=4096 d=64 dtype=bf16 mod=softcap(30) mask=causal",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal scale=0.3",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(50) mask=causal",
          "b=2 h=8 sq=128 skv=256 d=33 dv=40 dtype=bf16 mod=softcap(30) mask=causal",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal layout=bshd",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal q_offset=7 h_offset=3",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal h_global=64",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal values=device",
          "b=2 h=8 sq=128 skv=256 d=64 dtype=bf16 mod=softcap(30) mask=causal capture=1",
      }) {
    EXPECT_TRUE(baked_forward(line) == first) << line;
  }
}

TEST(JitBake, WhatKernelsAreCompiledForIsBaked) {
  const Baked first = baked_forward("b=2 h=8 sq=128 d=64 dtype=bf16 mask=causal");
  for (const char* const line : {
           "b=2 h=8 sq=128 d=65 dtype=bf16 mask=causal",
           "b=2 h=8 sq=128 d=64 dv=128 dtype=bf16 mask=causal",
           "b=2 h=8 sq=128 d=64 dtype=f16 mask=causal",
           "b=2 h=8 sq=128 d=64 dtype=bf16 o_dtype=f32 mask=causal",
           "b=2 h=8 sq=128 d=64 dtype=bf16",
           "b=2 h=8 sq=128 d=64 dtype=bf16 mask=causal dropout=0.1",
           "b=2 h=8 sq=128 d=64 dtype=bf16 mask=causal deterministic=1",
       }) {
    EXPECT_FALSE(baked_forward(line) == first) << line;
  }
}

TEST(JitBake, FewQueriesHaveKernelsOfTheirOwn) {
  const Baked few = baked_forward("h=8 sq=1 skv=4096 d=64 dtype=bf16");
  EXPECT_FALSE(few == baked_forward("h=8 sq=128 skv=4096 d=64 dtype=bf16"));
  EXPECT_TRUE(few == baked_forward("b=9 h=8 hkv=2 sq=2 skv=100 d=64 dtype=bf16"));
}

// As fovea.torch writes the calls of a decoder: one more key each time, and numbers that move
// positions.
TEST(JitBake, TheNextTokenIsNot) {
  const std::string of_torch =
      " b=2 h=4 sq=1 d=64 dtype=bf16 mask=\"seen[b, k + i1] && k <= q + i0\" tensor=seen:bool[B,Skv] "
      "scalar=i0:i32 scalar=i1:i32";
  const Baked first = baked_forward("skv=198 tensor_strides=seen:512,1" + of_torch);
  EXPECT_TRUE(first == baked_forward("skv=199 tensor_strides=seen:512,1" + of_torch));
  EXPECT_TRUE(first == baked_forward("skv=512" + of_torch));
}

// As everybody else writes them.
TEST(JitBake, NumbersThatShiftPositionsAreNot) {
  const auto decoded = [](int token) {
    const std::string first = std::to_string(token - 32), offset = std::to_string(token);
    return "b=2 h=4 sq=1 skv=32 d=64 dtype=bf16 tensor=seen:bool[B,200] mask=\"k + " + first +
           " <= q + " + offset + " && q + " + offset + " - k - " + first + " < 32 && seen[b, k + " +
           first + "]\"";
  };
  const Baked first = baked_forward(decoded(40));
  for (const int token : {41, 64, 199})
    EXPECT_TRUE(baked_forward(decoded(token)) == first) << token;
  EXPECT_FALSE(bake(forward_of(decoded(41))).literals == bake(forward_of(decoded(40))).literals);
}

TEST(JitBake, HowMuchIsDroppedIsNot) {
  EXPECT_TRUE(baked_forward("sq=8 d=8 dropout=0.1") == baked_forward("sq=8 d=8 dropout=0.3"));
  EXPECT_TRUE(baked_forward("sq=8 d=8 dropout=0.1 rng=engine") ==
              baked_forward("sq=8 d=8 dropout=0.1"));
}

TEST(JitBake, GradientsThatAreWantedAreBaked) {
  const std::string line = "h=2 sq=8 d=8 mod=score+slopes[h]*(k-q) tensor=slopes:f32[H]";
  EXPECT_FALSE(baked_backward(line) == baked_backward(line + " grads=q,k,v,slopes"));
  EXPECT_FALSE(baked_backward(line) == baked_backward(line + " grads=q"));
  EXPECT_TRUE(baked_backward(line) == baked_backward(line + " b=3"));
}

TEST(JitBake, AllHeadsCountForTablesOfCapturedTensors) {
  const std::string line = "h=2 sq=8 d=8 mask=t[h]>k tensor=t:i32[H]";
  EXPECT_FALSE(baked_forward(line) == baked_forward(line + " h_global=64"));
}

TEST(JitBake, HeadDimsHaveClasses) {
  for (const auto& [d, size] : {std::pair{0, 32},
                                {1, 32},
                                {33, 64},
                                {65, 96},
                                {97, 128},
                                {129, 192},
                                {193, 256},
                                {257, 320},
                                {576, 576},
                                {577, 577}}) {
    EXPECT_EQ(class_of_d(d), size) << d;
  }
  for (const auto& [dv, size] :
       {std::pair{64, 64}, {256, 256}, {257, 512}, {512, 512}, {513, 513}}) {
    EXPECT_EQ(class_of_dv(dv), size) << dv;
  }
}

}  // namespace
}  // namespace fovea::jit::testing
