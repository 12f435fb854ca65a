// What a plan of engine jit depends on: a new length, batch, scale, number or place builds nothing.
#include "tests/engines/jit/jit_case.h"

#include "engines/jit/judge.h"

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

// Numbers that move positions as other callers write them: in the formula.
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

// What engine jit refuses, and why.

std::string code_of(const Baked& baked, const Device& device) {
  const Verdict verdict = judge(baked.problem, device);
  return verdict.answer == Answer::No ? verdict.reasons.front().code : "";
}

TEST(JitJudge, RunsOnGpusFromSm80On) {
  const Baked baked = baked_forward("sq=8 d=8 dtype=bf16");
  EXPECT_EQ(code_of(baked, cpu_device()), "device_not_cuda");
  for (const std::string& name : built_in_devices()) {
    EXPECT_EQ(code_of(baked, find_device(name)), "") << name;
  }
  Device old = find_device("a100");
  old.sm = 75;
  EXPECT_EQ(code_of(baked, old), "architecture");
}

TEST(JitJudge, RefusesF64AndWideHeads) {
  const Device h200 = find_device("h200");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=8 dtype=f64"), h200), "dtype_unknown");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=8 mod=score+t[q] tensor=t:f64[Sq]"), h200),
            "captured_dtype_unknown");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=576 dv=512"), h200), "");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=577 dv=512"), h200), "head_dim");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=64 dv=513"), h200), "head_dim");
  EXPECT_EQ(code_of(baked_backward("sq=8 d=320"), h200), "");
  EXPECT_EQ(code_of(baked_backward("sq=8 d=321"), h200), "head_dim");
}

TEST(JitJudge, RefusesTilesThatDoNotFit) {
  Device small = find_device("h200");
  small.sm = 120;
  small.shared_memory_per_block = 101376;
  EXPECT_EQ(code_of(baked_forward("sq=8 d=576 dv=512"), small), "shared_memory");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=576 dv=512 dtype=bf16"), small), "");
  EXPECT_EQ(code_of(baked_forward("sq=8 d=256"), small), "");
}

// Which of two backwards runs, and why, also if only the rendered formula says so.
TEST(JitJudge, NamesTheBackward) {
  const std::string sizes = "h=2 sq=999 d=128 dtype=bf16 ";
  const auto says = [&](const std::string& line, const char* words) {
    const Verdict verdict = judge(baked_backward(sizes + line).problem, find_device("h200"));
    EXPECT_NE(verdict.note.find(words), std::string::npos) << verdict.note;
  };
  says("mod=score+t[h,k-q] tensor=t:f32[H,9] grads=q,k,v,t", "is that for sm_90");
  says("mod=score+t[q,k] tensor=t:f32[Sq,Skv]", "of 16 bits");
  says("mod=score+t[h,q*k] tensor=t:f32[H,9] grads=q,k,v,t", "of tables");
  std::string mod = "score", tensors;
  for (int i = 0; i < 99; ++i) {
    mod = "max(" + mod + ",t" + std::to_string(i) + "[k])";
    tensors += " tensor=t" + std::to_string(i) + ":f32[Skv]";
  }
  says("mod=" + mod + tensors, "too many values");
}

TEST(JitJudge, TakesWhatParametersHold) {
  const Device h200 = find_device("h200");
  std::string mod = "score", line = "sq=8 d=8";
  for (int i = 0; i < 250; ++i) {
    const std::string name = "t" + std::to_string(i);
    mod += " + " + name + "[0,0,0,0,0,0,0,0]";
    line += " tensor=" + name + ":f32[1,1,1,1,1,1,1,1]";
  }
  EXPECT_EQ(code_of(baked_forward(line + " mod=\"" + mod + "\""), h200), "too_many_captured");
}

}  // namespace
}  // namespace fovea::jit::testing
