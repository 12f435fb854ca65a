#include "engines/cudnn/cost.h"

#include <algorithm>

#include "ir/topology.h"

namespace fovea::cudnn {
namespace {

// TFLOP/s with no modifier and no mask at d 128, and TB/s of memory. sm_90: measured on an H200
// with cuDNN 9.19 (docs/results); the others are guesses.
struct Rates {
  int sm;  // and newer
  double forward, backward, memory;
};
constexpr Rates table[] = {
    {80, 210, 150, 1.7},
    {90, 690, 580, 4.0},
    {100, 1300, 1000, 6.5},
    {120, 220, 150, 1.5},
};

const Rates& rates_of(int sm) {
  const Rates* best = &table[0];
  for (const Rates& one : table) {
    if (one.sm <= sm) best = &one;
  }
  return *best;
}

double flops_of(const Problem& baked) {
  const Sizes& s = baked.sizes;
  return 4.0 * static_cast<double>(s.b * s.h) * static_cast<double>(s.sq) *
         static_cast<double>(s.skv) * static_cast<double>(s.d + s.dv) / 2 *
         (baked.direction == Direction::Backward ? 2.5 : 1.0);
}

// Few queries leave nothing to do but to read keys and values, by one block for each head.
double reading_seconds(const Problem& baked, const Device& device, double memory) {
  const Sizes& s = baked.sizes;
  const double bytes = 2.0 * static_cast<double>(s.b * s.hkv) * static_cast<double>(s.skv) *
                       static_cast<double>(s.d + s.dv);
  const double blocks = static_cast<double>(s.b * s.h) * static_cast<double>((s.sq + 127) / 128);
  const double processors = std::max(device.multiprocessors, 1);
  return bytes / (memory * 1e12) * std::max(1.0, processors / std::max(blocks, 1.0));
}

// Whether scores are modified by a tensor with an element for each of them.
bool loads_cells(const ir::Program& program) {
  if (!program.mod()) return false;
  const ir::Order order = ir::operands_first(std::span(&program.mod(), 1));
  return std::ranges::any_of(order.nodes, [](const ir::Node* node) {
    return ir::info(node->op()).form == ir::Form::Load &&
           ir::any(node->depends(), ir::Depends::Q) && ir::any(node->depends(), ir::Depends::K);
  });
}

}  // namespace

// From measurements on an H200 with cuDNN 9.19 (docs/results): a dense mask costs 1.7 times no
// mask; a soft cap 1.28; a tensor by q and k 2.1; six sigmoids in a row, which no longer fit the
// registers, 15. Head dims of 64 reach 0.7 of the rate, those of 256 in the backward 0.75.
void note_cost(const Problem& baked, const Lowered& lowered, const Device& device,
               Verdict& verdict) {
  const Sizes& s = baked.sizes;
  double factor = 1 + 0.28 * lowered.costly_steps;
  if (loads_cells(baked.program)) factor *= 2.1;
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
  const Rates& rates = rates_of(device.sm);
  const bool backward = baked.direction == Direction::Backward;
  const std::int64_t d = std::max(s.d, s.dv);
  if (d <= 64 || (backward && d > 128)) factor *= d <= 64 ? 1.4 : 1.33;
  const double busy =
      flops_of(baked) * factor / (1e12 * (backward ? rates.backward : rates.forward));
  verdict.cost = std::max(busy, reading_seconds(baked, device, rates.memory)) + 10e-6;
}

}  // namespace fovea::cudnn
