// What engine jit refuses, and why.
#include "engines/jit/judge.h"

#include "tests/engines/jit/jit_case.h"

namespace fovea::jit::testing {
namespace {

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
