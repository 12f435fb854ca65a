// Whether cuDNN still gets wrong what engine cudnn avoids: each row of known_bad alone is not
// avoided, and its line compared with the reference. Run by './dev gpu known-bad', a process for
// each row, since some of them crash. FOVEA_TEST_DEVICE names the device; without it all are
// skipped.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/driver.h"
#include "cuda/libraries.h"
#include "engines/cudnn/known_bad.h"
#include "tests/conformance/trial.h"

namespace fovea::gpu_tests {
namespace {

struct Row {
  const char* name;
  bool cudnn::Workarounds::* what;
  const char* line;
};
const Row rows[] = {
    {"narrow_inputs", &cudnn::Workarounds::narrow_inputs,
     "b=4 h=2 sq=128 d=64 dtype=bf16 mod=\"score * t[b]\" tensor=\"t:f32[B]=uniform(0.5,2)\" "
     "direction=both"},
    {"row_comparisons", &cudnn::Workarounds::row_comparisons,
     "b=2 h=2 sq=128 d=64 dtype=bf16 mask=\"k + 2 < q\" direction=both"},
    {"bias_beside_modifier", &cudnn::Workarounds::bias_beside_modifier,
     "b=2 h=2 sq=128 d=64 dtype=bf16 mod=\"20*tanh(score/20) + t[h,q,k]\" "
     "tensor=\"t:bf16[H,Sq,Skv]\" grads=q,k,v,t mask=causal direction=both"},
    {"unused_score", &cudnn::Workarounds::unused_score,
     "b=2 h=2 sq=128 d=64 dtype=bf16 mod=\"t[h,q,k]\" tensor=\"t:f32[H,Sq,Skv]\" direction=both"},
    {"scattered_rows", &cudnn::Workarounds::scattered_rows,
     "b=2 h=2 sq=128 d=64 dtype=bf16 mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\" "
     "tensor_strides=\"t:1,2,256\" direction=both"},
};

class KnownBad : public testing::TestWithParam<Row> {
 protected:
  void TearDown() override { cudnn::replace_workarounds(nullptr); }
};

TEST_P(KnownBad, IsAvoidedWhereItIsWrong) {
  const char* const device = std::getenv("FOVEA_TEST_DEVICE");
  if (device == nullptr) GTEST_SKIP() << "no GPU: FOVEA_TEST_DEVICE is not set";
  const Row& row = GetParam();
  const int version = cuda::cudnn_library().version, sm = cuda::find_device(device).sm;
  const bool avoided = cudnn::workarounds_for(version, sm).*row.what;
  cudnn::Workarounds others;  // all of them
  others.*row.what = false;
  cudnn::replace_workarounds(&others);
  bool right = false;
  try {
    right = conformance::complaints({0, row.line, {}, ""}, "cudnn", device).empty();
  } catch (const Error& error) {
    std::printf("%s: %s\n", row.name, error.what());
  }
  std::printf("known-bad %s: cuDNN %s on sm_%d is %s\n", row.name,
              cuda::version_text(version).c_str(), sm, right ? "right" : "wrong");
  EXPECT_EQ(avoided, !right) << (right ? "its row in known_bad can end before this version"
                                       : "it needs a row in known_bad");
}
INSTANTIATE_TEST_SUITE_P(Rows, KnownBad, testing::ValuesIn(rows),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fovea::gpu_tests
