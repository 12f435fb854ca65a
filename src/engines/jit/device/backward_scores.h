// From a tile's products S = Q K^T and dP = dO V^T to its probabilities and to the gradients of its
// scores, element by element in registers.
#pragma once

#include "backward_place.h"
#include "dropout.h"
#include "row_base.h"
#include "staged.h"
#include "tile.h"
#include "tile_values.h"

namespace fovea::device {

// Where a warp's part of a tile lies, and what its rows and columns are.
struct ScorePlace {
  int row, column;       // of this lane's first element in the tile
  int q_first, k_first;  // of the tile, as formulas see them
  int q_count, k_count;  // rows and columns of the tile that the sequence has
  Shared lse, delta;     // of the tile's rows
  Shared row_words, column_words;
  TileValues values;
};

// What a call has for all tiles.
struct ScoreScale {
  float scale;
  Dropout dropout;
};

// A row's logsumexp in powers of two. Nothing of a row with lse = -inf counts.
struct ScoreRow {
  float lse, delta;
  bool counts;
};

// exp(score - lse). f32 takes the difference first, which loses no digits of large scores.
template <class Element>
FOVEA_DEVICE float probability(float score, const ScoreRow& row) {
  if constexpr (bytes_of<Element> == 4) {
    return exp2_approx((score - row.lse) * log2_of_e);
  } else {
    return exp2_approx(fma_rn(score, log2_of_e, -row.lse));
  }
}
template <class Element>
FOVEA_DEVICE ScoreRow load_score_row(const ScorePlace& at, int row) {
  const float lse = load_shared<float>(at.lse + 4 * row);
  const bool counts = lse != -infinity();
  const float used = bytes_of<Element> == 4 ? lse : lse * log2_of_e;
  return {counts ? used : infinity(), load_shared<float>(at.delta + 4 * row), counts};
}

// The rows of a lane. Says whether a row of the warp kept nothing, which a full tile does not rule
// out: all its scores may be -inf.
template <class Element, int count>
FOVEA_DEVICE bool load_score_rows(const ScorePlace& at, ScoreRow (&rows)[count]) {
  bool empty = false;
  FOVEA_UNROLL for (int i = 0; i < count; ++i) {
    rows[i] = load_score_row<Element>(at, at.row + 8 * i);
    empty |= !rows[i].counts;
  }
  return any_in_warp(empty);
}

// Which of a lane's scores are kept: a bit each.
template <int m, int n>
struct KeptScores {
  unsigned words[(4 * m * n + 31) / 32];
  FOVEA_DEVICE static int number(int i, int j, int c) { return (2 * j + c) * 2 * m + i; }
  FOVEA_DEVICE bool has(int i, int j, int c) const {
    return (words[number(i, j, c) / 32] >> number(i, j, c) % 32 & 1u) != 0;
  }
  FOVEA_DEVICE void set(int i, int j, int c, bool keep) {
    words[number(i, j, c) / 32] |= keep ? 1u << number(i, j, c) % 32 : 0u;
  }
};

// `visit(i, j, c, keep)` for every score of a lane: row i, piece j, column c of that.
template <class Config, int m, int n, class Visit>
FOVEA_DEVICE void for_each_kept(const Arguments& a, const typename Formula::Uniform& uniform,
                                const ScorePlace& at, const ScoreRow (&rows)[2 * m],
                                const typename Formula::Row (&formula_rows)[2 * m],
                                const Visit& visit) {
  LanePairs<Formula, Config::rows, Config::columns, 2 * m, Formula::keep_reads.diagonal,
            Formula::keep_reads.cell>
      pairs(at.values, at.row, at.column);
  FOVEA_UNROLL for (int j = 0; j < n; ++j) {
    pairs.load(j);
    FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
      const int column = at.column + 8 * j + c;
      auto formula_column = staged_column<Formula>(a, uniform, at.column_words, Config::columns,
                                                   column, seen(column, at.k_first));
      FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
        bool keep = rows[i].counts && at.row + 8 * i < at.q_count && column < at.k_count;
        if constexpr (Formula::has_mask) {
          formula_column.pair = pairs.pair(i, c);
          keep = keep && Formula::keep(a, uniform, formula_rows[i], formula_column);
        }
        visit(i, j, c, keep);
      }
    }
  }
}

// s becomes P (after dropout: what multiplies dO), dp becomes dS before scale. `masked`: some may
// not be kept. `captured` is told every element's score and gradient. All are computed as if they
// were kept, and masked ones cleared afterwards: the code is there once, and whole tiles do not pay
// for masks.
template <class Config, int m, int n, class Terms>
FOVEA_DEVICE void score_gradients(const Arguments& a, const typename Formula::Uniform& uniform,
                                  const ScoreScale& scaled, const ScorePlace& at,
                                  ScoreRow (&rows)[2 * m], bool masked, float (&s)[m][n][4],
                                  float (&dp)[m][n][4], Terms& captured) {
  using Element = typename Config::Element;
  // Without a modifier the scale is part of the exponent's factor.
  constexpr bool folded = !Formula::has_mod && bytes_of<Element> == 2;
  const float folded_scale = scaled.scale * log2_of_e;
  typename Formula::Row formula_rows[2 * m];
  RowBase bases[2 * m];
  FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
    const int row = at.row + 8 * i;
    formula_rows[i] =
        staged_row<Formula>(a, uniform, at.row_words, Config::rows, row, seen(row, at.q_first));
    bases[i] = row_base<Formula>(a, uniform, formula_rows[i], at.k_first);
    if constexpr (Formula::shifts) {
      const double unit = bytes_of<Element> == 4 ? 1 : log2_of_e;
      rows[i].lse = moved(rows[i].lse, 0, bases[i].base * unit);
    }
  }
  KeptScores<m, n> kept;
  if constexpr (Terms::asks_scores) {
    FOVEA_UNROLL for (unsigned& word : kept.words) word = ~0u;
    if (masked) {
      FOVEA_UNROLL for (unsigned& word : kept.words) word = 0;
      for_each_kept<Config, m, n>(a, uniform, at, rows, formula_rows,
                                  [&](int i, int j, int c, bool keep) { kept.set(i, j, c, keep); });
    }
    captured.begin_tile(a, uniform, formula_rows, at);
  }
  LanePairs<Formula, Config::rows, Config::columns, 2 * m, true, true> pairs(at.values, at.row,
                                                                             at.column);
  FOVEA_UNROLL for (int j = 0; j < n; ++j) {
    pairs.load(j);
    unsigned stays[2 * m];  // bits of two columns
    if constexpr (Config::dropout) {
      FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
        const KeptPair pair = dropout_keeps_pair(scaled.dropout, seen(at.row + 8 * i, at.q_first),
                                                 seen(at.column + 8 * j, at.k_first));
        stays[i] = (pair.first ? 1u : 0u) | (pair.second ? 2u : 0u);
      }
    }
    FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
      const int column = at.column + 8 * j + c;
      auto formula_column = staged_column<Formula>(a, uniform, at.column_words, Config::columns,
                                                   column, seen(column, at.k_first));
      FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
        const ScoreRow& row = rows[i];
        formula_column.pair = pairs.pair(i, c);
        float& score = s[i / 2][j][i % 2 * 2 + c];
        float& gradient = dp[i / 2][j][i % 2 * 2 + c];
        const float x = score * scaled.scale;
        float y = x;
        if constexpr (Formula::has_mod) {
          y = near_score<Formula>(a, uniform, formula_rows[i], formula_column, x, bases[i],
                                  at.k_first);
        }
        const float p = folded ? exp2_approx(fma_rn(score, folded_scale, -row.lse))
                               : probability<Element>(y, row);
        float to_p = gradient;
        score = p;
        if constexpr (Config::dropout) {
          const bool drawn = (stays[i] >> c & 1u) != 0;
          to_p = drawn ? gradient * scaled.dropout.factor : 0.0f;
          score = drawn ? p * scaled.dropout.factor : 0.0f;
        }
        const float grad = p * (to_p - row.delta);
        gradient = grad;
        if constexpr (Formula::has_mod) {
          gradient = Formula::gradient(a, uniform, formula_rows[i], formula_column, x, grad);
        }
        if constexpr (Terms::asks_scores) {
          // A score of -inf is not kept either.
          captured.add({a, uniform, formula_rows[i], formula_column, x, grad,
                        kept.has(i, j, c) && y != -infinity(), i, c, j});
        }
      }
    }
  }
  if constexpr (Terms::asks_scores) captured.end_tile(a, uniform, formula_rows, at);
  if (!masked) return;
  const auto clear_unless = [&](int i, int j, int c, bool keep) {
    float &p = s[i / 2][j][i % 2 * 2 + c], &ds = dp[i / 2][j][i % 2 * 2 + c];
    p = keep ? p : 0.0f;
    ds = keep ? ds : 0.0f;
  };
  if constexpr (Terms::asks_scores) {
    FOVEA_UNROLL for (int x = 0; x < 4 * m * n; ++x) {
      const int i = x % (2 * m), c = x / (2 * m) % 2, j = x / (4 * m);
      clear_unless(i, j, c, kept.has(i, j, c));
    }
  } else {
    for_each_kept<Config, m, n>(a, uniform, at, rows, formula_rows, clear_unless);
  }
}

// Stands for the terms of captured.h in plans without gradients of captured tensors and scalars.
struct NoCaptured {
  static constexpr bool any = false, asks_scores = false, reads_ds = false;
};

}  // namespace fovea::device
