// Random formulas of every operation, leaf and kind of load, with sharing. They are drawn as raw
// graphs, which nothing has simplified, so that tests can compare what ir/build makes of one with
// what it says.
#pragma once

#include <vector>

#include "ir/expr.h"
#include "ir/program.h"
#include "tests/ir/random.h"

namespace fovea::test {

struct RawNode {
  ir::Op op;
  std::uint32_t payload = 0;        // constant bits or slot
  std::vector<std::uint32_t> args;  // places of earlier nodes
};

// Operands first; the last node is the value.
using RawGraph = std::vector<RawNode>;

// What a formula is made of.
struct Draw {
  ir::Type type = ir::Type::F32;
  std::uint32_t size = 16;  // operations, about
  bool score = true;
  bool grad = false;
  bool captured = true;
  // Only what has a derivative almost everywhere, and constants near 1: for finite differences.
  bool smooth = false;
};

// Tensors of every element type and of ranks 0 to 3, and scalars; some alike, so that formulas have
// symmetries.
const ir::Declarations& random_declarations();

RawGraph draw(Random& random, const Draw& wanted);

// One node after the other through ir::make.
ir::Expr build(const RawGraph& graph);
std::vector<ir::Expr> build_all(const RawGraph& graph);  // every node of it

// 0, -0, 1, powers of two, huge, tiny, inf, NaN, INT_MIN ..., or any bits.
float random_float(Random& random);
std::int32_t random_int(Random& random);

// mod, mask and sometimes bprop.
ir::Program random_program(Random& random, std::uint32_t size);

}  // namespace fovea::test
