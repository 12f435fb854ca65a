// The portable random numbers of attention/philox.h, many at a time, as bits of what is not
// dropped.
#pragma once

#include "engines/cpu/kernels/softmax.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu::FOVEA_ISA {
namespace {

// Philox 4x32-10 on W counters at once, each giving the words of four neighbouring keys.
struct PhiloxWords {
  vu word[4];
};
FOVEA_INLINE void multiply_wide(vu a, uint32_t b, vu& high, vu& low) {
  typedef uint64_t vw __attribute__((vector_size(W * 4)));
  const vw even = (reinterpret_cast<vw>(a) & 0xffffffffu) * b;
  const vw odd = (reinterpret_cast<vw>(a) >> 32) * b;
  low = reinterpret_cast<vu>((even & 0xffffffffu) | (odd << 32));
  high = reinterpret_cast<vu>((even >> 32) | (odd & 0xffffffff00000000u));
}
FOVEA_INLINE PhiloxWords philox(uint64_t key, vu c0, vu c1, vu c2, vu c3) {
  uint32_t key_0 = static_cast<uint32_t>(key), key_1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    vu high_0, low_0, high_1, low_1;
    multiply_wide(c0, 0xd2511f53u, high_0, low_0);
    multiply_wide(c2, 0xcd9e8d57u, high_1, low_1);
    c0 = high_1 ^ c1 ^ key_0;
    c1 = low_1;
    c2 = high_0 ^ c3 ^ key_1;
    c3 = low_0;
    key_0 += 0x9e3779b9u;
    key_1 += 0xbb67ae85u;
  }
  return {{c0, c1, c2, c3}};
}

void dropout(const DropoutRow& at, int columns, uint64_t* bits) {
  for (int i = 0; i < (columns + 63) / 64; ++i) bits[i] = 0;
  if (at.threshold > 0xffffffffu) return;  // all are dropped
  const vu threshold = vu{} + static_cast<uint32_t>(at.threshold);
  // Position k wraps as formulas' integers do, so the first group may be cut at either end.
  for (int c = 0; c < columns;) {
    const uint32_t k = at.k + static_cast<uint32_t>(c);
    vu group = reinterpret_cast<vu>(lanes()) + k / 4;
    group &= 0x3fffffffu;  // 2^32 keys are 2^30 groups
    const PhiloxWords words = philox(at.seed, group, vu{} + at.q, vu{} + at.bh, vu{} + at.offset);
    uint32_t kept[4];
    for (int w = 0; w < 4; ++w) kept[w] = bits_of(reinterpret_cast<vi>(words.word[w] >= threshold));
    for (uint32_t i = k % 4; i < 4 * W && c < columns; ++i, ++c) {
      bits[c / 64] |= uint64_t{kept[i % 4] >> (i / 4) & 1u} << (c % 64);
    }
  }
}

void apply_dropout(Panels p, int row, int columns, const uint64_t* bits, float scale) {
  for (int c = 0; c < columns; c += W) {
    float* const at = score_at(p, row, c);
    store(at, select_bits(bits_at(bits, c), load(at) * scale, vf{}));
  }
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_ISA
