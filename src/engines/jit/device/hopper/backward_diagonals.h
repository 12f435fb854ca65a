// Three warps of hopper/backward.h beside its products: they fetch values of the formula that
// change with k - q alone, for the diagonals of each step's scores, and add up gradients of
// captured tensors that are sums along diagonals of dS (captured_diagonal.h).
#pragma once

#include "../distances.h"
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

  FOVEA_DEVICE BackwardDiagonals(const Arguments& a, BackwardBarriers barriers)
      : a_(a), barriers_(barriers) {}

  // What is staged goes one step ahead of what is added up.
  FOVEA_DEVICE void run() {
    if constexpr (adds) captured_.begin(team());
    stage(0);
    for (int number = 0; (step(number).flags() & step_end) == 0; ++number) {
      stage(number + 1);
      if constexpr (adds) add_up(number);
    }
  }

 private:
  // Registers are few: what follows from the number of a step is computed again and again.
  FOVEA_DEVICE static Team team() {
    return {thread_index() - (Config::threads - threads), threads};
  }
  FOVEA_DEVICE static Ring place(int number, int stages) {
    return {number % stages, number / stages % 2};
  }
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

  FOVEA_DEVICE void stage(int number) const {
    const StepRef at = step(number);
    const Ring ring = place(number, Shape::q_stages);
    meet();  // all have done with the place that is staged now
    wait_for(barriers_.described(ring.stage), ring.parity);
    if (stages && (at.flags() & (step_end | step_nothing)) == 0) {
      copy_distances<Formula, Shape::queries, Shape::keys>(
          a_.call, distances_of<Formula>(a_.call, at.b(), at.h()), at.q_first(), at.k_first(),
          Shape::diagonal(ring.stage), team());
    }
    tell(barriers_.full_q(ring.stage));
  }

  FOVEA_DEVICE void add_up(int number) {
    const StepRef at = step(number);
    const Ring ring = place(number, Shape::ds_stages);
    wait_for(barriers_.full_ds(ring.stage), ring.parity);
    if ((at.flags() & step_nothing) == 0) {
      captured_.read(a_, uniform(at), Shape::ds_tile(ring.stage), box(at),
                     Shape::diagonal(number % Shape::q_stages));
    }
    tell(barriers_.empty_ds(ring.stage));
    if ((at.flags() & step_head_end) == 0) return;
    meet();
    captured_.flush(a_, uniform(at), team());
    meet();
  }

  const Arguments& a_;
  BackwardBarriers barriers_;
  Captured captured_;
};

}  // namespace fovea::device
