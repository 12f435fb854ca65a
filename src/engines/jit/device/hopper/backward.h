// The backward of one tile of keys on Hopper: dK and dV of 128 keys stay in registers while the
// block walks the query tiles of the head's group, 64 queries at a time. Blocks are persistent and
// take tile after tile.
//
// Four warpgroups share a block's work:
//   0, 1  have 64 keys each, and all products are transposed, so that keys are rows: S^T = K Q^T,
//         dP^T = V dO^T, dV += P^T dO, dK += dS^T Q. P stays in registers, dS goes to shared
//         memory.
//   2     dQ = dS K, added to f32 sums in global memory (backward_queries.h)
//   3     one warp that loads (backward_producer.h), and three for gradients of captured tensors
//         that are sums of dS (backward_beside.h), if there are any
// They synchronise only at barriers in shared memory (backward_step.h).
//
// Grid: as many blocks as multiprocessors. Reads what backward_delta.h wrote; backward_finish.h
// reads its results.
#pragma once

#include "backward_block.h"
#include "backward_scores.h"
#include "row_pieces.h"
#include "warpgroup.h"

namespace fovea::device {

// Two warpgroups with keys.
template <class Config>
class BackwardKeys {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;
  using Scores = BackwardScores<Config>;

 public:
  FOVEA_DEVICE BackwardKeys(const Arguments& a, BackwardBarriers barriers, int warp)
      : a_(a), barriers_(barriers), warp_(warp), scale_(value_of(a.call.scale)) {}

  FOVEA_DEVICE void run();

 private:
  FOVEA_DEVICE StepRef step() const { return StepRef::number(Shape::at.steps, number_); }
  FOVEA_DEVICE Shared keys_at(Shared tile) const {  // of this warpgroup
    return tile + warp_ / 4 * 64 * Shape::row_bytes;
  }
  FOVEA_DEVICE Shared own_ds() const {  // rows of this warp
    return Shape::ds_tile(ds_ring_.stage) + warp_ * 16 * Shape::row_bytes;
  }
  FOVEA_DEVICE void tell(Shared barrier) const {  // that this warp has come here
    if (lane_index() == 0) arrive(barrier);
  }

  template <int depth>
  FOVEA_DEVICE void begin_scores(Shared keys, Shared queries);
  FOVEA_DEVICE void begin_value_sums(Shared grad_o, bool add);
  FOVEA_DEVICE void begin_key_sums(Shared queries, bool add);
  // The warpgroups begin their products in turns, so that one has the matrix units while the other
  // has exponentials to compute. Measured: with narrow heads, or if weights go through shared
  // memory, that is slower.
  static constexpr bool takes_turns = Shape::d + Shape::dv > 128 && !Scores::has_weights;
  FOVEA_DEVICE void take_turn() const {
    if constexpr (takes_turns) sync_threads(4 + warp_ / 4, 256);
  }
  FOVEA_DEVICE void pass_turn() const {
    if constexpr (takes_turns) arrive_threads(5 - warp_ / 4, 256);
  }
  FOVEA_DEVICE void take_step(unsigned flags);
  FOVEA_DEVICE void store_ds(float sum) const;
  FOVEA_DEVICE void skip_step();
  FOVEA_DEVICE void advance();
  FOVEA_DEVICE void write(const StepRef& step);
  FOVEA_DEVICE void write_zeros(const StepRef& step) const;

  const Arguments& a_;
  BackwardBarriers barriers_;
  int warp_;  // of eight
  float scale_;
  int number_ = 0;  // of the step
  Ring ring_, ds_ring_{0, 1};
  int keys_parity_ = 0;
  typename Config::Terms captured_;
  float grad_k_[Shape::d / 8][4], grad_v_[Shape::dv / 8][4];
  float s_[8][4];      // S^T, then dP^T
  unsigned p_[4][4];   // P^T, packed
  unsigned ds_[4][4];  // dS^T, packed
};

template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::run() {
  if (warp_ >= 4) pass_turn();
  for (;;) {  // tiles of keys
    wait_for(barriers_.full_q(ring_.stage), ring_.parity);
    unsigned flags = step().flags();
    if ((flags & step_end) != 0) break;
    if ((flags & step_nothing) != 0) {
      write_zeros(step());
      skip_step();
      continue;
    }
    wait_for(barriers_.full_keys(), keys_parity_);
    keys_parity_ ^= 1;
    take_turn();
    for (;;) {  // tiles of queries
      take_step(flags);
      if ((flags & step_last) != 0) break;
      advance();
      wait_for(barriers_.full_q(ring_.stage), ring_.parity);
      flags = step().flags();
    }
    pass_turn();
    wait_products<0>();
    settle(grad_k_);
    settle(grad_v_);
    tell(barriers_.empty_keys());
    tell(barriers_.empty_q(ring_.stage));
    write(step());  // its place in the ring of steps comes later than this stage's
    advance();
  }
  skip_step();
}

// Both products of keys and queries, over `depth` features.
template <class Config>
template <int depth>
FOVEA_DEVICE void BackwardKeys<Config>::begin_scores(Shared keys, Shared queries) {
  const auto left = along_rows(keys), right = along_rows(queries);
  fence_registers();
  FOVEA_UNROLL for (int i = 0; i < depth / 16; ++i) {
    multiply_tiles<false, false>(Element{}, s_, moved_by(left, i / 4 * Shape::k_chunk + i % 4 * 32),
                                 moved_by(right, i / 4 * Shape::q_chunk + i % 4 * 32), i != 0);
  }
  commit_products();
}

// dV (+)= P^T dO, with P^T from registers.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::begin_value_sums(Shared grad_o, bool add) {
  const auto right = across_rows(grad_o, Shape::q_chunk);
  settle(p_);
  fence_registers();
  FOVEA_UNROLL for (int i = 0; i < Shape::queries / 16; ++i) {
    multiply_tiles<false, true>(Element{}, grad_v_, p_[i], moved_by(right, 2048 * i),
                                i != 0 || add);
  }
  commit_products();
}

// dK (+)= dS^T Q, with dS^T from its tile: registers are short.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::begin_key_sums(Shared queries, bool add) {
  const auto left = along_rows(keys_at(Shape::ds_tile(ds_ring_.stage)));
  const auto right = across_rows(queries, Shape::q_chunk);
  fence_registers();
  FOVEA_UNROLL for (int i = 0; i < Shape::queries / 16; ++i) {
    multiply_tiles<false, true>(Element{}, grad_k_, moved_by(left, 32 * i),
                                moved_by(right, 2048 * i), i != 0 || add);
  }
  commit_products();
}

template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::take_step(unsigned flags) {
  const int stage = ring_.stage;
  const bool first = (flags & step_first) != 0;
  begin_scores<Shape::d>(keys_at(Shape::at.k), Shape::q_tile(stage));
  pass_turn();
  const Scores scores(a_, step(), stage, 16 * warp_ + lane_index() / 4);
  const unsigned dropped = scores.find_dropped();
  unsigned kept = ~0u;
  if ((flags & step_mixed) != 0) kept = scores.find_kept(flags);
  wait_for(barriers_.full_grad_o(stage), ring_.parity);
  wait_products<1>();  // dV and dK of the step before
  settle(grad_k_);
  settle(grad_v_);
  settle(p_);
  if (!first) tell(barriers_.empty_q(stage == 0 ? Shape::q_stages - 1 : stage - 1));
  if constexpr (Scores::has_weights) {
    wait_for(barriers_.empty_ds(ds_ring_.stage), ds_ring_.parity);
  }
  wait_products<0>();
  settle(s_);
  scores.probabilities(s_, scale_, p_, own_ds(), dropped);
  if ((flags & step_mixed) != 0) Scores::clear_masked(kept, p_, own_ds());
  take_turn();
  begin_scores<Shape::dv>(keys_at(Shape::at.v), Shape::grad_o_tile(stage));
  begin_value_sums(Shape::grad_o_tile(stage), !first);
  pass_turn();
  wait_products<1>();  // dV is under way
  settle(s_);
  store_ds(scores.gradients(s_, p_, ds_, own_ds(), dropped, captured_));
  take_turn();
  begin_key_sums(Shape::q_tile(stage), !first);
}

// dS^T where dQ's warpgroup reads it: a row for each key. And what this lane's part adds up to.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::store_ds(float sum) const {
  if constexpr (!Scores::has_weights) {
    wait_for(barriers_.empty_ds(ds_ring_.stage), ds_ring_.parity);
  }
  sync_warp();  // all weights are read; lanes that have diverged store together again
  const int lane = lane_index();
  if constexpr (lanes_add_up<Config>) {
    static_assert(Shape::ds_stages <= 2);
    store_shared(DiagonalSums<Config>::lane_sum(ds_ring_.stage, 32 * warp_ + lane), sum);
  }
  const Shared row = own_ds() + lane % 16 * Shape::row_bytes;
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    store_matrices(row + ((2 * i + lane / 16) ^ lane % 8) * 16, ds_[i]);
  }
  fence_for_async();
  sync_threads(2 + warp_ / 4, 128);  // dK's products read the rows of all four warps
  tell(barriers_.full_ds(ds_ring_.stage));
}

// A step without a tile of queries. All warps pass it in turn all the same.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::skip_step() {
  wait_for(barriers_.empty_ds(ds_ring_.stage), ds_ring_.parity);
  sync_warp();
  tell(barriers_.full_ds(ds_ring_.stage));
  tell(barriers_.empty_q(ring_.stage));
  advance();
}

template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::advance() {
  ++number_;
  ring_.advance(Shape::q_stages);
  ds_ring_.advance(Shape::ds_stages);
}

// This warp's 16 rows of dK and dV.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::write(const StepRef& step) {
  const CallArguments& call = a_.call;
  const Sequence s = step.sequence();
  const int first = step.k_first() + 16 * warp_, g = step.h() / call.group;
  const int exist = call.q_starts != nullptr ? s.k_length : call.skv;
  bool nan = false;
  if constexpr (Config::want_k) {
    using Out = typename Config::GradK;
    nan |= scale_sums(grad_k_, scale_);
    write_rows<Out>(grad_k_, rows_out<Out>(call.grad_k, s.b, g, s.k_first + first, call.d),
                    s.k_length - first, exist - first);
  }
  if constexpr (Config::want_v) {
    using Out = typename Config::GradV;
    nan |= scale_sums(grad_v_, 1.0f);
    write_rows<Out>(grad_v_, rows_out<Out>(call.grad_v, s.b, g, s.k_first + first, call.dv),
                    s.k_length - first, exist - first);
  }
  note_nan<Config>(call, step, warp_, any_in_warp(nan));
}

// Zeros, for keys that no query looks at.
template <class Config>
FOVEA_DEVICE void BackwardKeys<Config>::write_zeros(const StepRef& step) const {
  const CallArguments& call = a_.call;
  const Sequence s = step.sequence();
  const int first = step.k_first() + 16 * warp_, g = step.h() / call.group;
  const int exist = call.q_starts != nullptr ? s.k_length : call.skv;
  if constexpr (Config::want_k) {
    using Out = typename Config::GradK;
    clear_rows<Out>(rows_out<Out>(call.grad_k, s.b, g, s.k_first + first, call.d), exist - first);
  }
  if constexpr (Config::want_v) {
    using Out = typename Config::GradV;
    clear_rows<Out>(rows_out<Out>(call.grad_v, s.b, g, s.k_first + first, call.dv), exist - first);
  }
  note_nan<Config>(call, step, warp_, false);
}

template <class Config>
FOVEA_DEVICE void hopper_backward(const MappedArgumentsOf<Arguments>& a) {
  const BackwardBarriers barriers = begin_backward<Config>(a);
  const int warp = warp_index();
  if (warp < 8) {
    take_registers<208>();
    BackwardKeys<Config>(a.rest, barriers, warp).run();
  } else {
    run_beside_keys<Config>(a, barriers, warp);
  }
}

}  // namespace fovea::device
