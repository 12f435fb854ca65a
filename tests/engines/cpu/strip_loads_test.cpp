// Loads: every element type, rank and stride, every form of index, inside and outside of the
// tensor; and never a byte beyond it, which would be a fault: tensors here end, or begin, where a
// page does.
#include <gtest/gtest.h>

#include <cstring>

#include "ir/build.h"
#include "tests/engines/cpu/guarded_memory.h"
#include "tests/engines/cpu/strip_case.h"
#include "tests/ir/random.h"
#include "tests/ir/random_point.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

// A tensor of random extents and strides (transposed, broadcast, reversed, with gaps), whose first
// or last element lies at the edge of a page.
class GuardedTensor {
 public:
  GuardedTensor(Random& random, DType dtype, int rank, std::int64_t most)
      : pages_(prepare(random, dtype, rank, most),
               random.chance(50) ? GuardedPages::Against::End : GuardedPages::Against::Start) {
    auto* const bytes = static_cast<unsigned char*>(pages_.data());
    for (std::size_t i = 0; i < bytes_; ++i) bytes[i] = static_cast<unsigned char>(random.bits());
    if (dtype == DType::F64) {  // numbers that f32 can hold
      for (std::size_t i = 0; i + 8 <= bytes_; i += 8) {
        const double value = static_cast<double>(random.normal());
        std::memcpy(bytes + i, &value, sizeof value);
      }
    }
    view_.data = bytes_ == 0 ? nullptr : bytes - lowest_ * dtype_size(dtype);
  }
  const TensorView& view() const { return view_; }

 private:
  std::size_t prepare(Random& random, DType dtype, int rank, std::int64_t most) {
    view_.dtype = dtype;
    view_.rank = rank;
    std::int64_t step = 1, highest = 0;
    bool empty = false;
    std::array<std::size_t, limits::rank> order{0, 1, 2, 3, 4, 5, 6, 7};
    for (std::size_t i = static_cast<std::size_t>(rank); i > 1; --i) {
      std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
    }
    for (int n = 0; n < rank; ++n) {
      const std::size_t i = random.chance(70) ? static_cast<std::size_t>(rank - 1 - n)
                                              : order[static_cast<std::size_t>(n)];
      if (view_.extent[i] != 0) continue;
      const std::int64_t extent =
          random.chance(2) ? 0 : 1 + random.below(static_cast<std::uint32_t>(most));
      view_.extent[i] = extent;
      view_.stride[i] = random.chance(10) ? 0 : step * (random.chance(15) ? -1 : 1);
      empty = empty || extent == 0;
      const std::int64_t reach = view_.stride[i] * (extent - 1);
      (reach < 0 ? lowest_ : highest) += reach;
      step *= std::max<std::int64_t>(extent, 1);
      if (random.chance(10)) step += 3;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
      if (view_.extent[i] == 0) empty = true;
    }
    bytes_ = empty ? 0 : static_cast<std::size_t>((highest - lowest_ + 1) * dtype_size(dtype));
    return bytes_;
  }

  TensorView view_;
  std::int64_t lowest_ = 0;
  std::size_t bytes_ = 0;
  GuardedPages pages_;
};

// An index: a position, a position shifted, what many formulas have, or anything.
Expr random_index(Random& random) {
  const Expr q = leaf(Op::IndexQ), k = leaf(Op::IndexK), h = leaf(Op::IndexH);
  const Expr shift = random.chance(50) ? constant(random.between(-8, 90)) : scalar(Type::I32, 0);
  switch (random.below(12)) {
    case 0: return q;
    case 1: return h;
    case 2: return k + shift;
    case 3: return q + shift;
    case 4: return q - k + shift;
    case 5: return k - q + shift;
    case 6: return make(Op::ClampI, {q - k + shift, constant(0), constant(40)});
    case 7: return shift - k;
    case 8: return make(Op::FloorDiv, {k, constant(4)});
    case 9: return make(Op::FloorMod, {q * k, constant(13)});
    case 10: return constant(random.between(-1, 20));
    default: return k;
  }
}

void check_load(const cpu::KernelTable& kernels, Random& random) {
  constexpr DType dtypes[] = {DType::F32, DType::F16, DType::BF16, DType::F64,
                              DType::I32, DType::I64, DType::U8,   DType::Bool};
  const DType dtype = random.pick(dtypes);
  const int rank = random.between(0, random.chance(20) ? 5 : 3);
  const GuardedTensor tensor(random, dtype, rank, rank > 3 ? 5 : 120);
  const TensorView tensors[] = {tensor.view()};
  const ScalarValue scalars[] = {{0.0f, random.between(-5, 60)}};
  std::vector<Expr> at;
  for (int i = 0; i < rank; ++i) at.push_back(random_index(random));
  const std::vector<Expr> roots{load(loaded_type(dtype), 0, at)};

  StripBlock block;
  block.rows = random.between(1, 40), block.columns = random.between(1, 140);
  block.q_first = random.between(-3, 20), block.k_first = random.between(-3, 20);
  if (random.chance(5)) block.k_first = random_int(random);
  block.leaves.h = random.between(0, 3);
  block.leaves.tensors = tensors, block.leaves.scalars = scalars;
  block.score.resize(static_cast<std::size_t>(block.rows * block.columns));
  block.grad = block.score;
  check_exact({{roots, 1, false}, kernels, block}, roots, block,
              std::string(dtype_name(dtype)) + " rank " + std::to_string(rank));
}

TEST(StripLoads, RandomTensorsAndIndices) { check_cases(cases(2000), check_load); }

}  // namespace
}  // namespace fovea::test
