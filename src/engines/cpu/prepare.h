// What a plan runs: a Problem's formulas compiled for strips, with their derivatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "attention/problem.h"
#include "engines/cpu/captured/captured.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/strips/strip.h"
#include "engines/cpu/tiles/tiles.h"

namespace fovea::cpu {

// Made once per plan.
struct Prepared {
  Prepared(const Problem& problem, const KernelTable& table, int threads);

  Problem baked;
  const KernelTable& kernels;
  int workers;  // at most so many tasks run at once
  bool pairs;   // products of bf16 pairs: cells of their factors hold two numbers along the sum
  TileMap tiles;
  std::optional<StripProgram> mask;  // its root: whether a score is kept
  // score_mod without the terms that change with neither k nor the score. Those move a row's lse
  // but not its probabilities, so they are added to the lse alone, and `score + 300` loses no
  // digits.
  std::optional<StripProgram> mod;    // forward: in place of the scores; backward: see backward.h
  std::optional<StripProgram> shift;  // the terms that were left out, one value per row
  // The same for a term that is linear in k, such as slope * (k - q). `relative` is mod with that k
  // counted from the middle of the tile; what is left of the term is the same for a whole row of
  // the tile. The program has one more scalar, the last: that middle.
  std::optional<StripProgram> relative;
  std::optional<StripProgram> slope;  // one value per row
  int slope_k = 0, slope_q = 0;       // slope * f32(slope_k * k + slope_q * q)
  CapturedGradients captured;         // gradients that are wanted besides those of q, k and v
  bool grad_passes = true;            // backward: the modifier's derivative by the score is 1

  // Bytes of the state of mod or relative, whichever runs; and of the values per row.
  std::size_t mod_state_bytes() const;
  std::size_t row_state_bytes() const;
  std::int64_t cells(std::int64_t numbers) const { return pairs ? (numbers + 1) / 2 : numbers; }
  void multiply(const Product& product) const {
    (pairs ? kernels.pairs->multiply : kernels.multiply)(product);
  }

 private:
  void compile_mod(std::optional<StripProgram>& into, const ir::Expr& score);
};

}  // namespace fovea::cpu
