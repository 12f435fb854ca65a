// How the warps of hopper/backward.h work together: steps, and the barriers between them.
//
// A step is one tile of queries of one head against the block's tile of keys. The producer
// describes each step in a ring in shared memory, in the order in which all others take them.
#pragma once

#include "../backward_place.h"
#include "backward_layout.h"
#include "mbarrier.h"

namespace fovea::device {

// What is special about a step.
enum StepFlag : unsigned {
  step_first = 1,      // of a tile of keys
  step_last = 2,       // of a tile of keys
  step_mixed = 4,      // some of its scores may be masked
  step_nothing = 8,    // no query looks at these keys: there is no tile of queries
  step_end = 16,       // there are no more steps
  step_new_head = 32,  // the first of its query head, but not of a tile of keys
  step_head_end = 64,  // the last of its query head, for this tile of keys
};
constexpr int step_part_shift = 7;  // from here on: which parts of the mask hide something

struct BackwardStep {
  unsigned flags;
  int b, h;              // the sequence and the query head
  int q_first, k_first;  // positions of the tiles' first rows in the sequence
  Sequence s;
  long long sums;  // which tile of dQ's sums

  FOVEA_DEVICE void write(Shared at) const {
    const unsigned words[10]{flags,
                             static_cast<unsigned>(b),
                             static_cast<unsigned>(h),
                             static_cast<unsigned>(q_first),
                             static_cast<unsigned>(k_first),
                             static_cast<unsigned>(s.b),
                             static_cast<unsigned>(s.q_length),
                             static_cast<unsigned>(s.k_length),
                             static_cast<unsigned>(s.q_offset),
                             static_cast<unsigned>(s.k_offset)};
    FOVEA_UNROLL for (int i = 0; i < 10; ++i) store_shared(at + 4 * i, words[i]);
    store_shared(at + 40, s.q_first);
    store_shared(at + 48, s.k_first);
    store_shared(at + 56, sums);
  }
};

// A step in shared memory: each field is read where it is needed, since registers are for sums.
struct StepRef {
  Shared at;
  FOVEA_DEVICE static StepRef number(int steps, int i) {
    return {static_cast<Shared>(steps + i % backward_steps * backward_step_bytes)};
  }
  FOVEA_DEVICE unsigned flags() const { return load_shared<unsigned>(at); }
  FOVEA_DEVICE int b() const { return load_shared<int>(at + 4); }
  FOVEA_DEVICE int h() const { return load_shared<int>(at + 8); }
  FOVEA_DEVICE int q_first() const { return load_shared<int>(at + 12); }
  FOVEA_DEVICE int k_first() const { return load_shared<int>(at + 16); }
  FOVEA_DEVICE int q_length() const { return load_shared<int>(at + 24); }
  FOVEA_DEVICE int k_length() const { return load_shared<int>(at + 28); }
  FOVEA_DEVICE int q_seen() const { return seen(q_first(), load_shared<int>(at + 32)); }
  FOVEA_DEVICE int k_seen() const { return seen(k_first(), load_shared<int>(at + 36)); }
  FOVEA_DEVICE long long sums() const { return load_shared<long long>(at + 56); }
  FOVEA_DEVICE Sequence sequence() const {
    return {load_shared<int>(at + 20),
            q_length(),
            k_length(),
            load_shared<long long>(at + 40),
            load_shared<long long>(at + 48),
            load_shared<int>(at + 32),
            load_shared<int>(at + 36)};
  }
};

// Where each pair of barriers lies: full ones say that something may be read, empty ones that it
// may be written again.
struct BackwardBarriers {
  Shared at;
  static constexpr int most_stages = 4;
  FOVEA_DEVICE Shared full_q(int stage) const { return at + 8 * stage; }
  FOVEA_DEVICE Shared full_grad_o(int stage) const { return at + 8 * (most_stages + stage); }
  FOVEA_DEVICE Shared empty_q(int stage) const { return at + 8 * (2 * most_stages + stage); }
  FOVEA_DEVICE Shared full_ds(int stage) const { return at + 8 * (3 * most_stages + stage); }
  FOVEA_DEVICE Shared empty_ds(int stage) const { return at + 8 * (4 * most_stages + stage); }
  FOVEA_DEVICE Shared full_keys() const { return at + 8 * 5 * most_stages; }
  FOVEA_DEVICE Shared empty_keys() const { return at + 8 * (5 * most_stages + 1); }
  FOVEA_DEVICE Shared landed() const { return at + 8 * (5 * most_stages + 2); }  // the producer's
  // P, from one warpgroup of backward_wide.h to the other.
  FOVEA_DEVICE Shared full_p() const { return at + 8 * (5 * most_stages + 3); }
  FOVEA_DEVICE Shared empty_p() const { return at + 8 * (5 * most_stages + 4); }
};

}  // namespace fovea::device
