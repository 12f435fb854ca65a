#define FOVEA_ISA avx512_bf16
#define FOVEA_ISA_LEVEL 3
#define FOVEA_ISA_NAME "avx512_bf16"
#define FOVEA_ISA_TABLE avx512_bf16_kernels
#include "engines/cpu/kernels/all.h"
