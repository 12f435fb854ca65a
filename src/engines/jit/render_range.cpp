#include "engines/jit/render_range.h"

#include "ir/build.h"
#include "ir/mod_mask.h"

namespace fovea::jit {

Classifier::Classifier(const ir::Program& program) : program_(program) {
  const ir::Expr mask = program.mask() ? program.mask() : ir::constant(true);
  const ir::Expr hidden =
      program.mod() ? ir::always_minus_infinity(program.mod()) : ir::constant(false);
  formulas_ = {and_(mask, not_(hidden)), mask};
}

bool Classifier::classifies() const { return formulas_[0] != ir::constant(true); }

std::string Classifier::text(WordLayout&, std::vector<Summary>&) const {
  return "  static FOVEA_DEVICE Tile classify(const Arguments&, const Head&, const Box&) {\n"
         "    return Tile::Mixed;\n  }\n";
}

}  // namespace fovea::jit
