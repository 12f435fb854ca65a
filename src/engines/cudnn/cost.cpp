#include "engines/cudnn/cost.h"

namespace fovea::cudnn {

// From measurements on an H200 with cuDNN 9.19 (docs/results): a dense mask costs 1.7 times no
// mask; a soft cap 1.3; six sigmoids in a row, which no longer fit the registers, 15.
void note_cost(const Problem& baked, const Lowered& lowered, Verdict& verdict) {
  const Sizes& s = baked.sizes;
  const double flops = 4.0 * static_cast<double>(s.b * s.h) * static_cast<double>(s.sq) *
                       static_cast<double>(s.skv) * static_cast<double>(s.d + s.dv) / 2 *
                       (baked.direction == Direction::Backward ? 2.5 : 1.0);
  double factor = 1 + 0.17 * lowered.costly_steps;
  if (lowered.costly_steps > 8) {
    factor = 1.25 * lowered.costly_steps;
    verdict.note = "supported, but slow: a chain of " + std::to_string(lowered.costly_steps) +
                   " costly operations, about " + std::to_string(static_cast<int>(factor)) +
                   " times the time of no modifier";
  } else if (lowered.dense_mask) {
    factor *= 1.7;
    verdict.note =
        "supported, but slow: cuDNN skips tiles for diagonals only, this mask is computed "
        "everywhere, about 1.7 times the time of no mask";
  }
  if (lowered.spec.band.right && s.sq == s.skv) factor *= 0.58;
  constexpr double flops_per_second = 650e12;
  verdict.cost = flops * factor / flops_per_second + 10e-6;
}

}  // namespace fovea::cudnn
