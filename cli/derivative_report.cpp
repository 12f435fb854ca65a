// What `fovea diff` prints.
#include <stdexcept>

#include "bound_program.h"
#include "ir/bprop.h"
#include "ir/diff.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/simplify.h"

namespace fovea::cli {
namespace {

// A hand-written bprop beside the derived one.
std::string bprop_report(const ir::Program& program) {
  constexpr std::uint64_t seed = 1;
  const ir::BpropCheck check = ir::check_bprop(program, seed);
  char error[32];
  std::snprintf(error, sizeof error, "%.3g", check.worst_error);
  std::string out = "bprop (hand-written)\n" +
                    ir::print_indented(program.bprop(), program.declarations());
  if (check.agrees()) {
    return out + "  agrees with the derivative at " + std::to_string(check.points) +
           " random points (largest relative error " + error + ")\n";
  }
  return out + "  DIFFERS from the derivative: relative error " + error + " at " +
         check.worst_point + ": bprop gives " + std::to_string(check.hand) + ", the derivative " +
         std::to_string(check.derived) + "\n";
}

}  // namespace

std::string derivative_report(const std::string& text) {
  const ir::Program program = ir::parse_program(text);
  if (!program.mod()) {
    throw std::invalid_argument("there is nothing to differentiate: give mod=\"...\"" +
                                std::string(program.mask() ? " (a mask has no derivative)" : ""));
  }
  const ir::Declarations& names = program.declarations();
  std::string out = "mod\n" + ir::print_indented(program.mod(), names);
  const auto paragraph = [&](const std::string& by, const ir::Expr& derivative) {
    out += "\nd mod / d " + by + "\n" + ir::print_indented(ir::simplify(derivative), names);
  };
  const ir::Gradients gradients = ir::differentiate(program.mod());
  paragraph("score", gradients.score);
  for (const ir::LoadGradient& load : gradients.loads) {
    paragraph(ir::print(load.load, names), load.gradient);
  }
  for (const ir::ScalarGradient& scalar : gradients.scalars) {
    paragraph(names.scalars[scalar.slot].name, scalar.gradient);
  }
  if (program.bprop()) out += "\n" + bprop_report(program);
  return out;
}

}  // namespace fovea::cli
