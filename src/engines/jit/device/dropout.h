// Dropout's decisions: Philox 4x32-10 of seed, offset and position, as attention/philox.h has it.
#pragma once

#include "arguments.h"
#include "formula.h"
#include "primitives.h"
#include "sequence.h"

namespace fovea::device {

struct Philox4 {
  unsigned x, y, z, w;
};

FOVEA_DEVICE Philox4 philox(unsigned long long key, Philox4 counter) {
  unsigned key_0 = static_cast<unsigned>(key), key_1 = static_cast<unsigned>(key >> 32);
  FOVEA_UNROLL for (int round = 0; round < 10; ++round) {
    const unsigned long long product_0 = 0xd2511f53ull * counter.x;
    const unsigned long long product_1 = 0xcd9e8d57ull * counter.z;
    counter = {static_cast<unsigned>(product_1 >> 32) ^ counter.y ^ key_0,
               static_cast<unsigned>(product_1),
               static_cast<unsigned>(product_0 >> 32) ^ counter.w ^ key_1,
               static_cast<unsigned>(product_0)};
    key_0 += 0x9e3779b9u;
    key_1 += 0xbb67ae85u;
  }
  return counter;
}

FOVEA_DEVICE unsigned philox_word(const Philox4& words, int i) {
  const unsigned low = i % 2 == 0 ? words.x : words.y, high = i % 2 == 0 ? words.z : words.w;
  return i < 2 ? low : high;
}

struct Dropout {
  unsigned long long seed, threshold;  // words below the threshold drop their score
  unsigned offset;
  float factor;  // of what is kept

  // Of a probability of 1 nothing is kept, and the factor is of no use.
  FOVEA_DEVICE static Dropout of(const Call& call) {
    const float p = value_of(call.dropout);
    const auto threshold = static_cast<unsigned long long>(static_cast<double>(p) * 4294967296.0);
    const float factor = static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
    return {value_of(call.seed), threshold, static_cast<unsigned>(value_of(call.offset)), factor};
  }

  // Bit 0: whether (q, k) is kept, bit 1: (q, k + 1); positions as formulas see them.
  FOVEA_DEVICE unsigned keeps_pair(unsigned bh, int q, int k) const {
    const unsigned at = static_cast<unsigned>(k);
    Philox4 words = philox(seed, {at / 4, static_cast<unsigned>(q), bh, offset});
    unsigned keeps = philox_word(words, at % 4) >= threshold ? 1u : 0u;
    if (at % 4 == 3) words = philox(seed, {(at + 1) / 4, static_cast<unsigned>(q), bh, offset});
    if (philox_word(words, (at + 1) % 4) >= threshold) keeps |= 2u;
    return keeps;
  }
  FOVEA_DEVICE bool keeps(unsigned bh, int q, int k) const {
    const unsigned at = static_cast<unsigned>(k);
    const Philox4 words = philox(seed, {at / 4, static_cast<unsigned>(q), bh, offset});
    return philox_word(words, at % 4) >= threshold;
  }

  // The third word of the counter.
  FOVEA_DEVICE static unsigned row_of(const Head& head) {
    return static_cast<unsigned>(head.b) * static_cast<unsigned>(head.H) +
           static_cast<unsigned>(head.h);
  }
};

}  // namespace fovea::device
