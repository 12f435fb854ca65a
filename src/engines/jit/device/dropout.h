// The portable dropout of attention/philox.h: Philox 4x32-10 with the seed as key and the counter
// (k / 4, q, b * H + h, offset); a score is kept if word k % 4 is at least p * 2^32.
#pragma once

#include "arguments.h"
#include "formula.h"
#include "primitives.h"
#include "sequence.h"

namespace fovea::device {

struct Dropout {
  unsigned long long seed;
  unsigned offset, head;  // head: b * H + h, as formulas see them
  unsigned long long threshold;
  float factor;  // of what is kept: 1 / (1 - p)
};

FOVEA_DEVICE Dropout dropout_of(const CallArguments& call, const Head& head) {
  const float p = value_of(call.dropout);
  return {
      value_of(call.seed), static_cast<unsigned>(value_of(call.offset)),
      static_cast<unsigned>(head.b) * static_cast<unsigned>(head.H) + static_cast<unsigned>(head.h),
      static_cast<unsigned long long>(static_cast<double>(p) * 4294967296.0), 1 / (1 - p)};
}

FOVEA_DEVICE Words4 philox(unsigned long long key, Words4 c) {
  unsigned key_0 = static_cast<unsigned>(key), key_1 = static_cast<unsigned>(key >> 32);
  FOVEA_UNROLL for (int round = 0; round < 10; ++round) {
    const unsigned long long p0 = 0xd2511f53ull * c.x, p1 = 0xcd9e8d57ull * c.z;
    c = {static_cast<unsigned>(p1 >> 32) ^ c.y ^ key_0, static_cast<unsigned>(p1),
         static_cast<unsigned>(p0 >> 32) ^ c.w ^ key_1, static_cast<unsigned>(p0)};
    key_0 += 0x9e3779b9u;
    key_1 += 0xbb67ae85u;
  }
  return c;
}

FOVEA_DEVICE bool word_keeps(const Dropout& d, const Words4& words, unsigned k) {
  const unsigned low = k & 1 ? words.y : words.x, high = k & 1 ? words.w : words.z;
  return (k & 2 ? high : low) >= d.threshold;
}

FOVEA_DEVICE bool dropout_keeps(const Dropout& d, int q, int k) {
  const auto key = static_cast<unsigned>(k);
  return word_keeps(d, philox(d.seed, {key / 4, static_cast<unsigned>(q), d.head, d.offset}), key);
}

// Of the scores at k and k + 1: one draw serves both but for one in four odd k.
struct KeptPair {
  bool first, second;
};
FOVEA_DEVICE KeptPair dropout_keeps_pair(const Dropout& d, int q, int k) {
  const auto key = static_cast<unsigned>(k), row = static_cast<unsigned>(q);
  const Words4 words = philox(d.seed, {key / 4, row, d.head, d.offset});
  const bool second =
      key % 4 == 3 ? dropout_keeps(d, q, static_cast<int>(key + 1)) : word_keeps(d, words, key + 1);
  return {word_keeps(d, words, key), second};
}

// What is kept of a warp's tile. A lane has rows q and q + 8 and, with t = lane % 4, columns 2 t
// and 2 t + 1 of each 8 from key `first` on. Bit 4 j + 2 r + e of the result is that of row q + 8 r
// and column 8 j + 2 t + e. A draw serves four keys of a row, which two lanes have: one lane draws
// for the upper row, its neighbour for the lower one, and they tell each other. By all lanes.
template <int columns8>
FOVEA_DEVICE unsigned long long dropout_keeps_lane(const Dropout& d, int q, int first) {
  const int t = lane_index() % 4, own = t % 2;
  unsigned long long kept = 0;
  if (first % 4 != 0) {  // neighbours' keys are of several draws
    FOVEA_NO_UNROLL for (int i = 0; i < 4 * columns8; ++i) {
      const bool keep =
          dropout_keeps(d, seen(q, i / 2 % 2 * 8), seen(first, i / 4 * 8 + 2 * t + i % 2));
      kept |= static_cast<unsigned long long>(keep) << i;
    }
    return kept;
  }
  const auto row = static_cast<unsigned>(seen(q, 8 * own));
  FOVEA_NO_UNROLL for (int j = 0; j < columns8; j += 2) {
    unsigned bits = 0;
    FOVEA_UNROLL for (int i = 0; i < 2; ++i) {
      const auto key = static_cast<unsigned>(seen(first, 8 * (j + i) + t / 2 * 4));
      const Words4 words = philox(d.seed, {key / 4, row, d.head, d.offset});
      FOVEA_UNROLL for (unsigned e = 0; e < 4; ++e) {
        bits |= word_keeps(d, words, e) ? 1u << (4 * i + e) : 0u;
      }
    }
    kept |= static_cast<unsigned long long>(bits) << 4 * j;
  }
  // Of the nibbles, the even lane's first two bits are its own columns, the odd lane's last two.
  const unsigned long long mine = own == 0 ? 0x3333333333333333ull : ~0x3333333333333333ull;
  const unsigned long long told = shuffle_xor(kept, 1) & mine;
  return (kept & mine) | (own == 0 ? told << 2 : told >> 2);
}

// Probabilities of a warp's tile (see tile.h), of which q and k are those of this lane's first:
// zeros where they are dropped.
template <int m, int n>
FOVEA_DEVICE void drop_scores(const Dropout& d, int q, int k, float (&p)[m][n][4]) {
  FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
    FOVEA_UNROLL for (int j = 0; j < n; ++j) {
      const KeptPair kept =
          dropout_keeps_pair(d, static_cast<int>(static_cast<unsigned>(q) + 8 * i),
                             static_cast<int>(static_cast<unsigned>(k) + 8 * j));
      float& first = p[i / 2][j][i % 2 * 2];
      float& second = p[i / 2][j][i % 2 * 2 + 1];
      first = kept.first ? first : 0;
      second = kept.second ? second : 0;
    }
  }
}

}  // namespace fovea::device
