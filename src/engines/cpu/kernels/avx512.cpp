#define FOVEA_ISA avx512
#define FOVEA_ISA_LEVEL 2
#define FOVEA_ISA_NAME "avx512"
#define FOVEA_ISA_TABLE avx512_kernels
#include "engines/cpu/kernels/all.h"
