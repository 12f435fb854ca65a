// Every kernel source, and the table of them.
#pragma once

#include "engines/cpu/kernels/dropout.h"
#include "engines/cpu/kernels/gemm.h"
#include "engines/cpu/kernels/pack.h"
#if FOVEA_ISA_LEVEL == 3 || (FOVEA_ISA_LEVEL == 0 && !FOVEA_NEON)
#define FOVEA_PAIR_KERNELS &FOVEA_ISA::pair_kernels
#include "engines/cpu/kernels/pairs.h"
#else
#define FOVEA_PAIR_KERNELS nullptr
#endif
#include "engines/cpu/kernels/softmax.h"
#include "engines/cpu/kernels/softmax_backward.h"
#include "engines/cpu/kernels/strip_ops.h"
#include "engines/cpu/kernels/table.h"
#include "engines/cpu/kernels/vec.h"

namespace fovea::cpu {

const KernelTable FOVEA_ISA_TABLE = {
    .isa = FOVEA_ISA_NAME,
    .lanes = FOVEA_ISA::W,
    .panel_width = FOVEA_ISA::panel_width,
    .strip_rows = FOVEA_ISA::strip_rows,
    .multiply = FOVEA_ISA::multiply,
    .pack = FOVEA_ISA::pack,
    .pack_transposed = FOVEA_ISA::pack_transposed,
    .all_finite = FOVEA_ISA::all_finite,
    .unpack = FOVEA_ISA::unpack,
    .softmax = FOVEA_ISA::softmax,
    .softmax_backward = FOVEA_ISA::softmax_backward,
    .spread = FOVEA_ISA::spread,
    .add_rows = FOVEA_ISA::add_rows,
    .add_two_rows = FOVEA_ISA::add_two_rows,
    .dropout = FOVEA_ISA::dropout,
    .apply_dropout = FOVEA_ISA::apply_dropout,
    .row_dots = FOVEA_ISA::row_dots,
    .add_up = FOVEA_ISA::add_up,
    .strips = &FOVEA_ISA::strip_kernels,
    .pairs = FOVEA_PAIR_KERNELS,
};

}  // namespace fovea::cpu
