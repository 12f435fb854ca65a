#include "ir/lift.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/build.h"
#include "ir/topology.h"

namespace fovea::ir {
namespace {

bool stays(float value) {
  constexpr std::array<float, 5> known{0.0f, 1.0f, -1.0f, 2.0f, 0.5f};
  return !std::isfinite(value) || std::ranges::find(known, value) != known.end();
}

class Lifter {
 public:
  explicit Lifter(const Program& program) : declarations_(program.declarations()) {}

  Expr lift(const Expr& formula) {
    if (!formula) return formula;
    const Order order = operands_first({&formula, 1});
    std::vector<Expr> renewed;
    std::vector<Expr> args;
    for (const Node* node : order.nodes) {
      args.clear();
      for (const Expr& arg : node->args()) args.push_back(renewed[order.number.find(arg.get())]);
      renewed.push_back(lift_node(*node, args));
    }
    return renewed.back();
  }

  Declarations declarations_;
  std::vector<float> literals_;

 private:
  Expr lift_node(const Node& node, const std::vector<Expr>& args) {
    if (node.op() == Op::ConstF && !stays(node.float_value())) return literal(node.float_value());
    if (info(node.op()).form == Form::Load) return load(node.type(), node.slot(), args);
    return args.empty() ? Expr::share(&node) : make(node.op(), args);
  }

  // Equal literals in different places become different scalars only between formulas: within one
  // they are one node.
  Expr literal(float value) {
    literals_.push_back(value);
    ScalarDecl scalar;
    scalar.name = "literal_" + std::to_string(declarations_.scalars.size());
    declarations_.scalars.push_back(std::move(scalar));
    return ir::scalar(Type::F32, static_cast<std::uint32_t>(declarations_.scalars.size() - 1));
  }
};

}  // namespace

Lifted lift_literals(const Program& program) {
  Lifter lifter(program);
  const Expr mod = lifter.lift(program.mod());
  const Expr mask = lifter.lift(program.mask());
  const Expr bprop = lifter.lift(program.bprop());
  return {Program::with_slots(std::move(lifter.declarations_), mod, mask, bprop),
          std::move(lifter.literals_)};
}

}  // namespace fovea::ir
