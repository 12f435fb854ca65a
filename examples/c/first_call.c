/* One call from C: two heads over eight positions, causal, with a soft cap on the scores.
 * Prints the engine and the first row of the output. docs/c.md walks through it. */
#include <fovea/fovea.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 2, LENGTH = 8, FEATURES = 4, COUNT = HEADS * LENGTH * FEATURES };

static void check(fovea_status status) {
  if (status == FOVEA_OK) return;
  fprintf(stderr, "%s: %s\n", fovea_status_name(status), fovea_last_error());
  exit(1);
}

int main(void) {
  static float q[COUNT], k[COUNT], v[COUNT], o[COUNT];
  int i;
  for (i = 0; i < COUNT; ++i) {
    q[i] = (float)(i % 7) - 3.0f;
    k[i] = (float)(i % 5) - 2.0f;
    v[i] = (float)i;
  }

  /* Which attention: everything not set has its default. */
  fovea_problem_config config = {0};
  config.struct_size = sizeof config;
  config.sizes.b = 1;
  config.sizes.h = HEADS;
  config.sizes.sq = config.sizes.skv = LENGTH;
  config.sizes.d = FEATURES;
  check(fovea_program_parse("mod=\"cap * tanh(score / cap)\" mask=causal scalar=cap:f32",
                            &config.program));
  fovea_problem problem;
  check(fovea_problem_create(&config, &problem));

  /* A plan: built once, then taken from the cache. */
  fovea_plan_options options = {0};
  options.struct_size = sizeof options;
  fovea_plan plan;
  check(fovea_plan_create(problem, &options, &plan));
  size_t bytes;
  check(fovea_plan_workspace(plan, NULL, &bytes));
  char* memory = malloc(bytes + 64);
  if (memory == NULL) return 1;

  /* The values of this call. Another cap needs no other plan. */
  fovea_scalar_binding cap = {0};
  cap.name = "cap";
  cap.value = 2.0;
  fovea_bindings bindings = {0};
  bindings.struct_size = sizeof bindings;
  bindings.q.data = q;
  bindings.k.data = k;
  bindings.v.data = v;
  bindings.o.data = o;
  bindings.scalars = &cap;
  bindings.scalar_count = 1;
  bindings.workspace = memory + (64 - (size_t)memory % 64) % 64;
  bindings.workspace_bytes = bytes;
  check(fovea_plan_run(plan, &bindings));

  printf("engine %s:", fovea_plan_engine(plan));
  for (i = 0; i < FEATURES; ++i) printf(" %g", o[i]);
  printf("\n");

  free(memory);
  fovea_plan_destroy(plan);
  fovea_problem_destroy(problem);
  fovea_program_destroy(config.program);
  return 0;
}
