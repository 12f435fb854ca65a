// What gradients of captured tensors cost per score, by the form of their indices: a block of 96
// rows and 128 keys whose formulas have been computed.
#include <benchmark/benchmark.h>

#include <array>
#include <optional>
#include <vector>

#include "engines/cpu/captured/captured_add.h"

namespace {

using namespace fovea;
using namespace fovea::cpu;

constexpr int rows = 32, columns = 16, strips = 24;
constexpr std::int64_t extent = 4096;

// Indices of one row after the other.
using IndexOf = std::int32_t (*)(int row, int column);

struct Form {
  IndexOf index;
  bool by_row, by_column;
  SumType type = SumType::F64;
  bool masked = false;
  std::optional<std::int32_t> slope{};
};

void add_strips(benchmark::State& state, const Form& form) {
  std::vector<double> sums(extent);
  CapturedTarget target;
  const std::int64_t extents[] = {extent};
  target.shape = dense_shape(extents);
  target.type = form.type;
  std::vector<std::int32_t> index(strips * rows * columns);
  std::vector<float> gradient(index.size(), 0.5f);
  for (int r = 0; r < strips * rows; ++r) {
    for (int c = 0; c < columns; ++c) {
      index[static_cast<std::size_t>(r * columns + c)] = form.index(r, c);
    }
  }
  std::array<std::uint64_t, rows> live;
  live.fill(form.masked ? 0x5a5a : 0xffff);
  for (auto _ : state) {
    for (int i = 0; i < strips; ++i) {
      const StripIndex at{
          {index.data() + i * rows * columns, form.by_row ? columns : 0, form.by_column ? 1 : 0},
          form.slope};
      LiveStrip strip({gradient.data() + i * rows * columns, columns, 1},
                      {0, rows, 0, columns, nullptr, nullptr}, live.data());
      add_strip(target, sums.data(), {&at, 1}, strip);
    }
  }
  state.SetItemsProcessed(state.iterations() * strips * rows * columns);
}

std::int32_t constant(int, int) { return 7; }
std::int32_t by_row(int r, int) { return r; }
std::int32_t by_column(int, int c) { return 100 + c; }
std::int32_t dense(int r, int c) { return (r * columns + c) % 4096; }
std::int32_t diagonal(int r, int c) { return 2000 + r - c; }
std::int32_t clamped(int, int) { return 0; }
std::int32_t scattered(int r, int c) { return (r * 7919 + c * 104729) % 4096; }

BENCHMARK_CAPTURE(add_strips, one_element, Form{constant, false, false});
BENCHMARK_CAPTURE(add_strips, rows, Form{by_row, true, false});
BENCHMARK_CAPTURE(add_strips, columns, Form{by_column, false, true});
BENCHMARK_CAPTURE(add_strips, side_by_side, Form{dense, true, true});
BENCHMARK_CAPTURE(add_strips, side_by_side_f32, Form{dense, true, true, SumType::F32});
BENCHMARK_CAPTURE(add_strips, side_by_side_masked, Form{dense, true, true, SumType::F64, true});
BENCHMARK_CAPTURE(add_strips, side_by_side_known, Form{dense, true, true, SumType::F64, false, 1});
BENCHMARK_CAPTURE(add_strips, side_by_side_known_f32,
                  Form{dense, true, true, SumType::F32, false, 1});
BENCHMARK_CAPTURE(add_strips, diagonal_known, Form{diagonal, true, true, SumType::F64, false, -1});
BENCHMARK_CAPTURE(add_strips, diagonal, Form{diagonal, true, true});
BENCHMARK_CAPTURE(add_strips, clamped, Form{clamped, true, true});
BENCHMARK_CAPTURE(add_strips, scattered, Form{scattered, true, true});

}  // namespace
