// Strips of gradients are added to the elements that their indices name, whatever form the indices
// have, and nothing is added where a score is not alive.
#include "engines/cpu/captured/captured_add.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/ir/random.h"

namespace fovea::test {
namespace {

using namespace cpu;

constexpr int most_rows = 8;

// Values over a strip that change with its rows, its columns, both or neither.
struct IndexData {
  std::vector<std::int32_t> cells;
  StripValue value;
  std::optional<std::int32_t> slope;

  IndexData(Random& random, std::int64_t extent, int rows, int columns) {
    const std::uint32_t form = random.below(8);
    const bool by_row = random.chance(50), by_column = form != 0;
    const std::int32_t start = random.between(-3, static_cast<std::int32_t>(extent));
    const int width = random.chance(50) ? columns : most_strip_columns;
    cells.resize(static_cast<std::size_t>(rows * 2 * width));
    value.column_step = by_column ? (random.chance(20) ? 2 : 1) : 0;
    value.row_step = by_row ? 2 * width : 0;
    for (int r = 0; r < rows; ++r) {
      const std::int32_t row = random.between(0, 5);
      for (int c = 0; c < columns; ++c) {
        std::int32_t& cell =
            cells[static_cast<std::size_t>(r * value.row_step + c * value.column_step)];
        switch (form) {
          case 1:
          case 2: cell = start + row + c; break;
          case 3: cell = start + row - c; break;
          case 4: cell = start + row; break;
          case 5: cell = start + row + 3 * c; break;
          case 6:
            cell = static_cast<std::int32_t>(0x7fffffffu - static_cast<unsigned>(columns / 2 - c));
            break;
          default: cell = random.between(-2, static_cast<std::int32_t>(extent) + 2); break;
        }
      }
    }
    for (int r = 0; r < rows && !by_column; ++r) {
      cells[static_cast<std::size_t>(r * value.row_step)] = start + 2 * r;
    }
    value.data = cells.data();
    // The slope is told now and then, if it is the same everywhere.
    constexpr std::array<std::int32_t, 7> slopes{0, 1, 1, -1, 0, 3, 1};
    if (form < slopes.size() && random.chance(50)) slope = slopes[form];
  }
  std::int32_t at(int r, int c) const {
    return cells[static_cast<std::size_t>(r * value.row_step + c * value.column_step)];
  }
};

struct Gradients {
  std::array<float, most_rows * 2 * most_strip_columns> cells;
  std::array<std::uint64_t, most_rows> live;
  StripValue value{cells.data(), 2 * most_strip_columns, 1};

  Gradients(Random& random, int rows, int columns) {
    if (random.chance(10)) value.column_step = 2;
    if (random.chance(5)) value.row_step = 0;
    for (float& cell : cells) cell = random.normal();
    for (int r = 0; r < rows; ++r) {
      const std::uint32_t form = random.below(4);
      const std::uint64_t some = std::uint64_t{random.bits()} << 32 | random.bits();
      live[static_cast<std::size_t>(r)] = form == 0 ? 0 : form == 1 ? some : ~std::uint64_t{0};
      for (int c = 0; c < columns && value.row_step != 0; ++c) {
        if (!alive(r, c)) cells[place(r, c)] = NAN;
      }
    }
  }
  Gradients(const Gradients&) = delete;
  std::size_t place(int r, int c) const {
    return static_cast<std::size_t>(r * value.row_step + c * value.column_step);
  }
  bool alive(int r, int c) const { return (live[static_cast<std::size_t>(r)] >> c & 1) != 0; }
  double at(int r, int c) const { return static_cast<double>(cells[place(r, c)]); }
};

void run_case(Random& random) {
  const int rows = random.between(1, most_rows);
  const int columns = random.chance(30) ? 64 : random.between(1, 64);
  std::vector<std::int64_t> extents;
  for (std::uint32_t rank = random.below(4); rank > 0; --rank) {
    extents.push_back(random.chance(40) ? random.between(60, 90) : random.between(1, 9));
  }
  CapturedTarget target;
  const ir::TensorView dense = ir::TensorView::dense(nullptr, DType::F32, extents);
  target.shape = {dense.rank, dense.extent, dense.stride};
  target.type = random.pick(std::array{DType::F32, DType::F64, DType::F16, DType::BF16});
  const auto elements = static_cast<std::size_t>(target.shape.elements());
  std::vector<std::byte> sums(elements * 8);
  std::vector<double> expected(elements), sizes(elements);

  Gradients gradients(random, rows, columns);
  std::vector<IndexData> data;
  std::vector<StripIndex> index;
  for (const std::int64_t extent : extents) data.emplace_back(random, extent, rows, columns);
  for (const IndexData& one : data) index.push_back({one.value, one.slope});
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      if (!gradients.alive(r, c)) continue;
      std::int64_t at = 0;
      for (std::size_t d = 0; d < data.size(); ++d) {
        at += ir::clamp_index(data[d].at(r, c), extents[d]) * target.shape.stride[d];
      }
      expected[static_cast<std::size_t>(at)] += gradients.at(r, c);
      sizes[static_cast<std::size_t>(at)] += std::fabs(gradients.at(r, c));
    }
  }
  LiveStrip strip(gradients.value, {0, rows, 0, columns, nullptr, nullptr}, gradients.live.data());
  add_strip(target, sums.data(), index, strip);
  const bool narrow = target.type == DType::F16 || target.type == DType::BF16;
  for (std::size_t i = 0; i < elements; ++i) {
    // A sum of 16 bits is rounded for each of its terms.
    ASSERT_NEAR(read_number(sums.data(), target.type, static_cast<std::int64_t>(i)), expected[i],
                sizes[i] * (narrow ? 0.5 : 1e-6));
  }
}

TEST(CapturedAdd, EveryFormOfIndices) {
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < cases(40000); ++i) {
    Random random(seed, i);
    run_case(random);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << seed_text(seed, i);
  }
}

}  // namespace
}  // namespace fovea::test
