// What finding the tiles of a block costs: one walk per block of 128 rows over 16384 keys in tiles
// of 64, and the tables that masks with captured tensors need.
#include <benchmark/benchmark.h>

#include <memory>
#include <new>
#include <vector>

#include "engines/cpu/tiles/tiles.h"
#include "ir/extremes.h"
#include "ir/parse.h"

namespace {

using namespace fovea;
using namespace fovea::cpu;

constexpr std::int32_t keys = 16384;
constexpr std::int32_t rows = 128;
constexpr int columns = 64;

struct Memory {
  explicit Memory(std::size_t bytes) : data(::operator new(bytes + 1, std::align_val_t{64})) {}
  ~Memory() { ::operator delete(data, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  void* data;
};

struct Documents {
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(keys);
  ir::TensorView view;
  Documents() {
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i / 700);
    const std::int64_t extents[] = {keys};
    view = ir::TensorView::dense(ids.data(), DType::I32, extents);
  }
};

KeySequence sequence(const Documents& documents) {
  KeySequence out;
  out.B = out.H = out.Hkv = 1;
  out.Sq = out.Skv = keys;
  out.k_length = keys;
  out.tensors = {&documents.view, 1};
  return out;
}

void walk_blocks(benchmark::State& state, const char* text) {
  const ir::Program program = ir::parse_program(text);
  const TileMap map(program, columns);
  const Documents documents;
  const KeySequence keys_of = sequence(documents);
  const Memory table(map.table_bytes(keys)), scratch(map.scratch_bytes());
  map.fill_table(keys_of, table.data, scratch.data);
  TileWalk walk(map, scratch.data);
  std::int64_t tiles = 0, blocks = 0;
  for (auto _ : state) {
    for (std::int32_t q = 0; q < keys; q += rows, ++blocks) {
      walk.start(keys_of, table.data, {0, 0, q, q + rows - 1, 0, keys / columns});
      for (Tile tile; walk.next(tile);) ++tiles;
    }
  }
  const auto per_block = [&](std::int64_t n) {
    return static_cast<double>(n) / static_cast<double>(blocks);
  };
  state.counters["nodes_per_block"] = per_block(walk.visited());
  state.counters["tiles_per_block"] = per_block(tiles);
  state.counters["time_per_node"] =
      benchmark::Counter(static_cast<double>(walk.visited()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK_CAPTURE(walk_blocks, no_mask, "mod=score");
BENCHMARK_CAPTURE(walk_blocks, causal, "mask=causal");
BENCHMARK_CAPTURE(walk_blocks, sliding, "mask=sliding(1024)");
BENCHMARK_CAPTURE(walk_blocks, causal_mod, "mod=\"q >= k ? score : -inf\"");
BENCHMARK_CAPTURE(walk_blocks, documents,
                  "mask=\"doc[q] == doc[k] && q >= k\" tensor=doc:i32[Skv]");

void fill_table(benchmark::State& state) {
  const ir::Program program = ir::parse_program("mask=\"doc[q] == doc[k]\" tensor=doc:i32[Skv]");
  const TileMap map(program, columns);
  const Documents documents;
  const KeySequence keys_of = sequence(documents);
  const Memory table(map.table_bytes(keys)), scratch(map.scratch_bytes());
  for (auto _ : state) map.fill_table(keys_of, table.data, scratch.data);
  state.SetItemsProcessed(state.iterations() * keys);
}
BENCHMARK(fill_table);

void search_elements(benchmark::State& state, DType type, std::int64_t stride) {
  constexpr std::int64_t count = 16384;
  const std::vector<std::uint64_t> data(count * 2, 0x3f8000003f800000u);
  const std::int64_t extents[] = {count};
  ir::TensorView view = ir::TensorView::dense(data.data(), type, extents);
  view.stride[0] = stride;
  ir::Part part;
  part.last[0] = count - 1;
  for (auto _ : state) benchmark::DoNotOptimize(ir::extremes(view, part));
  state.SetItemsProcessed(state.iterations() * count);
}
BENCHMARK_CAPTURE(search_elements, i32, DType::I32, 1);
BENCHMARK_CAPTURE(search_elements, f32, DType::F32, 1);
BENCHMARK_CAPTURE(search_elements, bool, DType::Bool, 1);
BENCHMARK_CAPTURE(search_elements, i64, DType::I64, 1);
BENCHMARK_CAPTURE(search_elements, bf16, DType::BF16, 1);
BENCHMARK_CAPTURE(search_elements, strided_i32, DType::I32, 2);

}  // namespace
