// What engine cudnn can run, by rules that cost microseconds, as observed in cuDNN 9.19 and
// cudnn-frontend 1.32. The tests compare every `expected` with cuDNN's own support check.
#pragma once

#include "attention/engine.h"
#include "engines/cudnn/lower.h"

namespace fovea::cudnn {

// If nothing can be compiled here, that is one of the reasons. Described GPUs are judged by the
// rules alone. If it is not refused, `lowered` is the Lowered of the first batch.
Judged judge(const Problem& baked, const Device& device);
const Lowered& lowered_by(const Judged& judged);

// Whether graphs can be built: this Fovea has cudnn-frontend, and there is a cuDNN.
bool can_compile();

// The newest cuDNN that the conformance list ran on, and the one whose rules count: that of this
// machine, or the newest known if there is none.
inline constexpr int newest_known_version = 91900;
int rules_version();

// Why this version of cuDNN is not used for such a problem on this architecture; empty: it may be.
std::vector<Reason> known_bad(int version, int sm, const Problem& problem);

// Batches that are run one after the other: powers of two, the largest first, so that a plan for
// one batch serves others. One batch if sums over it are asked for.
std::vector<std::int64_t> batches(const Problem& baked);

}  // namespace fovea::cudnn
