#define FOVEA_ISA avx2
#define FOVEA_ISA_LEVEL 1
#define FOVEA_ISA_NAME "avx2"
#define FOVEA_ISA_TABLE avx2_kernels
#include "engines/cpu/kernels/all.h"
