// Three warps of hopper/backward.h that work beside its products: they sum gradients of captured
// tensors from the tiles of dS (captured_diagonal.h, captured_cells.h).
#pragma once

#include "../tile_values.h"
#include "backward_shape.h"
#include "backward_step.h"
#include "captured_diagonal.h"
#include "warpgroup.h"

namespace fovea::device {

template <class Config>
class BackwardBeside {
  using Shape = HopperBackwardShape<Config>;
  using Terms = typename Config::Terms;
  using Sums = DiagonalSums<Config>;

 public:
  static constexpr bool works = Terms::reads_ds;
  // Whether it reads what is staged for a step's diagonals, which must not be overwritten before.
  static constexpr bool reads_diagonals = Terms::adds_diagonals && Formula::diagonal_words > 0;
  static constexpr int warps = 3, threads = 32 * warps;

  FOVEA_DEVICE BackwardBeside(const Arguments& a, BackwardBarriers barriers)
      : a_(a), barriers_(barriers) {}

  FOVEA_DEVICE void run() {
    if constexpr (Terms::adds_diagonals) {
      Sums::begin(team());
      captured_.begin(team());
      meet();
    }
    for (int number = 0;; ++number) {
      if constexpr (reads_diagonals) find_elements(number);
      const Ring ring = place(number, Shape::ds_stages);
      wait_for(barriers_.full_ds(ring.stage), ring.parity);
      if ((step(number).flags() & step_end) != 0) break;
      add_up(number);
    }
  }

 private:
  // Registers are few: what follows from the number of a step is computed again and again.
  FOVEA_DEVICE static Team team() {
    return {thread_index_again() - (Config::threads - threads), threads};
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

  // Called before dS is there, so that staged diagonals are free for the next step early.
  FOVEA_DEVICE void find_elements(int number) {
    const StepRef at = step(number);
    const Ring ring = place(number, Shape::q_stages);
    wait_for(barriers_.full_q(ring.stage), ring.parity);
    if ((at.flags() & (step_nothing | step_end)) == 0 && Sums::has(team().thread)) {
      captured_.find_elements(a_, uniform(at), box(at), Shape::diagonal(ring.stage),
                              Sums::first_of(team().thread));
    }
    if constexpr (lanes_add_up<Config>) tell_element(number);
    tell(barriers_.empty_q(ring.stage));
  }

  FOVEA_DEVICE void tell_element(int number) {
    const long long element = captured_.common_element();
    if (lane_index() == 0) store_shared(Sums::note(number, team().thread / 32), element);
  }
  // That all diagonals of the tile add to, or several_elements.
  FOVEA_DEVICE long long common_element(int number) const {
    const auto element = load_shared<long long>(Sums::note(number, 0));
    bool same = true;
    FOVEA_UNROLL for (int warp = 1; warp < warps; ++warp) {
      same &= load_shared<long long>(Sums::note(number, warp)) == element;
    }
    return same ? element : several_elements;
  }

  FOVEA_DEVICE void add_up(int number) {
    const StepRef at = step(number);
    const int stage = number % Shape::ds_stages;
    if ((at.flags() & step_nothing) != 0) return tell(barriers_.empty_ds(stage));
    captured_.read_cells(a_, uniform(at), Shape::ds_tile(stage), box(at), team());
    if constexpr (Terms::adds_diagonals) {
      add_diagonals(number);
    } else {
      tell(barriers_.empty_ds(stage));
    }
  }

  FOVEA_DEVICE void add_diagonals(int number) {
    const StepRef at = step(number);
    const int stage = number % Shape::ds_stages;
    meet();  // all have read the sums of the step before, and told their elements
    if (!add_whole(number)) {
      Sums::add_up(Shape::ds_tile(stage), team());
      tell(barriers_.empty_ds(stage));
      meet();
      if (Sums::has(team().thread)) {
        if constexpr (!reads_diagonals) {
          captured_.find_elements(a_, uniform(at), box(at), 0, Sums::first_of(team().thread));
        }
        captured_.add_diagonals(a_, uniform(at), Sums::two(team().thread));
      }
    }
    if ((at.flags() & step_head_end) == 0) return;
    meet();
    captured_.flush(a_, uniform(at), team());
    meet();
  }

  // The sum of the tile, if all of it belongs to one element; false: it does not.
  FOVEA_DEVICE bool add_whole(int number) {
    if constexpr (lanes_add_up<Config>) {
      const long long element = common_element(number);
      if (element == several_elements) return false;
      const int stage = number % Shape::ds_stages;
      float sum = 0;
      FOVEA_UNROLL for (int i = 0; i < backward_key_threads; i += threads) {
        const int thread = i + team().thread;
        if (thread < backward_key_threads) sum += load_shared<float>(Sums::lane_sum(stage, thread));
      }
      tell(barriers_.empty_ds(stage));
      captured_.add_whole(a_, uniform(step(number)), element, sum);
      return true;
    }
    return false;
  }

  const Arguments& a_;
  BackwardBarriers barriers_;
  Terms captured_;
};

}  // namespace fovea::device
