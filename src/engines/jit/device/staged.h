// Values of a formula that change with the query alone or with the key alone, computed once a tile
// and kept in shared memory: word w of position i lies at 4 (w * count + i).
#pragma once

#include "formula.h"
#include "primitives.h"
#include "team.h"

namespace fovea::device {

// A struct of 4-byte words in shared memory, at an address that is known when kernels are compiled.
// Only the fields that are used are loaded.
template <class T>
FOVEA_DEVICE void store_struct(Shared at, const T& value) {
  static_assert(sizeof(T) % 4 == 0);
  const auto* const words = reinterpret_cast<const unsigned*>(&value);
  FOVEA_UNROLL for (unsigned i = 0; i < sizeof(T) / 4; ++i) store_shared(at + 4 * i, words[i]);
}
template <class T>
FOVEA_DEVICE T load_struct(Shared at) {
  T value;
  auto* const words = reinterpret_cast<unsigned*>(&value);
  FOVEA_UNROLL for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
    words[i] = load_shared_word(at + 4 * i);
  }
  return value;
}

template <int words>
FOVEA_DEVICE void store_words(Shared at, int count, int i, const unsigned* from) {
  FOVEA_UNROLL for (int w = 0; w < words; ++w) store_shared(at + 4 * (w * count + i), from[w]);
}

template <int words>
FOVEA_DEVICE void load_words(Shared at, int count, int i, unsigned* to) {
  FOVEA_UNROLL for (int w = 0; w < words; ++w) to[w] =
      load_shared<unsigned>(at + 4 * (w * count + i));
}

// By the first `count` threads of a team; `first` is the position of the first as formulas see it.
// Positions beyond the sequence are computed as well: their loads are clamped, and their values not
// used.
template <class Formula, class Arguments>
FOVEA_DEVICE void stage_rows(const Arguments& a, const typename Formula::Uniform& u, Shared at,
                             int first, int count, Team team = whole_block()) {
  if constexpr (Formula::row_words > 0) {
    for (int i = team.thread; i < count; i += team.threads) {
      unsigned words[Formula::row_words];
      Formula::make_row(a, u, static_cast<int>(static_cast<unsigned>(first) + i), words);
      store_words<Formula::row_words>(at, count, i, words);
    }
  }
}
template <class Formula, class Arguments>
FOVEA_DEVICE void stage_columns(const Arguments& a, const typename Formula::Uniform& u, Shared at,
                                int first, int count, Team team = whole_block()) {
  if constexpr (Formula::column_words > 0) {
    for (int i = team.thread; i < count; i += team.threads) {
      unsigned words[Formula::column_words];
      Formula::make_column(a, u, static_cast<int>(static_cast<unsigned>(first) + i), words);
      store_words<Formula::column_words>(at, count, i, words);
    }
  }
}

template <class Formula, class Arguments>
FOVEA_DEVICE typename Formula::Row staged_row(const Arguments& a,
                                              const typename Formula::Uniform& u, Shared at,
                                              int count, int i, int q) {
  unsigned words[Formula::row_words > 0 ? Formula::row_words : 1];
  load_words<Formula::row_words>(at, count, i, words);
  return Formula::row(a, u, q, words);
}
template <class Formula, class Arguments>
FOVEA_DEVICE typename Formula::Column staged_column(const Arguments& a,
                                                    const typename Formula::Uniform& u, Shared at,
                                                    int count, int i, int k) {
  unsigned words[Formula::column_words > 0 ? Formula::column_words : 1];
  load_words<Formula::column_words>(at, count, i, words);
  return Formula::column(a, u, k, words);
}

}  // namespace fovea::device
