// The texts of kernels, as they are put together for a compiler.
#include "engines/jit/source.h"

#include <algorithm>

#include "engines/jit/arguments.h"
#include "engines/jit/prepare.h"
#include "tests/engines/jit/jit_case.h"

namespace fovea::jit::testing {
namespace {

PreparedPlan prepared(const std::string& line, Tier tier = Tier::General) {
  return prepare(baked_forward(line).problem, find_device("h200"), tier);
}

const PreparedUnit& unit(const PreparedPlan& all, const std::string& name) {
  for (const PreparedUnit& one : all.units) {
    if (one.source.name == name) return one;
  }
  throw std::runtime_error("no unit " + name);
}

int count(const std::string& text, const std::string& word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST(JitSource, IsWholeInItself) {
  const PreparedPlan all = prepared("b=2 h=8 sq=128 d=64 dtype=bf16 mask=causal");
  const std::string text = unit(all, "fovea_forward").source.unit().source;
  EXPECT_EQ(count(text, "#include \""), 0);
  EXPECT_EQ(count(text, "\nstruct Formula {"), 1);
  EXPECT_EQ(count(text, "struct Config {"), 1);
  EXPECT_EQ(count(text, "using Element = BF16;"), 1);
  EXPECT_EQ(count(text, "#line 1 \"primitives.h\""), 1);
  EXPECT_EQ(count(text, "__global__ void __launch_bounds__"), 1);
}

TEST(JitSource, ValuesAreNotInIt) {
  const auto own = [](const std::string& line) {
    return unit(prepared(line), "fovea_forward").source.own;
  };
  EXPECT_EQ(own("sq=8 d=64 dtype=bf16 mod=softcap(30)"),
            own("b=2 h=4 sq=99 d=50 dtype=bf16 mod=softcap(20) scale=2 layout=bshd"));
  EXPECT_EQ(own("sq=8 d=64 mask=a[q]==a[k] tensor=a:i32[Sq]"),
            own("sq=9 d=64 mask=other[q]==other[k] tensor=other:i32[9]"));
  EXPECT_NE(own("sq=8 d=64 dtype=bf16 mod=softcap(30)"),
            own("sq=8 d=64 dtype=f16 mod=softcap(30)"));
}

TEST(JitSource, KernelsWithoutAFormulaAreShared) {
  const PreparedPlan one = prepared("sq=8 d=64 dtype=bf16 mask=causal max_logit=1");
  const PreparedPlan other = prepared("sq=8 d=64 dtype=bf16 mod=softcap(3) max_logit=1");
  EXPECT_EQ(unit(one, "fovea_max_logit").source.own, unit(other, "fovea_max_logit").source.own);
  EXPECT_TRUE(unit(one, "fovea_max_logit").shared);
  EXPECT_FALSE(unit(one, "fovea_forward").shared);
}

bool has_unit(const PreparedPlan& all, const std::string& name) {
  return std::ranges::any_of(all.units,
                             [&](const PreparedUnit& one) { return one.source.name == name; });
}

// A GPU of sm_90 has a forward of its own for what that takes; the general one otherwise.
TEST(JitSource, TiersOfTheForward) {
  const auto tier = [](const std::string& line) {
    const PreparedPlan all = prepared(line, Tier::Best);
    EXPECT_NE(has_unit(all, "fovea_forward"), has_unit(all, "fovea_hopper_forward")) << line;
    return has_unit(all, "fovea_hopper_forward");
  };
  for (const char* const line :
       {"sq=999 d=64 dtype=bf16", "sq=999 d=8 dtype=f16 mask=causal", "sq=999 d=256 dtype=bf16",
        "sq=999 d=192 dv=128 dtype=bf16 dropout=0.1",
        "sq=999 d=128 dtype=bf16 mod=score+t[q,k] tensor=t:f32[Sq,Skv]"}) {
    EXPECT_TRUE(tier(line)) << line;
  }
  for (const char* const line : {"sq=999 d=64 dtype=f32", "sq=999 d=257 dtype=bf16",
                                 "sq=999 d=64 dtype=bf16 precision=strict"}) {
    EXPECT_FALSE(tier(line)) << line;
  }
  const std::string own = "sq=999 d=64 dtype=bf16 mask=causal";
  const std::string text = unit(prepared(own, Tier::Best), "fovea_hopper_forward").source.own;
  EXPECT_EQ(count(text, "MappedArgumentsOf<fovea::device::Arguments>"), 1);
  EXPECT_EQ(count(expand(text), "#line 1 \"hopper/wgmma.h\""), 1);
}

// The same for the backward, whose kernels for sm_90 take fewer problems.
TEST(JitSource, TiersOfTheBackward) {
  const auto tier = [](const std::string& line) {
    const PreparedPlan all = prepare(baked_backward(line).problem, find_device("h200"), Tier::Best);
    const bool narrow = has_unit(all, "fovea_hopper_backward");
    const bool wide = has_unit(all, "fovea_hopper_backward_wide");
    EXPECT_EQ(has_unit(all, "fovea_backward") + narrow + wide, 1) << line;
    const bool wide_heads = all.baked.sizes.d > 128 || all.baked.sizes.dv > 128;
    EXPECT_EQ(wide, wide_heads && !has_unit(all, "fovea_backward")) << line;
    return narrow || wide;
  };
  const std::string bias = "sq=999 d=64 dtype=bf16 tensor=t:bf16[Sq,Skv] grads=q,k,v,t ";
  const std::string heads = "h=2 sq=999 d=64 dtype=bf16 tensor=t:f32[H] grads=q,k,v,t ";
  for (const std::string& line :
       {std::string("sq=999 d=8 dtype=f16 mask=causal"), std::string("sq=999 d=96 dtype=bf16"),
        std::string("sq=999 d=128 dv=64 dtype=bf16 dropout=0.1"), bias + "mod=score+t[q,k]",
        std::string("sq=999 d=192 dtype=bf16"), std::string("sq=999 d=64 dv=256 dtype=f16"),
        heads + "mod=score+t[h]*(k-q)", heads + "mod=score+t[h]*(k-q) deterministic=1"}) {
    EXPECT_TRUE(tier(line)) << line;
  }
  for (const std::string& line :
       {std::string("sq=999 d=64 dtype=f32"), std::string("sq=999 d=264 dtype=bf16"),
        std::string("sq=999 d=64 dtype=bf16 precision=strict"), heads + "mod=score*t[h]",
        bias + "mod=score+t[q,k] dropout=0.1"}) {
    EXPECT_FALSE(tier(line)) << line;
  }
}

TEST(JitSource, TilesFitEveryDevice) {
  Device small = find_device("h200");
  small.sm = 120;
  small.shared_memory_per_block = 101376;
  for (const char* const line : {"sq=8 d=576 dv=512 dtype=bf16", "sq=8 d=256 dtype=f32",
                                 "sq=8 d=128 dtype=bf16", "sq=8 d=64 dtype=f16"}) {
    for (const PreparedUnit& one : prepare(baked_forward(line).problem, small).units) {
      EXPECT_LE(one.shared_bytes, small.shared_memory_per_block) << line << one.source.name;
    }
  }
  for (const char* const line : {"sq=8 d=256 dtype=f32", "sq=8 d=256 dtype=bf16"}) {
    for (const PreparedUnit& one : prepare(baked_backward(line).problem, small).units) {
      EXPECT_LE(one.shared_bytes, small.shared_memory_per_block) << line << one.source.name;
    }
  }
}

TEST(JitArguments, CopiesAreAsWideAsTheMemoryAllows) {
  const std::array<std::int64_t, 4> extents{2, 4, 16, 64};
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
  EXPECT_EQ(copy_bytes(at(256), {4096, 1024, 64, 1}, extents, 2), 16);
  EXPECT_EQ(copy_bytes(at(264), {4096, 1024, 64, 1}, extents, 2), 8);
  EXPECT_EQ(copy_bytes(at(256), {4096, 1024, 66, 1}, extents, 2), 4);
  EXPECT_EQ(copy_bytes(at(256), {4096, 1024, 65, 1}, extents, 2), 0);
  EXPECT_EQ(copy_bytes(at(256), {4096, 1024, 65, 1}, extents, 4), 4);
  EXPECT_EQ(copy_bytes(at(256), {4096, 1024, 64, 2}, extents, 2), 0);
  EXPECT_EQ(copy_bytes(at(257), {4096, 1024, 64, 1}, extents, 2), 0);
  // A stride that is never taken does not count.
  EXPECT_EQ(copy_bytes(at(256), {3, 1024, 64, 1}, {1, 4, 16, 64}, 2), 16);
}

}  // namespace
}  // namespace fovea::jit::testing
