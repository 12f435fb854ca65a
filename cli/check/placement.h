// Where the tensors of a workload lie: extents by layout, strides as the problem has them.
#pragma once

#include "cli/check/placed.h"
#include "cli/check/workload.h"

namespace fovea::cli {

// Where one of the eight tensors lies: q k v o do dq dk dv.
Placement placement_of(const Workload& workload, const std::string& name);
// Where a captured tensor lies: dense, or as tensor_strides of the line says.
Placement captured_placement(const Workload& workload, const CapturedTensor& tensor);
// lse and its like: [B,H,Sq], packed [H,T]; f64 if q is.
Placement row_placement(const Workload& workload);
std::string statistics_dtype(const Workload& workload);

// The dense index of feature 0 of a row of K or V.
std::int64_t key_row(const Workload& workload, std::int64_t b, std::int64_t g, std::int64_t k,
                     std::int64_t features);

}  // namespace fovea::cli
