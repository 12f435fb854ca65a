#define FOVEA_ISA neon
#define FOVEA_ISA_LEVEL 0
#define FOVEA_NEON 1
#define FOVEA_ISA_NAME "neon"
#define FOVEA_ISA_TABLE neon_kernels
#include "engines/cpu/kernels/all.h"
