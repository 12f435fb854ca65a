// The backward of one tile of keys on Hopper if heads are wider than 128: as hopper/backward.h, but
// with tiles of 64 keys, since dK or dV of so many fill a warpgroup's registers.
//
// Four warpgroups share a block's work:
//   0     S^T = K Q^T, P and dV += P^T dO
//   1     dP^T = V dO^T, dS and dK += dS^T Q
//   2, 3  as in backward.h
// A lane of warpgroup 1 has the same elements as the lane of that number in warpgroup 0, and finds
// their P in shared memory. Warpgroups do not take turns: while one waits for another, the third
// multiplies.
//
// Grid: as many blocks as multiprocessors.
#pragma once

#include "backward_block.h"
#include "backward_scores.h"
#include "row_pieces.h"
#include "warpgroup.h"

namespace fovea::device {

template <bool first, class A, class B>
struct Conditional {
  using Type = A;
};
template <class A, class B>
struct Conditional<false, A, B> {
  using Type = B;
};

// Warpgroup 0, which has dV, or warpgroup 1, which has dK.
template <class Config, bool has_values>
class WideBackwardSums {
  using Shape = HopperBackwardShape<Config>;
  using Element = typename Config::Element;
  using Scores = BackwardScores<Config>;
  static constexpr int features = has_values ? Shape::dv : Shape::d;  // of the sums
  static constexpr int depth = has_values ? Shape::d : Shape::dv;     // of S or dP
  // One instruction writes at most 192 columns of sums: registers that it names at once are few.
  static constexpr int parts = features > 192 ? 2 : 1, part_features = features / parts;
  static constexpr bool wanted = has_values ? Config::want_v : Config::want_k;
  static_assert(Shape::keys == 64 && Shape::queries == 64);

 public:
  // warp: of the four
  FOVEA_DEVICE WideBackwardSums(const Arguments& a, BackwardBarriers barriers, int warp)
      : a_(a), barriers_(barriers), warp_(warp), scale_(value_of(a.call.scale)) {}

  FOVEA_DEVICE void run();

 private:
  FOVEA_DEVICE StepRef step() const { return StepRef::number(Shape::at.steps, number_); }
  FOVEA_DEVICE Shared own_rows(Shared tile) const { return tile + warp_ * 16 * Shape::row_bytes; }
  FOVEA_DEVICE void tell(Shared barrier) const {  // that this warp has come here
    if (lane_index() == 0) arrive(barrier);
  }

  // Both warpgroups have a word for the same keys.
  FOVEA_DEVICE int nan_word() const { return warp_ + (has_values ? 0 : 4); }

  FOVEA_DEVICE void wait_for_step() const;
  FOVEA_DEVICE void begin_scores();
  FOVEA_DEVICE void begin_sums(bool add);
  FOVEA_DEVICE void settle_sums() {
    FOVEA_UNROLL for (int part = 0; part < parts; ++part) settle(sums_[part]);
  }
  FOVEA_DEVICE void take_step(unsigned flags);
  FOVEA_DEVICE void find_p(const Scores& scores, unsigned dropped, unsigned kept, bool mixed);
  FOVEA_DEVICE void find_ds(const Scores& scores, unsigned dropped);
  FOVEA_DEVICE void store_ds() const;
  FOVEA_DEVICE void skip_step();
  FOVEA_DEVICE void advance();
  FOVEA_DEVICE RowsOut own_output(const StepRef& step, int column) const;
  FOVEA_DEVICE void write(const StepRef& step);
  FOVEA_DEVICE void write_zeros(const StepRef& step) const;

  using Output =
      typename Conditional<has_values, typename Config::GradV, typename Config::GradK>::Type;

  const Arguments& a_;
  BackwardBarriers barriers_;
  int warp_;
  float scale_;
  int number_ = 0;  // of the step
  Ring ring_, ds_ring_{0, 1};
  int keys_parity_ = 0, p_parity_ = has_values ? 1 : 0;
  typename Config::Terms captured_;
  float sums_[parts][part_features / 8][4];
  float s_[8][4];        // S^T, or dP^T
  unsigned left_[4][4];  // P^T, or dS^T, packed
};

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::run() {
  for (;;) {  // tiles of keys
    wait_for_step();
    unsigned flags = step().flags();
    if ((flags & step_end) != 0) break;
    if ((flags & step_nothing) != 0) {
      write_zeros(step());
      skip_step();
      continue;
    }
    wait_for(barriers_.full_keys(), keys_parity_);
    keys_parity_ ^= 1;
    for (;;) {  // tiles of queries
      take_step(flags);
      if ((flags & step_last) != 0) break;
      advance();
      wait_for_step();
      flags = step().flags();
    }
    wait_products<0>();
    settle_sums();
    tell(barriers_.empty_keys());
    tell(barriers_.empty_q(ring_.stage));
    write(step());  // its place in the ring of steps comes later than this stage's
    advance();
  }
  skip_step();
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::wait_for_step() const {
  wait_for(barriers_.full_q(ring_.stage), ring_.parity);
  if constexpr (!has_values) wait_for(barriers_.full_grad_o(ring_.stage), ring_.parity);
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::begin_scores() {
  const int stage = ring_.stage;
  const auto left = along_rows(has_values ? Shape::at.k : Shape::at.v);
  const auto right = along_rows(has_values ? Shape::q_tile(stage) : Shape::grad_o_tile(stage));
  fence_registers();
  FOVEA_UNROLL for (int i = 0; i < depth / 16; ++i) {
    multiply_tiles<false, false>(Element{}, s_, moved_by(left, i / 4 * Shape::k_chunk + i % 4 * 32),
                                 moved_by(right, i / 4 * Shape::q_chunk + i % 4 * 32), i != 0);
  }
  commit_products();
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::begin_sums(bool add) {
  const int stage = ring_.stage;
  const auto right =
      across_rows(has_values ? Shape::grad_o_tile(stage) : Shape::q_tile(stage), Shape::q_chunk);
  settle(left_);
  fence_registers();
  FOVEA_UNROLL for (int i = 0; i < Shape::queries / 16; ++i) {
    FOVEA_UNROLL for (int part = 0; part < parts; ++part) {
      const int from = 2048 * i + part * part_features / 64 * Shape::q_chunk;
      multiply_tiles<false, true>(Element{}, sums_[part], left_[i], moved_by(right, from),
                                  i != 0 || add);
    }
  }
  commit_products();
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::take_step(unsigned flags) {
  const int stage = ring_.stage;
  const bool first = (flags & step_first) != 0, mixed = (flags & step_mixed) != 0;
  begin_scores();
  const Scores scores(a_, step(), stage, 16 * warp_ + lane_index() / 4);
  const unsigned dropped = scores.find_dropped();
  unsigned kept = ~0u;
  if (has_values && mixed) kept = scores.find_kept(flags);
  wait_products<1>();  // of the step before
  settle_sums();
  settle(left_);
  if (!first) tell(barriers_.empty_q(stage == 0 ? Shape::q_stages - 1 : stage - 1));
  if constexpr (has_values) {
    find_p(scores, dropped, kept, mixed);
    wait_for(barriers_.full_grad_o(stage), ring_.parity);
  } else {
    find_ds(scores, dropped);
  }
  begin_sums(!first);
}

// P, and what multiplies dP - delta, for the other warpgroup.
template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::find_p(const Scores& scores,
                                                               unsigned dropped, unsigned kept,
                                                               bool mixed) {
  const Shared weights = own_rows(Shape::p_tile(0));
  wait_for(barriers_.empty_p(), p_parity_);
  p_parity_ ^= 1;
  wait_products<0>();
  settle(s_);
  scores.probabilities(s_, scale_, left_, weights, dropped);
  if (mixed) Scores::clear_masked(kept, left_, weights);
  if constexpr (Shape::p_tiles > 1) {
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
      store_shared(own_rows(Shape::p_tile(1)) + 512 * i + 16 * lane_index(),
                   Words4{left_[i][0], left_[i][1], left_[i][2], left_[i][3]});
    }
  }
  sync_warp();
  tell(barriers_.full_p());
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::find_ds(const Scores& scores,
                                                                unsigned dropped) {
  wait_products<0>();
  settle(s_);
  wait_for(barriers_.full_p(), p_parity_);
  p_parity_ ^= 1;
  using Terms = typename Config::Terms;
  static_assert(Shape::p_tiles > 1 ||
                !(Terms::asks_scores || (Terms::reads_ds && !Scores::weights_are_p)));
  unsigned p[4][4];  // for captured gradients alone
  if constexpr (Shape::p_tiles > 1) {
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
      const auto four =
          load_shared<Words4>(own_rows(Shape::p_tile(1)) + 512 * i + 16 * lane_index());
      p[i][0] = four.x, p[i][1] = four.y, p[i][2] = four.z, p[i][3] = four.w;
    }
  }
  scores.gradients(s_, p, left_, own_rows(Shape::p_tile(0)), dropped, captured_);
  sync_warp();
  tell(barriers_.empty_p());
  store_ds();
}

// dS^T where dQ's warpgroup reads it: a row for each key.
template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::store_ds() const {
  wait_for(barriers_.empty_ds(ds_ring_.stage), ds_ring_.parity);
  sync_warp();  // lanes that have diverged store together again
  const int lane = lane_index();
  const Shared row = own_rows(Shape::ds_tile(ds_ring_.stage)) + lane % 16 * Shape::row_bytes;
  FOVEA_UNROLL for (int i = 0; i < 4; ++i) {
    store_matrices(row + ((2 * i + lane / 16) ^ lane % 8) * 16, left_[i]);
  }
  fence_for_async();
  sync_warp();
  tell(barriers_.full_ds(ds_ring_.stage));
}

// A step without a tile of queries. All warps pass it in turn all the same.
template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::skip_step() {
  if constexpr (!has_values) {
    wait_for(barriers_.empty_ds(ds_ring_.stage), ds_ring_.parity);
    sync_warp();
    tell(barriers_.full_ds(ds_ring_.stage));
  }
  tell(barriers_.empty_q(ring_.stage));
  advance();
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::advance() {
  ++number_;
  ring_.advance(Shape::q_stages);
  ds_ring_.advance(Shape::ds_stages);
}

// This warp's 16 rows of dK or dV, from a column on.
template <class Config, bool has_values>
FOVEA_DEVICE RowsOut WideBackwardSums<Config, has_values>::own_output(const StepRef& step,
                                                                      int column) const {
  const CallArguments& call = a_.call;
  const TensorArgument& tensor = has_values ? call.grad_v : call.grad_k;
  const Sequence s = step.sequence();
  const long long row = s.k_first + step.k_first() + 16 * warp_;
  RowsOut to = rows_out<Output>(tensor, s.b, step.h() / call.group, row,
                                (has_values ? call.dv : call.d) - column);
  to.data = static_cast<typename Stored<Output>::Type*>(to.data) + column * tensor.feature;
  return to;
}

template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::write(const StepRef& step) {
  bool nan = false;
  if constexpr (wanted) {
    const int first = step.k_first() + 16 * warp_;
    const int exist = a_.call.q_starts != nullptr ? step.k_length() : a_.call.skv;
    FOVEA_UNROLL for (int part = 0; part < parts; ++part) {
      nan |= scale_sums(sums_[part], has_values ? 1.0f : scale_);
      write_rows<Output>(sums_[part], own_output(step, part * part_features),
                         step.k_length() - first, exist - first);
    }
  }
  note_nan<Config>(a_.call, step, nan_word(), any_in_warp(nan));
}

// Zeros, for keys that no query looks at.
template <class Config, bool has_values>
FOVEA_DEVICE void WideBackwardSums<Config, has_values>::write_zeros(const StepRef& step) const {
  if constexpr (wanted) {
    const int first = step.k_first() + 16 * warp_;
    const int exist = a_.call.q_starts != nullptr ? step.k_length() : a_.call.skv;
    clear_rows<Output>(own_output(step, 0), exist - first);
  }
  note_nan<Config>(a_.call, step, nan_word(), false);
}

template <class Config>
FOVEA_DEVICE void hopper_backward_wide(const MappedArgumentsOf<Arguments>& a) {
  const BackwardBarriers barriers = begin_backward<Config>(a);
  const int warp = warp_index();
  if (warp < 4) {
    take_registers<208>();
    WideBackwardSums<Config, true>(a.rest, barriers, warp).run();
  } else if (warp < 8) {
    take_registers<208>();
    WideBackwardSums<Config, false>(a.rest, barriers, warp - 4).run();
  } else {
    run_beside_keys<Config>(a, barriers, warp);
  }
}

}  // namespace fovea::device
