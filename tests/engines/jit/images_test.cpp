// Compiled kernels and the store: what is compiled once is not compiled again, in this process or
// in others, and runs if there is no compiler.
#include "engines/jit/images.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "engines/jit/compiler.h"
#include "engines/jit/engine.h"
#include "tests/engines/jit/jit_case.h"

namespace fovea::jit::testing {
namespace {

// Counts, and compiles nothing.
class CountingCompiler : public Compiler {
 public:
  std::string problem() const override { return problem_text; }
  std::string target(const Device& device) const override {
    return "counted_" + std::to_string(device.sm);
  }
  CompiledKernel compile(const TranslationUnit& unit, const std::string&) const override {
    ++compiled;
    return {{unit.source.begin(), unit.source.end()}, ""};
  }

  std::string problem_text;
  mutable std::atomic<int> compiled{0};
};

// The process's store reads its folder when it is first asked: before any test of this program.
const std::filesystem::path folder = [] {
  std::string path = (std::filesystem::temp_directory_path() / "fovea-jit-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) std::abort();
  ::setenv("FOVEA_CACHE_DIR", path.c_str(), 1);
  return std::filesystem::path(path);
}();

class JitImages : public ::testing::Test {
 protected:
  void SetUp() override { replace_compiler(&compiler_); }
  void TearDown() override {
    replace_compiler(nullptr);
    std::filesystem::remove_all(folder);
  }
  int compile(const Baked& baked) {
    const int before = compiler_.compiled;
    jit_engine().compile(baked, jit_engine().judge(baked, h200_), h200_);
    return compiler_.compiled - before;
  }

  CountingCompiler compiler_;
  Device h200_ = find_device("h200");
};

TEST_F(JitImages, AreCompiledOnceForAllSizesAndNames) {
  const char* const line = "sq=100 d=64 dtype=bf16 mask=a[b,q]==a[b,k] tensor=a:i32[B,Sq]";
  EXPECT_GT(compile(baked_forward(line)), 0);
  EXPECT_EQ(compile(baked_forward(line)), 0);
  EXPECT_EQ(compile(baked_forward("b=3 sq=999 d=50 dtype=bf16 lse=1 sink=1 mask=t[b,q]==t[b,k] "
                                  "tensor=t:i32[3,999] layout=bshd")),
            0);
  EXPECT_GT(compile(baked_backward(line)), 0);
  EXPECT_EQ(compile(baked_backward(line)), 0);
}

TEST_F(JitImages, RunWithoutACompilerOnceTheyAreStored) {
  const Baked stored = baked_forward("sq=64 d=64 dtype=f16 mask=causal");
  EXPECT_GT(compile(stored), 0);
  compiler_.problem_text = "there is none";
  EXPECT_EQ(compile(stored), 0);
  try {
    compile(baked_forward("sq=64 d=64 dtype=f16 mask=sliding(7)"));
    FAIL();
  } catch (const Unsupported& refusal) {
    EXPECT_NE(std::string(refusal.what()).find("there is none"), std::string::npos)
        << refusal.what();
  }
}

TEST_F(JitImages, AreProvenByABuild) {
  const Baked baked = baked_forward("sq=64 d=128 dtype=f16 mod=score*1.5");
  EXPECT_EQ(jit_engine().judge(baked, h200_).answer, Answer::Expected);
  EXPECT_EQ(jit_engine().prove(baked, h200_).answer, Answer::Proven);
  EXPECT_EQ(jit_engine().judge(baked, h200_).answer, Answer::Proven);
}

TEST_F(JitImages, OfOtherFormatsAreRefused) {
  EXPECT_EQ(refuse_environment("sm_90a format 1"), "");  // no GPU here: to look at
  EXPECT_NE(refuse_environment("sm_90a format 0"), "");
}

}  // namespace
}  // namespace fovea::jit::testing
