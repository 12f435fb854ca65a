/* The part of the C interface that concerns attention over many ranks. Included by fovea.h, whose
 * rules hold here; include that. docs/parallel.md explains.
 */
#ifndef FOVEA_PARALLEL_H
#define FOVEA_PARALLEL_H

#ifndef FOVEA_FOVEA_H
#error "include fovea/fovea.h"
#endif

typedef struct fovea_parallel_config {
  size_t struct_size;
  int32_t ranks;
  int32_t rank;         /* JSON: whose steps */
  const char* strategy; /* NULL: "ring"; "all_gather", "all_to_all", "a2a+p2p" */
  const char* order;    /* NULL: "contiguous"; "zigzag", "striped" */
  int32_t head_ranks;   /* a2a+p2p: ranks of one all-to-all */
} fovea_parallel_config;

/* Who computes which tiles in which step and sends what to whom, if `problem` (the whole attention)
 * is cut over ranks along its sequence: a table, or with FOVEA_EXPLAIN_JSON the pieces and one
 * rank's steps. Steps with nothing kept are neither sent nor computed. Of `values` (may be NULL)
 * starts, lengths, tensors and scalars count, all in host memory; tensors and scalars that are not
 * there may be anything. */
FOVEA_API fovea_status fovea_parallel_plan(fovea_problem problem,
                                           const fovea_parallel_config* config,
                                           const fovea_bindings* values, uint32_t flags,
                                           fovea_report* report);

#endif
