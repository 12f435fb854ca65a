// The reference engine's scratch memory: laid out by one function, which measures when it has no
// memory and hands out when it has. Plans report what it measures; run() uses what it hands out.
#pragma once

#include <cstddef>
#include <span>

#include "attention/arena.h"
#include "attention/problem.h"
#include "engines/reference/tangent_formulas.h"
#include "ir/eval.h"

namespace fovea::reference {

// How much of it a plan needs besides what follows from the sizes.
struct ScratchNeeds {
  Direction direction = Direction::Forward;
  std::size_t cells = 0;               // values of formulas at one point
  std::size_t scalars = 0;             // declared and lifted
  std::size_t tensors = 0;             // captured
  std::int64_t captured_elements = 0;  // of captured tensors whose gradient is wanted
};

// One score of a row: its probability, its dropout factor, the change of s0 and of s.
struct ScoreTangent {
  double p = 0, factor = 0, s0_change = 0, s_change = 0;
  Slopes slopes;
};

// All in double. One key/value head and one row are worked on at a time.
struct Scratch {
  std::span<ir::Cell<double>> cells;
  std::span<ir::ScalarValue> scalars;
  std::span<double> k_head;    // [Skv, D]
  std::span<double> v_head;    // [Skv, Dv]
  std::span<double> q_row;     // [D]
  std::span<double> o_row;     // [Dv]
  std::span<double> scores;    // [Skv], forward
  std::span<double> per_head;  // [H]: max_logit forward, the sink's gradient backward

  // Backward: gradients are summed here and written once.
  std::span<double> grad_o_row;     // [Dv]
  std::span<double> grad_q_row;     // [D]
  std::span<double> grad_k_head;    // [Skv, D]
  std::span<double> grad_v_head;    // [Skv, Dv]
  std::span<double> grad_scalars;   // by slot
  std::span<double> grad_captured;  // the wanted tensors, one after the other

  // Tangent: the direction, what changes along it, and one row of scores.
  std::span<ir::TensorView> tensors;  // captured ones, then their tangents
  std::span<double> tangent_q_row;    // [D]
  std::span<double> tangent_o_row;    // [Dv]
  std::span<double> tangent_k_head;   // [Skv, D]
  std::span<double> tangent_v_head;   // [Skv, Dv]
  std::span<ScoreTangent> score_row;  // [Skv]

  static Scratch lay_out(Arena& arena, const ScratchNeeds& needs, const Sizes& sizes);
};

}  // namespace fovea::reference
