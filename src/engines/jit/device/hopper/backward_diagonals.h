// Three warps of hopper/backward.h beside its products: they stage values of the formula that
// change with k - q alone, for the diagonals of each step's scores, and add up gradients of
// captured tensors that are sums of dS (captured_diagonal.h, captured_cells.h).
#pragma once

#include "../staged.h"
#include "../tile_values.h"
#include "backward_shape.h"
#include "backward_step.h"
#include "warpgroup.h"

namespace fovea::device {

template <class Config>
class BackwardDiagonals {
  using Shape = HopperBackwardShape<Config>;
  using Captured = typename Config::Captured;

 public:
  static constexpr bool stages = Formula::diagonal_words > 0, adds = Captured::reads_ds;
  static constexpr int warps = stages || adds ? 3 : 0;  // that others wait for
  static constexpr int threads = 96;

  // warp: of the three
  FOVEA_DEVICE BackwardDiagonals(const Arguments& a, BackwardBarriers barriers, int warp)
      : a_(a), barriers_(barriers), team_{32 * warp + lane_index(), threads} {}

  // What is staged goes one step ahead of what is added up.
  FOVEA_DEVICE void run() {
    if constexpr (adds) captured_.begin(team_);
    stage(0);
    for (int number = 0; (step(number).flags() & step_end) == 0; ++number) {
      stage(number + 1);
      if constexpr (adds) add_up(number);
    }
  }

 private:
  FOVEA_DEVICE static StepRef step(int number) { return StepRef::number(Shape::at.steps, number); }
  FOVEA_DEVICE void meet() const { sync_threads(1, threads); }
  FOVEA_DEVICE void tell(Shared barrier) const {  // that this warp has come here
    sync_warp();
    if (lane_index() == 0) arrive(barrier);
  }
  FOVEA_DEVICE typename Formula::Uniform uniform(const StepRef& step) const {
    return Formula::uniform(a_, head_of(a_.call, step.sequence(), step.b(), step.h()));
  }
  FOVEA_DEVICE static TileBox box(const StepRef& step) {
    return {step.q_seen(), step.k_seen(), Shape::queries, Shape::keys};
  }

  // Whether a step has the next queries after those of the step before, and the same keys.
  FOVEA_DEVICE static bool goes_on(int number) {
    const StepRef at = step(number);
    return number > 0 && (at.flags() & (step_first | step_new_head)) == 0 &&
           at.q_first() == step(number - 1).q_first() + Shape::queries;
  }

  // A step that goes on has most diagonals of the one before.
  FOVEA_DEVICE void stage(int number) {
    const StepRef at = step(number);
    meet();  // all have done with the place that is staged now, and with what is copied from
    wait_for(barriers_.described(ring_.stage), ring_.parity);
    if (stages && (at.flags() & (step_end | step_nothing)) == 0) {
      const bool old = goes_on(number);
      const Shared to = Shape::diagonal(ring_.stage);
      if (old) copy_diagonals(to, Shape::diagonal((number - 1) % Shape::q_stages));
      stage_diagonals<Formula, Shape::queries, Shape::keys>(
          a_, uniform(at), to, box(at), team_,
          old ? Shape::queries : Shape::queries + Shape::keys - 1);
    }
    tell(barriers_.full_q(ring_.stage));
    ring_.advance(Shape::q_stages);
  }
  FOVEA_DEVICE void copy_diagonals(Shared to, Shared from) const {
    constexpr int count = Shape::queries + Shape::keys;
    for (int i = Shape::queries + team_.thread; i < count - 1; i += team_.threads) {
      unsigned words[Formula::diagonal_words > 0 ? Formula::diagonal_words : 1];
      load_words<Formula::diagonal_words>(from, count, i - Shape::queries, words);
      store_words<Formula::diagonal_words>(to, count, i, words);
    }
  }

  FOVEA_DEVICE void add_up(int number) {
    const StepRef at = step(number);
    const unsigned flags = at.flags();
    wait_for(barriers_.full_ds(ds_ring_.stage), ds_ring_.parity);
    if ((flags & step_nothing) == 0) {
      captured_.read(a_, uniform(at), Shape::ds_tile(ds_ring_.stage), box(at),
                     Shape::diagonal(number % Shape::q_stages));
    }
    tell(barriers_.empty_ds(ds_ring_.stage));
    ds_ring_.advance(backward_ds_stages);
    if ((flags & step_head_end) == 0) return;
    meet();
    captured_.flush(a_, team_);
    meet();
  }

  const Arguments& a_;
  BackwardBarriers barriers_;
  Team team_;
  Ring ring_, ds_ring_;
  Captured captured_;
};

}  // namespace fovea::device
