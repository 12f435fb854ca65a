// What kernels ask of a formula. `Formula` itself is generated for each plan (engines/jit/render);
// this says what it has, and holds the few types that both sides use.
//
//   struct Formula {
//     static constexpr bool has_mask, has_mod;
//     static constexpr bool adds_only;  // to the score: gradient() is grad itself
//     static constexpr bool classifies;  // false: classify says Full of every box
//     // Values that change with q alone, or with k alone, and cost something: computed once a tile
//     // and kept in shared memory as 4-byte words. 0: there are none.
//     static constexpr int row_words, column_words;
//
//     // Values that change with k - q alone, by q and k at any place of a diagonal, and cost
//     // something: words as well, computed once a tile for each of its diagonals.
//     static constexpr int diagonal_words;
//     // One captured tensor t[..., q, ..., k] at most is copied tile by tile.
//     static constexpr bool has_cells;
//     static constexpr bool batches_share_cells;  // it does not change with b
//     using Cell = captured::StoredBF16 ...;          // what it is stored in
//
//     struct Uniform;  // what changes with (b, h) alone
//     struct Row;      // q, and what changes with it
//     struct Pair;     // diagonal values and the cell at one (q, k)
//     struct Column;   // k, and what changes with it; `pair`, for one row
//     static Uniform uniform(const Arguments&, const Head&);
//     static void make_row(const Arguments&, const Uniform&, int q, unsigned* words);
//     static void make_column(const Arguments&, const Uniform&, int k, unsigned* words);
//     static Row row(const Arguments&, const Uniform&, int q, const unsigned* words);
//     static Column column(const Arguments&, const Uniform&, int k, const unsigned* words);
//
//     // Column::pair must be set before the functions below are called: to pair(), from staged
//     // words, or by fill_pair.
//     static void make_diagonal(const Arguments&, const Uniform&, int q, int k, unsigned* words);
//     static CellSource cells(const Arguments&, const Uniform&);
//     static Pair pair(const unsigned* diagonal_words, unsigned cell_bits);
//     static void fill_pair(const Arguments&, const Uniform&, const Row&, Column&);
//     static constexpr PairReads keep_reads, score_reads, ...;  // of each function
//
//     static bool keep(const Arguments&, const Uniform&, const Row&, const Column&);
//     // The mask in parts, all of which must hold: keep_part<i>(...). What each reads:
//     static constexpr int mask_parts;
//     static constexpr PairReads part_reads[mask_parts];
//     static float score(const Arguments&, const Uniform&, const Row&, const Column&, float s);
//     // If has_factors: score(s) = outer * inner(inner_scale * s), with factors of the head alone.
//     static constexpr bool has_factors;
//     static float inner(const Arguments&, const Uniform&, const Row&, const Column&, float s);
//     static float inner_scale(...), outer(const Arguments&, const Uniform&, ...);
//     // No modified score is larger in magnitude (of inner(), if has_factors); 0: not known.
//     static constexpr float bound;
//     // If splits_shift is asked for, a row's scores are score() + shift(...) + slope(...) *
//     // (line_k * k + line_q * q), with shift and slope constant in a row.
//     static constexpr bool shifts;
//     static constexpr int line_k, line_q;
//     static float shift(const Arguments&, const Uniform&, const Row&, const Column&);
//     static float slope(const Arguments&, const Uniform&, const Row&, const Column&);
//     // The gradient by the unmodified score (a backward's plan only).
//     static float gradient(const Arguments&, const Uniform&, const Row&, const Column&, float s,
//                           float grad);
//     // Which parts of the mask hide something of the box, or whether it is empty.
//     static TileClass classify(const Arguments&, const Head&, const Box&);
//   };
//
// Positions are what formulas see: offsets are added already. All functions are forced inline and
// have no side effects, so that the compiler shares what they have in common. s is the score times
// scale, in natural units; -inf means not kept.
#pragma once

#include "primitives.h"
#include "shared_layout.h"

namespace fovea::device {

// A head as formulas see it.
struct Head {
  int b, h;
  int B, H, Hkv, Sq, Skv;
};

// Positions from first to last, both included, as formulas see them; h: heads that share a tile.
struct Box {
  int h_first, h_last;
  int q_first, q_last;
  int k_first, k_last;
};

// A captured tensor by q and k: where it begins for a head, its extents and strides (in elements).
struct CellSource {
  const void* data;
  long long tensor;  // the address of the whole of it
  long long q_extent, q_stride, k_extent, k_stride;
};

// Which parts of Column::pair a function reads.
struct PairReads {
  bool diagonal, cell;
};

// What may hide some scores of a tile: a bit for each part of the mask, and one for the sequence's
// end.
struct TileClass {
  unsigned mixed;
  static constexpr unsigned edge = 1u << most_mask_parts, some_part = edge - 1;
  static FOVEA_DEVICE TileClass empty() { return {~0u}; }
  static FOVEA_DEVICE TileClass full() { return {0}; }
  FOVEA_DEVICE bool is_empty() const { return mixed == ~0u; }
  FOVEA_DEVICE bool is_full() const { return mixed == 0; }
};

}  // namespace fovea::device
