/* The part of the C interface that evaluates formulas: at a point, and over a tile. Included by
 * fovea.h, whose rules hold here; include that.
 */
#ifndef FOVEA_EVALUATE_H
#define FOVEA_EVALUATE_H

#ifndef FOVEA_FOVEA_H
#error "include fovea/fovea.h"
#endif

typedef struct fovea_point {
  size_t struct_size;
  double score, grad;
  int32_t b, h, q, k;
  int32_t B, H, Hkv, Sq, Skv; /* 0: 1 */
  const fovea_tensor_binding* tensors;
  size_t tensor_count;
  const fovea_scalar_binding* scalars;
  size_t scalar_count;
} fovea_point;

typedef struct fovea_value {
  size_t struct_size;
  double mod;   /* the score if there is no mod */
  double bprop; /* 0 if there is none */
  int32_t keep; /* 1 if there is no mask */
} fovea_value;

/* The program at one point: in f32 arithmetic, or in double with decisions in f32. */
FOVEA_API fovea_status fovea_program_evaluate(fovea_program program, const fovea_point* point,
                                              int in_double, fovea_value* value);

typedef enum fovea_tile_class {
  FOVEA_TILE_EMPTY = 0,
  FOVEA_TILE_FULL = 1,
  FOVEA_TILE_MIXED = 2
} fovea_tile_class;

/* Positions first <= x < last; sizes and captured values as in `at`. */
typedef struct fovea_box {
  size_t struct_size;
  int32_t q_first, q_last, k_first, k_last;
  fovea_point at; /* b, h, sizes, captured things; its own struct_size must be set too */
} fovea_box;

/* Is the mask empty, full or mixed over a tile? Never calls a live tile empty. */
FOVEA_API fovea_status fovea_program_classify(fovea_program program, const fovea_box* box,
                                              fovea_tile_class* tile);

#endif
