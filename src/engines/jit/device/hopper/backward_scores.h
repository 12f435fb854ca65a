// From a warp's part of S^T = K Q^T and dP^T = V dO^T to its probabilities and to the gradients of
// its scores, element by element in registers.
//
// A lane has keys `key` and key + 8 and queries 8 j + 2 t, 8 j + 2 t + 1 with t = lane % 4: element
// [j][2 r + c] is at key + 8 r and query 8 j + 2 t + c, and has bit 4 j + 2 r + c in sets of them.
// Two queries are packed into one register, [j / 2][j % 2 * 2 + r]: what the matrix units take as
// the left factor of dV and dK.
#pragma once

#include "../dropout.h"
#include "../softmax.h"
#include "../staged.h"
#include "backward_shape.h"
#include "backward_step.h"
#include "captured.h"

namespace fovea::device {

template <class Config>
class BackwardScores {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;

 public:
  // What multiplies dP - delta is P, if the modifier only adds something to the score; else P times
  // its derivative, which waits in the part of dS's tile that this warp writes later. In
  // backward_wide.h either goes to another warpgroup.
  static constexpr bool has_weights =
      (Formula::has_mod && !Formula::adds_only) || Config::dropout || Shape::p_tiles > 0;
  static constexpr bool weights_are_p = has_weights && Formula::adds_only && !Config::dropout;

  // key: of this lane's first element in the tile.
  FOVEA_DEVICE BackwardScores(const Arguments& a, StepRef step, int stage, int key)
      : a_(a), step_(step), stage_(stage), key_(key) {}

  // A bit for each of the lane's elements: those that are kept. By the flags of the step: only what
  // may hide something is asked.
  FOVEA_DEVICE unsigned find_kept(unsigned flags) const;
  // Those that dropout takes away.
  FOVEA_DEVICE unsigned find_dropped() const;
  // s becomes p, packed, after dropout.
  FOVEA_DEVICE void probabilities(const float (&s)[8][4], float scale, unsigned (&p)[4][4],
                                  Shared weights, unsigned dropped) const;
  FOVEA_DEVICE static void clear_masked(unsigned kept, unsigned (&p)[4][4], Shared weights);
  // dS before scale, packed, of p or in place of it. `captured` is told every element's gradient.
  // Returns what they add up to, if somebody asks for it.
  template <class Terms>
  FOVEA_DEVICE float gradients(const float (&dp)[8][4], const unsigned (&p)[4][4],
                               unsigned (&ds)[4][4], Shared weights, unsigned dropped,
                               Terms& captured) const;

 private:
  FOVEA_DEVICE static int first_query() { return lane_index() % 4 * 2; }
  FOVEA_DEVICE unsigned find_inside() const;
  template <int part>
  FOVEA_DEVICE unsigned kept_by() const;
  template <bool needed>
  FOVEA_DEVICE typename Formula::Uniform uniform() const {
    if constexpr (!needed) {
      return {};
    } else if constexpr (Shape::has_uniform) {
      return load_struct<typename Formula::Uniform>(Shape::uniform(stage_));
    } else {
      const Sequence s = step_.sequence();
      return Formula::uniform(a_, head_of(a_.call, s, step_.b(), step_.h()));
    }
  }
  FOVEA_DEVICE Dropout dropout() const {
    return dropout_of(a_.call, head_of(a_.call, step_.sequence(), step_.b(), step_.h()));
  }
  template <class Uniform>
  FOVEA_DEVICE auto row(const Uniform& u, int query, int q_seen) const {
    return staged_row<Formula>(a_, u, Shape::row_words(stage_), Shape::queries, query,
                               seen(query, q_seen));
  }
  template <class Uniform>
  FOVEA_DEVICE auto column(const Uniform& u, int key, int k_seen) const {
    return staged_column<Formula>(a_, u, Shape::column_words(stage_), Shape::keys, key,
                                  seen(key, k_seen));
  }
  // Cells at this lane's elements [2 jj] and [2 jj + 1], packed as p is.
  FOVEA_DEVICE void load_cells(int jj, unsigned (&cells)[4]) const;
  // What is staged for the diagonals of this lane's elements [j], for each j in turn from 0 on: the
  // second key's are those of the first key and the j before.
  static constexpr int words = Formula::diagonal_words;
  struct Diagonals {
    unsigned word[2][2][words > 0 ? words : 1];  // [r][c]
  };
  FOVEA_DEVICE void load_diagonals(int j, Diagonals& at) const;
  template <class Uniform, class Terms>
  FOVEA_DEVICE CapturedPlace captured_place(const Uniform& u,
                                            typename Formula::Column (&columns)[2], Terms&) const;

  const Arguments& a_;
  StepRef step_;
  int stage_, key_;
};

// A matrix of 8 queries x 8 keys, transposed, has two queries of a key in each lane.
template <class Config>
FOVEA_DEVICE void BackwardScores<Config>::load_cells(int jj, unsigned (&cells)[4]) const {
  if constexpr (Formula::has_cells) {
    const int lane = lane_index(), matrix = lane / 8;
    const int query = 16 * jj + matrix / 2 * 8 + lane % 8;
    const int key = key_ - lane / 4 + matrix % 2 * 8;
    load_matrices_transposed(cells, Shape::cells(stage_).at(query, key));
  }
}

template <class Config>
FOVEA_DEVICE void BackwardScores<Config>::load_diagonals(int j, Diagonals& at) const {
  if constexpr (words > 0) {
    const Shared first =
        Shape::diagonal(stage_) + 4 * (key_ - first_query() + Shape::queries - 1 - 8 * j);
    FOVEA_UNROLL for (int w = 0; w < words; ++w) {
      FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
        const Shared own = first + 4 * (w * (Shape::queries + Shape::keys) - c);
        at.word[1][c][w] = j > 0 ? at.word[0][c][w] : load_shared_word(own + 32);
        at.word[0][c][w] = load_shared_word(own);
      }
    }
  }
}

template <class Config>
FOVEA_DEVICE unsigned BackwardScores<Config>::find_kept(unsigned flags) const {
  unsigned kept = find_inside();
  if constexpr (Formula::has_mask && Formula::mask_parts == 1) {
    kept &= kept_by<0>();
  } else if constexpr (Formula::has_mask) {
    const unsigned parts = flags >> step_part_shift;
    if ((parts & 1) != 0) kept &= kept_by<0>();
    if ((parts & 2) != 0) kept &= kept_by<1>();
    if constexpr (Formula::mask_parts > 2) {
      if ((parts & 4) != 0) kept &= kept_by<2>();
    }
  }
  return kept;
}

// Those inside the sequence. A lane has two keys and two queries of each 8 x 8 elements.
template <class Config>
FOVEA_DEVICE unsigned BackwardScores<Config>::find_inside() const {
  const int q_count = step_.q_length() - step_.q_first();
  const int k_count = step_.k_length() - step_.k_first();
  if (q_count >= Shape::queries && k_count >= Shape::keys) return ~0u;
  unsigned inside = 0;
  FOVEA_UNROLL for (int i = 0; i < 16; ++i) {
    const int j = i / 2, c = i % 2;
    inside |= 8 * j + first_query() + c < q_count ? 5u << (4 * j + c) : 0u;
  }
  if (key_ >= k_count) inside &= 0xccccccccu;
  return key_ + 8 >= k_count ? inside & 0x33333333u : inside;
}

// Those that a part of the mask keeps.
template <class Config>
template <int part>
FOVEA_DEVICE unsigned BackwardScores<Config>::kept_by() const {
  const auto u = uniform<true>();
  const int q_seen = step_.q_seen(), k_seen = step_.k_seen();
  constexpr PairReads reads = Formula::part_reads[part];
  typename Formula::Column columns[2] = {column(u, key_, k_seen), column(u, key_ + 8, k_seen)};
  unsigned kept = 0, cells[4] = {};
  Diagonals diagonals{};
  FOVEA_UNROLL for (int j = 0; j < 8; ++j) {
    if (reads.diagonal) load_diagonals(j, diagonals);
    if (reads.cell && j % 2 == 0) load_cells(j / 2, cells);
    FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
      const auto formula_row = row(u, 8 * j + first_query() + c, q_seen);
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        columns[r].pair =
            Formula::pair(diagonals.word[r][c], cells[j % 2 * 2 + r] >> 16 * c & 0xffffu);
        const bool keep = Formula::template keep_part<part>(a_, u, formula_row, columns[r]);
        kept |= keep ? 1u << (4 * j + 2 * r + c) : 0u;
      }
    }
  }
  return kept;
}

// One draw serves four keys, which four lanes have: each of them draws for one of four queries, and
// they tell each other.
template <class Config>
FOVEA_DEVICE unsigned BackwardScores<Config>::find_dropped() const {
  unsigned dropped = 0;
  if constexpr (Config::dropout) {
    const Dropout drawn = dropout();
    const int q_seen = step_.q_seen(), k_seen = step_.k_seen();
    if (k_seen % 4 != 0) {
      FOVEA_NO_UNROLL for (int i = 0; i < 32; ++i) {
        const int query = i / 4 * 8 + first_query() + i % 2, key = key_ + i / 2 % 2 * 8;
        const bool stays = dropout_keeps(drawn, seen(query, q_seen), seen(key, k_seen));
        dropped |= stays ? 0u : 1u << i;
      }
      return dropped;
    }
    const int own = lane_index() / 4 % 4;  // which of the four queries, and of the four keys
    unsigned gone = 0;
    FOVEA_UNROLL for (int i = 0; i < 8; ++i) {
      const int query = 16 * (i / 2) + own / 2 * 8 + first_query() + own % 2;
      const auto k = static_cast<unsigned>(seen(key_ + i % 2 * 8, k_seen));
      const auto q = static_cast<unsigned>(seen(query, q_seen));
      const Words4 words = philox(drawn.seed, {k / 4, q, drawn.head, drawn.offset});
      FOVEA_UNROLL for (unsigned key = 0; key < 4; ++key) {
        gone |= word_keeps(drawn, words, key) ? 0u : 1u << (4 * i + key);
      }
    }
    FOVEA_UNROLL for (int e = 0; e < 4; ++e) {
      const unsigned told = shuffle(gone, (lane_index() & ~12) | e << 2) >> own;
      FOVEA_UNROLL for (int i = 0; i < 8; ++i) {
        const int bit = 4 * (i / 2 * 2 + e / 2) + i % 2 * 2 + e % 2;
        dropped |= (told >> 4 * i & 1u) << bit;
      }
    }
  }
  return dropped;
}

template <class Config>
FOVEA_DEVICE void BackwardScores<Config>::probabilities(const float (&s)[8][4], float scale,
                                                        unsigned (&p)[4][4], Shared weights,
                                                        unsigned dropped) const {
  const auto u = uniform<Formula::has_mod>();
  const int q_seen = step_.q_seen(), k_seen = step_.k_seen();
  const float folded_scale = scale * log2_of_e;
  const Shared terms = Shape::lse(stage_) + 16 * (lane_index() % 4);
  typename Formula::Column columns[2];
  if constexpr (Formula::has_mod) {
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) columns[r] = column(u, key_ + 8 * r, k_seen);
  }
  float factor = 1;
  if constexpr (Config::dropout) factor = dropout().factor;
  Diagonals diagonals{};
  FOVEA_UNROLL for (int jj = 0; jj < 4; ++jj) {
    const auto lse = load_shared<Floats4>(terms + 64 * jj);
    const float negative_lse[4]{lse.x, lse.y, lse.z, lse.w};
    unsigned w[4], cells[4] = {};
    if constexpr (Formula::has_mod) load_cells(jj, cells);
    FOVEA_UNROLL for (int half = 0; half < 2; ++half) {
      const int j = 2 * jj + half;
      load_diagonals(j, diagonals);
      float probability[2][2], weight[2][2];  // [r][c]
      FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
        const int query = 8 * j + first_query() + c;
        const float term = negative_lse[2 * half + c];
        if constexpr (Formula::has_mod) {
          const auto formula_row = row(u, query, q_seen);
          FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
            const float x = s[j][2 * r + c] * scale;
            columns[r].pair =
                Formula::pair(diagonals.word[r][c], cells[2 * half + r] >> 16 * c & 0xffffu);
            const float y = Formula::score(a_, u, formula_row, columns[r], x);
            probability[r][c] = exp2_approx(fma_rn(y, log2_of_e, term));
            weight[r][c] = probability[r][c];
            if constexpr (!Formula::adds_only) {
              weight[r][c] *= Formula::gradient(a_, u, formula_row, columns[r], x, 1.0f);
            }
          }
        } else {
          FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
            probability[r][c] = exp2_approx(fma_rn(s[j][2 * r + c], folded_scale, term));
            weight[r][c] = probability[r][c];
          }
        }
        if constexpr (Config::dropout) {
          FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
            const bool stays = (dropped >> (4 * j + 2 * r + c) & 1u) == 0;
            probability[r][c] = stays ? probability[r][c] * factor : 0.0f;
          }
        }
      }
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        p[jj][2 * half + r] = pack(Element{}, probability[r][0], probability[r][1]);
        w[2 * half + r] = pack(Element{}, weight[r][0], weight[r][1]);
      }
    }
    if constexpr (has_weights) {
      store_shared(weights + 512 * jj + 16 * lane_index(), Words4{w[0], w[1], w[2], w[3]});
    }
  }
}

// Two bits as masks of the halves of a register.
FOVEA_DEVICE unsigned halves(unsigned two_bits) {
  return ((two_bits & 1u) != 0 ? 0xffffu : 0u) | ((two_bits & 2u) != 0 ? 0xffff0000u : 0u);
}

template <class Config>
FOVEA_DEVICE void BackwardScores<Config>::clear_masked(unsigned kept, unsigned (&p)[4][4],
                                                       Shared weights) {
  FOVEA_UNROLL for (int i = 0; i < 16; ++i) p[i / 4][i % 4] &= halves(kept >> 2 * i);
  if constexpr (has_weights) {
    FOVEA_UNROLL for (int jj = 0; jj < 4; ++jj) {
      const Shared at = weights + 512 * jj + 16 * lane_index();
      auto w = load_shared<Words4>(at);
      w.x &= halves(kept >> 8 * jj), w.y &= halves(kept >> (8 * jj + 2));
      w.z &= halves(kept >> (8 * jj + 4)), w.w &= halves(kept >> (8 * jj + 6));
      store_shared(at, w);
    }
  }
}

// The same for halves that are not 0.
FOVEA_DEVICE unsigned halves_above_zero(unsigned x) {
  return ((x & 0xffffu) != 0 ? 0xffffu : 0u) | (x > 0xffffu ? 0xffff0000u : 0u);
}

// Products of two packed pairs, rounded to the packed type. bf16 has the range of f32, so that the
// second factor may be rounded before.
FOVEA_DEVICE unsigned weigh(BF16, unsigned w, float x, float y) {
  return multiply_pairs(BF16{}, w, pack(BF16{}, x, y));
}
FOVEA_DEVICE unsigned weigh(F16, unsigned w, float x, float y) {
  const float left = to_float(F16{}, static_cast<unsigned short>(w));
  const float right = to_float(F16{}, static_cast<unsigned short>(w >> 16));
  return pack(F16{}, left * x, right * y);
}

template <class Config>
template <class Uniform, class Terms>
FOVEA_DEVICE CapturedPlace BackwardScores<Config>::captured_place(
    const Uniform& u, typename Formula::Column (&columns)[2], Terms&) const {
  CapturedPlace place{};
  if constexpr (Terms::asks_scores) {
    place = {key_,
             step_.q_seen(),
             step_.k_seen(),
             step_.q_length() - step_.q_first(),
             step_.k_length() - step_.k_first(),
             (step_.flags() & (step_first | step_new_head)) != 0,
             Shape::row_words(stage_),
             columns};
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) columns[r] = column(u, key_ + 8 * r, place.k_seen);
  }
  return place;
}

template <class Config>
template <class Terms>
FOVEA_DEVICE float BackwardScores<Config>::gradients(const float (&dp)[8][4],
                                                     const unsigned (&p)[4][4],
                                                     unsigned (&ds)[4][4], Shared weights,
                                                     unsigned dropped, Terms& captured) const {
  float sums[2] = {0, 0};
  const Shared terms = Shape::delta(stage_) + 16 * (lane_index() % 4);
  float factor = 1;
  if constexpr (Config::dropout) factor = dropout().factor;
  const auto u = uniform<Terms::asks_scores>();
  typename Formula::Column columns[2];
  const CapturedPlace place = captured_place(u, columns, captured);
  if constexpr (Terms::asks_scores) captured.begin_step(a_, u, place);
  Diagonals diagonals{};
  FOVEA_UNROLL for (int jj = 0; jj < 4; ++jj) {
    const auto delta = load_shared<Floats4>(terms + 64 * jj);
    const float deltas[4]{delta.x, delta.y, delta.z, delta.w};
    unsigned w[4], cells[4] = {};
    if constexpr (has_weights) {
      const auto four = load_shared<Words4>(weights + 512 * jj + 16 * lane_index());
      w[0] = four.x, w[1] = four.y, w[2] = four.z, w[3] = four.w;
    }
    if constexpr (Terms::asks_scores) load_cells(jj, cells);
    FOVEA_UNROLL for (int half = 0; half < 2; ++half) {
      const int j = 2 * jj + half;
      if constexpr (Terms::asks_scores) load_diagonals(j, diagonals);
      float to_score[2][2];  // [r][c]: by the score before its probability is multiplied in
      FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
        FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
          float to_p = dp[j][2 * r + c];
          if constexpr (Config::dropout) {
            to_p = (dropped >> (4 * j + 2 * r + c) & 1u) != 0 ? 0.0f : to_p * factor;
          }
          to_score[r][c] = to_p - deltas[2 * half + c];
        }
        if constexpr (Terms::asks_scores) {
          const int query = 8 * j + first_query() + c;
          const auto formula_row = row(u, query, place.q_seen);
          FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
            const unsigned bits = p[jj][2 * half + r] >> 16 * c;
            const float probability = to_float(Element{}, static_cast<unsigned short>(bits));
            columns[r].pair =
                Formula::pair(diagonals.word[r][c], cells[2 * half + r] >> 16 * c & 0xffffu);
            captured.add({a_, u, formula_row, columns[r], 0, probability * to_score[r][c],
                          probability != 0, r, c, j});
          }
        }
      }
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const int i = 2 * half + r;
        ds[jj][i] = weigh(Element{}, has_weights ? w[i] : p[jj][i], to_score[r][0], to_score[r][1]);
        // A NaN of something masked must not be among sums of other scores.
        if constexpr (Terms::reads_ds) {
          ds[jj][i] &= halves_above_zero(weights_are_p ? w[i] : p[jj][i]);
        }
        if constexpr (lanes_add_up<Config>) {
          sums[0] += to_float(Element{}, static_cast<unsigned short>(ds[jj][i]));
          sums[1] += to_float(Element{}, static_cast<unsigned short>(ds[jj][i] >> 16));
        }
      }
    }
  }
  if constexpr (Terms::asks_scores) {
    captured.end_step(a_, u, place);
    if ((step_.flags() & step_head_end) != 0) captured.end_head(a_, u, place);
  }
  return sums[0] + sums[1];
}

}  // namespace fovea::device
