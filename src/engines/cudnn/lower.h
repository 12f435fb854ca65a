// From a Problem to a cuDNN graph as data: the program's formulas become pointwise steps on the
// score, with positions generated once, masks at the end in the form that cuDNN recognises, and
// captured tensors as inputs that broadcast. Anything that cuDNN cannot express becomes a Reason.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/engine.h"
#include "engines/cudnn/graph_spec.h"
#include "engines/cudnn/known_bad.h"

namespace fovea::cudnn {

// What a cuDNN plan depends on: nearly all of the Problem. Values that come with a call (scale,
// scalars, literals, seeds, offsets) are taken out.
Baking bake(const Problem& problem);

// Whether formulas compute with b so that f32 must hold it exactly: how large it may get is then
// part of a graph. Otherwise any b_offset can be bound.
bool computes_with_b(const ir::Program& program);

// A function of h alone, evaluated once per head when a plan is made.
struct HeadTable {
  std::vector<float> values;
};

// A formula of scalars alone, evaluated on the host at each call.
struct UniformFormula {
  ir::Expr formula;
  bool decides = false;  // a decision depends on it: it is then computed in f32, step by step
};

// How b, h, q and k move through a captured tensor, from the element that position (0, 0, 0, 0) of
// a call loads.
struct View {
  std::uint32_t slot = 0;
  std::vector<int> axis;               // by index, 0 to 3: b, h, q, k; -1: a constant
  std::vector<std::int64_t> stride;    // that the graph bakes, by index
  std::vector<std::int64_t> length;    // how many elements a graph walks over, by index
  std::int64_t alignment = 1;          // of the address, in bytes, that follows from the strides
  std::vector<std::int64_t> constant;  // the index if axis is -1
  bool partial = false;                // there are elements that a graph does not touch
};

struct Lowered {
  GraphSpec spec;
  std::vector<HeadTable> tables;         // by slot of TensorRole::Table
  std::vector<UniformFormula> uniforms;  // by slot of TensorRole::Uniform
  std::vector<View> views;  // of each Captured, Bias and GradBias, in the order of spec.tensors
  std::vector<Reason> reasons;
  int costly_steps = 0;          // transcendental functions, divisions
  bool dense_mask = false;       // a mask that cuDNN computes everywhere
  bool uses_b = false;           // formulas see the batch index: slices of a batch need an offset
  bool computes_with_b = false;  // see computes_with_b()
};

// `baked` as bake() makes it; the graph is for `batch` of its sequences, whose tensors lie as in
// the whole.
Lowered lower(const Problem& baked, std::int64_t batch, const Workarounds& avoid = {});

}  // namespace fovea::cudnn
