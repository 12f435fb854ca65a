// The formulas of a Problem as device code: the text of `struct Formula`, whose contract is
// device/formula.h. The text depends on the Program's structure and on the options here, never on
// sizes, strides or values: those are read from the call's words.
#pragma once

#include <string>
#include <vector>

#include "attention/problem.h"
#include "engines/jit/words.h"
#include "ir/expr.h"

namespace fovea::jit {

// A further function of the formula, of the type of `value`:
//   static float name(const Arguments&, const Uniform&, const Row&, const Column&, float s,
//                     float grad);
// f32 as float, i32 as int, bool as bool. Its loads and scalars have the slots of the Program.
struct ExtraRoot {
  std::string name;
  ir::Expr value;
};

struct RenderOptions {
  // FunctionAccuracy that decide nothing: within a few units in the last place of f32 (for f32
  // tensors), or fast and within about 1e-5 (for 16-bit tensors).
  bool precise = false;
  // tanh by the hardware's instruction, 2^-11 relative: one unit of work instead of two. Only if
  // !precise.
  bool coarse_tanh = false;
  // What all scores of a row have in common is left to Formula::shift and Formula::slope.
  bool splits_shift = false;
  // Formula::inner is wanted, with the factors around it: see render.cpp.
  bool splits_factors = false;
  bool gradient = false;  // Formula::gradient is wanted: a backward
  std::vector<ExtraRoot> extra = {};
};

struct Rendered {
  std::string text;  // "struct Formula { ... };", to stand in namespace fovea::device
  int words = 0;     // of ArgumentsOf<words>
  WordLayout layout;
  std::vector<Summary> summaries;
  bool has_mask = false, has_mod = false;
  bool classifies = false;  // false: classify() always says Full
  int row_words = 0, column_words = 0;
  int diagonal_words = 0;
  // The captured tensor t[..., q, ..., k] that is copied by tiles: bytes of an element, 0 if there
  // is none; its number, and which of its indices are q and k.
  int cell_bytes = 0;
  std::uint32_t cell_slot = 0;
  int cell_q = 0, cell_k = 0;
};

// `baked` has its literals lifted, or not: scalars are numbered as its Program numbers them.
Rendered render(const Problem& baked, const RenderOptions& options);

// What Formula::gradient computes: the hand-written bprop, or the derivative; null without a mod.
ir::Expr score_gradient(const ir::Program& program);

}  // namespace fovea::jit
