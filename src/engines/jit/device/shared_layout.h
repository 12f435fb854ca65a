// How kernels lay out a block's shared memory, as functions of plain numbers: the host needs the
// same numbers to launch them. Every piece is a multiple of 16 bytes.
#pragma once

namespace fovea::device {

// Rows are 16 bytes longer than they need to be: eight rows that lie one below the other then begin
// on different banks, whatever their length.
constexpr int row_bytes(int columns, int element_bytes) { return columns * element_bytes + 16; }

// Parts of a mask that are told apart: `q >= k && q - k < n` has two. More of them count as one.
constexpr int most_mask_parts = 3;

constexpr int round_to_16(int bytes) { return (bytes + 15) / 16 * 16; }

// What a kernel's shared memory depends on.
struct TileSizes {
  int warps;
  int element_bytes;            // of q, k and v
  int d, dv;                    // head dims, rounded up to their class
  int rows, columns;            // queries and keys of a tile
  int row_words, column_words;  // of Formula
  int diagonal_words = 0;
  int cell_bytes = 0;  // of an element of the tensor that is copied by tiles; 0: there is none
};

// What is staged for a tile's diagonals and cells: see tile_values.h.
constexpr int diagonal_bytes(const TileSizes& t) {
  return round_to_16(4 * (t.rows + t.columns) * t.diagonal_words);
}
constexpr int cells_bytes(const TileSizes& t) {
  return t.cell_bytes == 0 ? 0 : t.rows * row_bytes(t.columns, t.cell_bytes);
}

// Results leave a warp through 16 rows of f32, in memory that is free by then.
constexpr int writing_bytes(int warps, int columns) { return warps * 16 * row_bytes(columns, 4); }

constexpr int larger(int a, int b) { return a < b ? b : a; }

// What a block works on (a Sequence, a Head): registers are needed for sums.
constexpr int place_bytes = 96;

struct ForwardShared {
  int place, q, k, v, p, row_words, column_words, diagonal, cells, bytes;
  constexpr explicit ForwardShared(const TileSizes& t)
      : place(0),
        q(place_bytes),
        k(q + t.rows * row_bytes(t.d, t.element_bytes)),
        v(k + t.columns * row_bytes(t.d, t.element_bytes)),
        p(v + t.columns * row_bytes(t.dv, t.element_bytes)),
        // The matrix units take probabilities from registers, f32 products from shared memory.
        row_words(p + (t.element_bytes == 4 ? t.rows * row_bytes(t.columns, 4) : 0)),
        column_words(row_words + round_to_16(4 * t.rows * t.row_words)),
        diagonal(column_words + round_to_16(2 * 4 * t.columns * t.column_words)),  // two tiles'
        cells(diagonal + diagonal_bytes(t)),
        bytes(larger(cells + cells_bytes(t), q + writing_bytes(t.warps, t.dv))) {}
};

// Decoding: each warp has a ring of `stages` groups of 16 keys and their values.
constexpr int decode_rows = 16, decode_keys = 16;

struct DecodeShared {
  int q, ring, stage_bytes, p, bytes;
  constexpr DecodeShared(const TileSizes& t, int stages)
      : q(0),
        ring(decode_rows * row_bytes(t.d, t.element_bytes)),
        stage_bytes(decode_keys *
                    (row_bytes(t.d, t.element_bytes) + row_bytes(t.dv, t.element_bytes))),
        p(ring + t.warps * stages * stage_bytes),
        bytes(larger(
            p + (t.element_bytes == 4 ? t.warps * decode_rows * row_bytes(decode_keys, 4) : 0),
            t.warps * (decode_rows * row_bytes(t.dv, 4) + 16 * decode_rows))) {}
};

// Whether a sequence is decoded with its keys split over blocks: few queries, for which a block of
// the forward would be mostly empty. By its own lengths alone, so that a sequence is computed alike
// whatever else is in the batch.
constexpr bool decodes(long long queries, long long keys, int group) {
  return queries * group <= 16 || (queries * group <= 64 && keys >= 2048);
}

// Rows of partial results: [slot, kv head, row of the group, ...], a slot for each split of a
// sequence. Slots of packed sequences are counted by where their keys begin.
constexpr int decode_group_rows = 64;
constexpr long long decode_slots(long long batch, long long keys, long long span) {
  return batch * ((keys + span - 1) / span);
}
constexpr long long decode_slots_packed(long long batch, long long rows_k, long long span) {
  return rows_k / span + batch;
}

// How many warps stand along the rows of a rows x columns result; the others stand along its
// columns. Each then has 32 rows if that leaves it `step` columns (the least that a product
// takes), else fewer.
constexpr int warps_along_rows(int warps, int rows, int columns, int step) {
  int along = rows >= 32 ? rows / 32 : 1;
  if (along > warps) along = warps;
  while (along < warps && columns % (warps / along * step) != 0) along *= 2;
  return along;
}

// Tiles that a backward's block classifies at a time: a bit each, for live ones and for full ones.
constexpr int classified_tiles = 1024;

// Where a block works: see BlockPlace in backward_place.h.
constexpr int block_place_bytes = 64;

// The backward's: keys and values stay, queries and output gradients come and go.
struct BackwardShared {
  int k, v, q, grad_o, p, ds, lse, delta, row_words, column_words, diagonal, cells, classes, place,
      captured, bytes;
  constexpr BackwardShared(const TileSizes& t, int q_stages, int grad_o_stages,
                           int captured_bytes = 0)
      : k(0),
        v(k + t.columns * row_bytes(t.d, t.element_bytes)),
        q(v + t.columns * row_bytes(t.dv, t.element_bytes)),
        grad_o(q + q_stages * t.rows * row_bytes(t.d, t.element_bytes)),
        p(grad_o + grad_o_stages * t.rows * row_bytes(t.dv, t.element_bytes)),
        ds(p + t.rows * row_bytes(t.columns, t.element_bytes)),
        lse(ds + t.rows * row_bytes(t.columns, t.element_bytes)),
        delta(lse + 2 * 4 * t.rows),  // two tiles' each
        row_words(delta + 2 * 4 * t.rows),
        column_words(row_words + round_to_16(4 * t.rows * t.row_words)),
        diagonal(column_words + round_to_16(4 * t.columns * t.column_words)),
        cells(diagonal + diagonal_bytes(t)),
        classes(cells + cells_bytes(t)),
        place(classes + 2 * classified_tiles / 8),
        captured(place + block_place_bytes),
        bytes(captured + round_to_16(captured_bytes)) {}
};

// The deterministic dQ: queries stay, `stages` tiles of keys and values come and go.
struct BackwardDqShared {
  int q, grad_o, k, v, ds, lse, delta, row_words, column_words, diagonal, cells, bytes;
  constexpr BackwardDqShared(const TileSizes& t, int stages)
      : q(0),
        grad_o(q + t.rows * row_bytes(t.d, t.element_bytes)),
        k(grad_o + t.rows * row_bytes(t.dv, t.element_bytes)),
        v(k + stages * t.columns * row_bytes(t.d, t.element_bytes)),
        ds(v + stages * t.columns * row_bytes(t.dv, t.element_bytes)),
        lse(ds + (t.element_bytes == 4 ? t.rows * row_bytes(t.columns, 4) : 0)),
        delta(lse + 4 * t.rows),
        row_words(delta + 4 * t.rows),
        column_words(row_words + round_to_16(4 * t.rows * t.row_words)),
        diagonal(column_words + round_to_16(stages * 4 * t.columns * t.column_words)),
        cells(diagonal + stages * diagonal_bytes(t)),
        bytes(larger(cells + stages * cells_bytes(t), writing_bytes(t.warps, t.d))) {}
};

// Rows of a block of backward_delta.h.
constexpr int delta_rows = 16;

// Tiles of dQ's sums of one head and batch (of all sequences, if packed: each begins with a tile of
// its own).
constexpr long long sum_tiles(long long rows_q, long long sequences, int rows) {
  return sequences == 0 ? (rows_q + rows - 1) / rows : rows_q / rows + sequences;
}

}  // namespace fovea::device
