// The warpgroup of hopper/backward.h that computes dQ = dS K of each step, 64 features at a time,
// and adds it to f32 sums in global memory: each warp has 16 queries, from which backward_finish.h
// reads them.
#pragma once

#include "backward_shape.h"
#include "backward_step.h"
#include "backward_turns.h"
#include "tma.h"
#include "wgmma.h"

namespace fovea::device {

template <class Config>
class BackwardQueries {
  using Shape = HopperBackwardShape<Config>;
  static constexpr int piece_floats = 16 * 64;  // of a warp
  static constexpr int pieces = Shape::d / 64;

 public:
  // warp: of the four
  FOVEA_DEVICE BackwardQueries(const Arguments& a, BackwardBarriers barriers, int warp)
      : call_(a.call),
        warp_(warp),
        from_(Shape::at.sums + warp * Shape::sum_slots * piece_floats * 4),
        barriers_(barriers) {}

  FOVEA_DEVICE void run() {
    for (int number = 0;; ++number) {
      const StepRef step = StepRef::number(Shape::at.steps, number);
      wait_for(barriers_.full_ds(ring_.stage), ring_.parity);
      const unsigned flags = step.flags();
      sync_warp();
      if ((flags & step_end) != 0) break;
      if ((flags & step_first) != 0) {
        wait_for(barriers_.full_keys(), keys_parity_);
        keys_parity_ ^= 1;
      }
      if ((flags & step_nothing) == 0) {
        add(step);
      } else if (lane_index() == 0) {
        arrive(barriers_.empty_ds(ring_.stage));
      }
      ring_.advance(Shape::ds_stages);
    }
    if (lane_index() == 0) wait_bulk<0>();
  }

 private:
  FOVEA_DEVICE float* sums_of(const StepRef& step) const {
    return call_.grad_q_sum + step.sums() * (Shape::queries * Shape::d) + warp_ * piece_floats;
  }
  FOVEA_DEVICE QueryTurns<Shape::keys> turns(const StepRef& step) const {
    return {call_, step.sums(), step.k_first()};
  }

  FOVEA_DEVICE void add(const StepRef& step) {
    float* const to = sums_of(step);
    FOVEA_UNROLL for (int piece = 0; piece < pieces; ++piece) {
      float sums[8][4];
      begin_product(sums, piece);
      if (Config::deterministic && piece == 0) turns(step).wait(warp_);
      wait_products<0>();
      settle(sums);
      if (piece == pieces - 1 && lane_index() == 0) {
        arrive(barriers_.empty_ds(ring_.stage));
        if ((step.flags() & step_last) != 0) arrive(barriers_.empty_keys());
      }
      send(to + piece * 4 * piece_floats, sums);
    }
    if constexpr (Config::deterministic) pass_turn(step);
  }

  // Lets the next tile of keys add to these sums, once all that this warp adds has arrived.
  FOVEA_DEVICE void pass_turn(const StepRef& step) {
    if constexpr (Shape::sum_slots == 0) fence_global();  // each lane has added numbers of its own
    sync_warp();
    if (lane_index() == 0) {
      wait_bulk<0>();
      turns(step).pass(warp_);
    }
    sync_warp();
  }

  FOVEA_DEVICE void begin_product(float (&sums)[8][4], int piece) {
    const auto ds = across_rows(Shape::ds_tile(ring_.stage), Shape::ds_bytes);
    const auto keys = across_rows(Shape::at.k + piece * Shape::k_chunk, Shape::k_chunk);
    settle(sums);
    fence_registers();
    FOVEA_UNROLL for (int i = 0; i < Shape::keys / 16; ++i) {
      multiply_tiles<true, true>(typename Config::Element{}, sums, moved_by(ds, 2048 * i),
                                 moved_by(keys, 2048 * i), i != 0);
    }
    commit_products();
  }

  // Through shared memory of this warp alone. The copy that reads it is waited for by this warp, so
  // no other warp takes part.
  FOVEA_DEVICE void send(float* to, const float (&sums)[8][4]) {
    if constexpr (Shape::sum_slots == 0) {
      FOVEA_UNROLL for (int j = 0; j < 8; ++j) add_piece(to + 128 * j, sums[j]);
      return;
    }
    const Shared from = from_ + slot_ * piece_floats * 4;
    if (++slot_ == Shape::sum_slots) slot_ = 0;
    if (lane_index() == 0) wait_bulk_read<(Shape::sum_slots > 0 ? Shape::sum_slots - 1 : 0)>();
    sync_warp();
    FOVEA_UNROLL for (int j = 0; j < 8; ++j) {
      store_shared(from + 512 * j + 16 * lane_index(),
                   Floats4{sums[j][0], sums[j][1], sums[j][2], sums[j][3]});
    }
    fence_for_async();
    sync_warp();
    if (lane_index() == 0) {
      add_bulk(to, from, piece_floats * 4);
      commit_bulk();
    }
  }

  const CallArguments& call_;
  int warp_;
  Shared from_;
  BackwardBarriers barriers_;
  Ring ring_;
  int keys_parity_ = 0, slot_ = 0;
};

}  // namespace fovea::device
