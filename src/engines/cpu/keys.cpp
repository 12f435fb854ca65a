#include "engines/cpu/keys.h"

namespace fovea::cpu {
namespace {

// f32 rows that lie one after the other, each as long as a panel is wide, are panels already. They
// are copied all the same if vectors would cross cache lines, which is slower.
bool lies_in_panels(const Call& call, const Strided& rows, std::int64_t columns) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(rows.data) % workspace_alignment == 0;
  return aligned && !call.plan.pairs && rows.type == StoredType::F32 && rows.column_step == 1 &&
         rows.row_step == call.kernels.panel_width && columns == call.kernels.panel_width;
}

}  // namespace

KeyTiles::KeyTiles(Arena& arena, const Prepared& plan, const Sizes& sizes, std::int64_t count)
    : backward_(plan.baked.direction == Direction::Backward) {
  const std::int64_t keys = count * tile_columns;
  k_transposed_ = take_panels(arena, plan.kernels, plan.cells(sizes.d), keys);
  if (backward_) {
    v_transposed_ = take_panels(arena, plan.kernels, plan.cells(sizes.dv), keys);
    k_ = take_panels(arena, plan.kernels, plan.cells(keys), sizes.d);
  } else {
    v_ = take_panels(arena, plan.kernels, plan.cells(keys), sizes.dv);
  }
  infos_ = arena.take<TileInfo>(count, 2);
}

// Tile `at` of matrices that lie one after the other.
Panels KeyTiles::place(const Call& call, const Panels& all, std::int64_t rows, std::int64_t columns,
                       std::int64_t at) const {
  if (all.data == nullptr) return {};
  return {all.data + at * rows * round_up(columns, call.kernels.panel_width), rows};
}

KeyTile KeyTiles::find(const Call& call, const Sequence& sequence, std::int64_t tile,
                       std::int64_t at) const {
  const auto halves = infos_.subspan(2 * static_cast<std::size_t>(at)).first<2>();
  KeyTile out = places(call, sequence, tile, at);
  if (halves[0].in_place != nullptr) (backward_ ? out.k : out.v).data = halves[0].in_place;
  out.k_finite = halves[0].k_finite && halves[1].k_finite;
  out.v_finite = halves[0].v_finite && halves[1].v_finite;
  return out;
}

KeyTile KeyTiles::places(const Call& call, const Sequence& sequence, std::int64_t tile,
                         std::int64_t at) const {
  const Sizes& sizes = call.sizes;
  KeyTile out;
  out.columns = static_cast<int>(
      std::min<std::int64_t>(tile_columns, sequence.k_length - tile * tile_columns));
  const std::int64_t keys = call.plan.cells(tile_columns);
  out.k_transposed = place(call, k_transposed_, call.plan.cells(sizes.d), tile_columns, at);
  out.v = place(call, v_, keys, sizes.dv, at);
  out.v_transposed = place(call, v_transposed_, call.plan.cells(sizes.dv), tile_columns, at);
  out.k = place(call, k_, keys, sizes.d, at);
  return out;
}

void KeyTiles::pack(const Call& call, const KeyHead& head, std::int64_t tile, std::int64_t at,
                    const KeysOfTile& keys) const {
  const Sequence& sequence = head.sequence;
  const KeyTile to = places(call, sequence, tile, at);
  const int width = call.kernels.panel_width;
  const int padded = keys.last - keys.first, count = std::clamp(to.columns - keys.first, 0, padded);
  const std::int64_t row = sequence.k_first + tile * tile_columns + keys.first;
  const std::int64_t b = call.batch(sequence);
  const Strided k = call.rows(call.bound.k, call.baked.k, b, head.group, row);
  const Strided v = call.rows(call.bound.v, call.baked.v, b, head.group, row);
  const auto d = static_cast<int>(call.sizes.d), dv = static_cast<int>(call.sizes.dv);
  const auto transposed = [&](const Strided& from, int columns, const Panels& panels) {
    const auto pack =
        call.plan.pairs ? call.kernels.pairs->pack_transposed : call.kernels.pack_transposed;
    return pack(from, count, columns, from_column(panels, keys.first), padded);
  };
  TileInfo info;
  const auto straight = [&](const Strided& from, int columns, const Panels& panels) {
    if (call.plan.pairs) {
      const Panels half = from_row(panels, keys.first / 2, width);
      return call.kernels.pairs->pack_rows(from, count, columns, half, padded);
    }
    if (lies_in_panels(call, from, columns)) {
      info.in_place = static_cast<float*>(from.data);
      const bool hidden =
          call.plan.mask.has_value();  // only then does it matter whether values are finite
      return backward_ || !hidden || call.kernels.all_finite(info.in_place, count * columns);
    }
    return call.kernels.pack(from, count, columns, 1.0f, from_row(panels, keys.first, width),
                             padded);
  };
  info.k_finite = transposed(k, d, to.k_transposed);
  info.v_finite = backward_ ? transposed(v, dv, to.v_transposed) : straight(v, dv, to.v);
  if (backward_) straight(k, d, to.k);
  const auto halves = infos_.subspan(2 * static_cast<std::size_t>(at)).first<2>();
  if (keys.first == 0) halves[0] = info;
  if (keys.last == tile_columns) halves[1] = info;
}

std::int64_t wave_heads(const Sizes& sizes, Direction direction) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20, least_heads = 16;
  const std::int64_t parts = direction == Direction::Backward ? 3 : 2;
  const std::int64_t bytes_per_key = parts * std::max(sizes.d, sizes.dv) * 4;
  const std::int64_t keys = tiles_of(sizes.skv) * tile_columns;
  const std::int64_t bytes =
      std::max<std::int64_t>(1, keys) * std::max<std::int64_t>(1, bytes_per_key);
  return std::min(sizes.b * sizes.hkv, std::max(least_heads, most_bytes / bytes));
}

WaveKeys::WaveKeys(Arena& arena, const Prepared& plan, const Sizes& sizes, bool packed)
    : heads(wave_heads(sizes, plan.baked.direction)),
      tiles(arena, plan, sizes, packed ? heads * tiles_of(sizes.skv) : 0),
      table_bytes(plan.tiles.table_bytes(sizes.skv)),
      walk_bytes(static_cast<std::size_t>(
          round_up(static_cast<std::int64_t>(plan.tiles.scratch_bytes()), workspace_alignment))),
      tables(take_bytes(arena, table_bytes, heads)),
      walks(take_bytes(arena, walk_bytes, plan.workers)) {}

RowBlock rows_seen(const Call& call, const QueryBlock& block) {
  const Sequence& sequence = block.sequence;
  const std::int64_t last = block.position + block.rows - 1;
  RowBlock rows;
  rows.h_first = call.head_seen(block.first_head);
  rows.h_last = call.head_seen(block.first_head + block.heads - 1);
  rows.q_first = static_cast<std::int32_t>(block.position + sequence.q_offset);
  rows.q_last = static_cast<std::int32_t>(last + sequence.q_offset);
  rows.last_tile = static_cast<int>(tiles_of(sequence.k_length));
  return rows;
}

void fill_tables(const Call& call, const WaveKeys& keys, const Wave& wave) {
  if (keys.table_bytes == 0) return;
  const double cost = 20 * static_cast<double>(wave.count) * static_cast<double>(call.sizes.skv);
  call.parallel(wave.count, cost, [&](std::int64_t i, int worker) {
    call.plan.tiles.fill_table(call.keys(call.key_head(wave.first + i)), keys.table(i),
                               keys.walk(worker));
  });
}

void pack_tiles_of_head(const Call& call, const WaveKeys& keys, const Wave& wave,
                        const TilesToPack& tiles, int worker) {
  const KeyHead head = call.key_head(wave.first + tiles.head_in_wave);
  QueryBlock all{head, {}, head.group * call.heads_per_group()};
  all.heads = static_cast<int>(call.heads_per_group());
  all.rows = static_cast<int>(head.sequence.q_length);
  RowBlock rows = rows_seen(call, all);
  rows.first_tile = static_cast<int>(tiles.first);
  rows.last_tile = static_cast<int>(std::min<std::int64_t>(rows.last_tile, tiles.last));
  if (rows.first_tile >= rows.last_tile || all.rows == 0) return;
  TileWalk walk(call.plan.tiles, keys.walk(worker));
  walk.start(call.keys(head), keys.table(tiles.head_in_wave), rows);
  for (Tile tile; walk.next(tile);) {
    keys.tiles.pack(call, head, tile.number, tiles.place * tiles_of(call.sizes.skv) + tile.number,
                    tiles.keys);
  }
}

KeyPacking::KeyPacking(const Call& call, const WaveKeys& keys, const Wave& wave,
                       const WaveSchedule& schedule, std::int64_t least_blocks)
    : call_(call), keys_(keys), wave_(wave), schedule_(schedule), least_blocks_(least_blocks) {
  const std::int64_t tiles = tiles_of(call.sizes.skv), heads = schedule.shared_heads();
  if (heads == 0 || block_count(call.sizes.sq, call.heads_per_group()) < least_blocks) return;
  constexpr std::int64_t tasks_of_worker = 8;  // so that all end together
  together_ =
      std::clamp<std::int64_t>(heads * tiles / (tasks_of_worker * call.workers), 1, pack_tiles);
  halves_ = heads * tiles < call.workers ? 2 : 1;
  parts_ = ceil_div(tiles, together_) * halves_;
  tasks_ = wave.count * parts_;
}

double KeyPacking::flops() const {
  return 40 * static_cast<double>(schedule_.shared_heads()) * static_cast<double>(call_.sizes.skv) *
         static_cast<double>(call_.sizes.d + call_.sizes.dv);
}

void KeyPacking::run(std::int64_t task, int worker) const {
  const std::int64_t i = task / parts_, first = task % parts_ / halves_ * together_;
  const int keys = tile_columns / halves_, first_key = static_cast<int>(task % halves_) * keys;
  if (schedule_.is_whole(i)) return;
  const Sequence sequence = call_.key_head(wave_.first + i).sequence;
  if (block_count(sequence.q_length, call_.heads_per_group()) < least_blocks_) return;
  pack_tiles_of_head(call_, keys_, wave_,
                     {i, i, first, first + together_, {first_key, first_key + keys}}, worker);
}

}  // namespace fovea::cpu
