// The kernel that finds minima and maxima of captured tensors, run on the host, against tables made
// by ir::extremes.
#include <gtest/gtest.h>

#include <cstring>

#include "engines/jit/device/captured_arguments.h"
#include "engines/jit/source.h"
#include "tests/engines/jit/summary_case.h"
#include "tests/ir/random_point.h"
#include "tests/jit_host/launch.h"

namespace fovea::test {
namespace {

using namespace ir;

std::vector<unsigned> run(const on_host::Kernel& kernel, const jit::Summary& summary,
                          const TensorView& tensor, std::size_t words) {
  std::vector<unsigned> table(words, 0xdeadbeefu);
  device::SummarizeArguments call{};
  call.data = tensor.data;
  call.table = table.data();
  call.rank = tensor.rank;
  call.along = summary.index;
  call.blocks = static_cast<long long>(words / 2);
  for (std::size_t i = 0; i < static_cast<std::size_t>(tensor.rank); ++i) {
    call.extent[i] = tensor.extent[i];
    call.stride[i] = tensor.stride[i];
  }
  void* parameters[] = {&call};
  const auto blocks = static_cast<unsigned>((words / 2 + 3) / 4);
  EXPECT_EQ(on_host::launch(kernel, parameters, {blocks, 1, 1, 128, 0}), "");
  return table;
}

bool is_nan(unsigned bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

// Every tensor of random_declarations() that has an index, along each of them.
void check(Values kind) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed_text(seed, 0));
  Random random(seed);
  const RandomCaptured captured(random, kind, {.B = 2, .H = 3, .Hkv = 1, .Sq = 131, .Skv = 64});
  for (std::uint32_t slot = 0; slot < captured.tensors().size(); ++slot) {
    const TensorView& tensor = captured.tensors()[slot];
    if (tensor.rank == 0) continue;
    const jit::KernelSource source = jit::summary_source(tensor.dtype);
    const on_host::Module module(on_host::compile_on_host(source.own));
    const on_host::Kernel kernel =
        module.find("fovea_summarize_" + std::string(dtype_name(tensor.dtype)));
    ASSERT_NE(kernel, nullptr);
    for (int index = 0; index < tensor.rank; ++index) {
      const jit::Summary summary{slot, index, 0};
      const std::vector<unsigned> wanted = make_table(summary, tensor);
      const std::vector<unsigned> got = run(kernel, summary, tensor, wanted.size());
      const bool real = loaded_type(tensor.dtype) == Type::F32;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const bool zeros = real && ((wanted[i] | got[i]) & 0x7fffffffu) == 0;  // of either sign
        ASSERT_TRUE(got[i] == wanted[i] || zeros || (real && is_nan(got[i]) && is_nan(wanted[i])))
            << "slot " << slot << ", index " << index << ", word " << i << ": " << got[i] << " but "
            << wanted[i];
      }
    }
  }
}

TEST(Summarize, AllTypesAndIndices) {
  check(Values::Tame);
  check(Values::Any);
}

}  // namespace
}  // namespace fovea::test
