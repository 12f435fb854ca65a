#define FOVEA_ISA scalar
#define FOVEA_ISA_LEVEL 0
#define FOVEA_ISA_NAME "scalar"
#define FOVEA_ISA_TABLE scalar_kernels
#include "engines/cpu/kernels/all.h"
