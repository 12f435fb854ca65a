// What kernels ask of a formula. `Formula` itself is generated for each plan (engines/jit/render);
// this says what it has, and holds the few types that both sides use.
//
//   struct Formula {
//     static constexpr bool has_mask, has_mod;
//     static constexpr bool classifies;  // false: classify says Full of every box
//     // Values that change with q alone, or with k alone, and cost something: computed once a tile
//     // and kept in shared memory as 4-byte words. 0: there are none.
//     static constexpr int row_words, column_words;
//
//     struct Uniform;  // what changes with (b, h) alone
//     struct Row;      // q, and what changes with it
//     struct Column;   // k, and what changes with it
//     static Uniform uniform(const Arguments&, const Head&);
//     static void make_row(const Arguments&, const Uniform&, int q, unsigned* words);
//     static void make_column(const Arguments&, const Uniform&, int k, unsigned* words);
//     static Row row(const Arguments&, const Uniform&, int q, const unsigned* words);
//     static Column column(const Arguments&, const Uniform&, int k, const unsigned* words);
//
//     static bool keep(const Arguments&, const Uniform&, const Row&, const Column&);
//     static float score(const Arguments&, const Uniform&, const Row&, const Column&, float s);
//     // The gradient by the unmodified score (a backward's plan only).
//     static float gradient(const Arguments&, const Uniform&, const Row&, const Column&, float s,
//                           float grad);
//     // Whether any, or every, position of the box is kept.
//     static Tile classify(const Arguments&, const Head&, const Box&);
//   };
//
// Positions are what formulas see: offsets are added already. All functions are forced inline and
// have no side effects, so that the compiler shares what they have in common. s is the score times
// scale, in natural units; -inf means not kept.
#pragma once

#include "primitives.h"

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

enum class Tile : int { Empty, Mixed, Full };

}  // namespace fovea::device
