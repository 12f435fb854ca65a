/* Every function of the C interface, used as a C99 program would. Exits 0 if all of it works. */
#include <fovea/fovea.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;
static int log_lines = 0;

static void expect(int right, const char* what, int line) {
  if (right) return;
  ++failures;
  printf("line %d: %s\n  last error: %s\n", line, what, fovea_last_error());
}
#define EXPECT(x) expect((x) != 0, #x, __LINE__)
#define OK(x) EXPECT((x) == FOVEA_OK)

static void count_line(void* context, const char* line) {
  EXPECT(context == (void*)&log_lines);
  EXPECT(strncmp(line, "fovea run '", 11) == 0);
  ++log_lines;
}

static void run_all(void* self, size_t count, void (*task)(void*, size_t), void* context) {
  size_t i;
  (void)self;
  for (i = 0; i < count; ++i) task(context, i);
}

static const char* const program_words =
    "mod=\"softcap * tanh(score / softcap) + slopes[h] * (k - q)\" mask=\"q >= k\" "
    "bprop=\"grad * (1 - pow(tanh(score / softcap), 2))\" "
    "tensor=\"slopes:f32[H]=normal(1)\" scalar=\"softcap=30\"";

static void statuses(void) {
  char version[32];
  sprintf(version, "%d.%d.%d", FOVEA_VERSION_MAJOR, FOVEA_VERSION_MINOR, FOVEA_VERSION_PATCH);
  EXPECT(strcmp(fovea_version(), version) == 0);
  EXPECT(strcmp(fovea_status_name(FOVEA_UNSUPPORTED), "FOVEA_UNSUPPORTED") == 0);
  EXPECT(strcmp(fovea_status_name((fovea_status)99), "unknown status") == 0);
  EXPECT(strcmp(fovea_last_error(), "") == 0);
  EXPECT(strcmp(fovea_engines(), "") != 0);
  EXPECT(strcmp(fovea_report_text(NULL), "") == 0);
  fovea_report_destroy(NULL);
  fovea_program_destroy(NULL);
  fovea_problem_destroy(NULL);
  fovea_plan_destroy(NULL);
}

static void programs(void) {
  fovea_program program = NULL, again = NULL;
  fovea_report canonical = NULL, indented = NULL, derivative = NULL, check = NULL;
  fovea_capture_info info;
  double error = -1;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;

  OK(fovea_program_parse(program_words, &program));
  OK(fovea_program_print(program, FOVEA_TEXT_CANONICAL, &canonical));
  OK(fovea_program_print(program, FOVEA_TEXT_INDENTED, &indented));
  OK(fovea_program_parse(fovea_report_text(canonical), &again));
  EXPECT(fovea_program_equal(program, again) == 1);
  EXPECT(fovea_program_equal(program, NULL) == 0);
  EXPECT(strcmp(fovea_report_text(canonical), fovea_report_text(indented)) != 0);

  OK(fovea_program_differentiate(program, "slopes", FOVEA_TEXT_CANONICAL, &derivative));
  EXPECT(strcmp(fovea_report_text(derivative), "slopes[h] => k - q") == 0 ||
         strcmp(fovea_report_text(derivative), "slopes[h] => f32(k - q)") == 0);
  OK(fovea_program_check_bprop(program, 1, 1000, &error, &check));
  EXPECT(error >= 0 && error < 1e-6);

  EXPECT(fovea_program_tensor_count(program) == 1);
  EXPECT(fovea_program_scalar_count(program) == 1);
  OK(fovea_program_tensor(program, 0, &info));
  EXPECT(strcmp(info.name, "slopes") == 0 && info.dtype == FOVEA_F32 && info.rank == 1);
  EXPECT(strcmp(info.extents, "H") == 0 && strcmp(info.data, "normal(1)") == 0);
  OK(fovea_program_scalar(program, 0, &info));
  EXPECT(strcmp(info.name, "softcap") == 0 && info.value == 30 && info.has_value == 1);

  fovea_report_destroy(canonical);
  fovea_report_destroy(indented);
  fovea_report_destroy(derivative);
  fovea_report_destroy(check);
  fovea_program_destroy(program);
  fovea_program_destroy(again);
}

static void points_and_tiles(void) {
  fovea_program program = NULL;
  fovea_point point;
  fovea_value value;
  fovea_box box;
  fovea_tile_class tile = FOVEA_TILE_MIXED;
  fovea_tensor_binding slopes;
  float data[4] = {1, 2, 3, 4};
  memset(&point, 0, sizeof point);
  memset(&value, 0, sizeof value);
  memset(&box, 0, sizeof box);
  memset(&slopes, 0, sizeof slopes);
  slopes.name = "slopes";
  slopes.array.data = data;
  point.struct_size = sizeof point;
  value.struct_size = sizeof value;
  box.struct_size = sizeof box;
  point.H = 4;
  point.Sq = point.Skv = 64;
  point.tensors = &slopes;
  point.tensor_count = 1;
  OK(fovea_program_parse(program_words, &program));

  point.score = 6;
  point.grad = 1;
  point.h = 2;
  point.q = 5;
  point.k = 3;
  OK(fovea_program_evaluate(program, &point, 1, &value));
  EXPECT(fabs(value.mod - (30 * tanh(0.2) + 3 * -2)) < 1e-6);
  EXPECT(fabs(value.bprop - (1 - pow(tanh(0.2), 2))) < 1e-6);
  EXPECT(value.keep == 1);
  point.k = 6;
  OK(fovea_program_evaluate(program, &point, 0, &value));
  EXPECT(value.keep == 0);

  box.at = point;
  box.q_last = 16;
  box.k_last = 16;
  OK(fovea_program_classify(program, &box, &tile));
  EXPECT(tile == FOVEA_TILE_MIXED);
  box.q_first = 16;
  box.q_last = 32;
  OK(fovea_program_classify(program, &box, &tile));
  EXPECT(tile == FOVEA_TILE_FULL);
  box.k_first = 32;
  box.k_last = 48;
  OK(fovea_program_classify(program, &box, &tile));
  EXPECT(tile == FOVEA_TILE_EMPTY);
  fovea_program_destroy(program);
}

/* b=1 h=2 sq=4 d=2, forward and backward, by way of a struct and of a line. */
static void problems(fovea_problem* forward, fovea_problem* backward) {
  fovea_program program = NULL, same = NULL;
  fovea_problem_config config;
  fovea_report line = NULL, value = NULL;
  fovea_problem from_line = NULL;
  memset(&config, 0, sizeof config);
  config.struct_size = sizeof config;
  OK(fovea_program_parse(program_words, &program));
  config.sizes.b = 1;
  config.sizes.h = 2;
  config.sizes.sq = config.sizes.skv = 4;
  config.sizes.d = 2;
  config.program = program;
  config.lse = 1;
  OK(fovea_problem_create(&config, forward));
  config.lse = 0;
  config.direction = FOVEA_BACKWARD;
  config.grads = "q,k,v,slopes,softcap";
  OK(fovea_problem_create(&config, backward));
  fovea_program_destroy(program); /* not kept */

  OK(fovea_problem_print(*backward, &line));
  OK(fovea_problem_parse(fovea_report_text(line), &from_line, NULL));
  EXPECT(fovea_problem_equal(*backward, from_line) == 1);
  EXPECT(fovea_problem_equal(*backward, *forward) == 0);
  OK(fovea_problem_describe(from_line, &config));
  EXPECT(config.direction == FOVEA_BACKWARD && config.sizes.dv == 2);
  EXPECT(strcmp(config.grads, "q,k,v,slopes,softcap") == 0);
  OK(fovea_problem_program(from_line, &same));
  EXPECT(fovea_program_equal(same, config.program) == 1);
  OK(fovea_suggest("shwo", "run show", &value));
  EXPECT(strcmp(fovea_report_text(value), "; did you mean 'show'?") == 0);
  fovea_report_destroy(value);
  OK(fovea_line_value("b=2 qlens=3,4 seed=7", "qlens", &value));
  EXPECT(strcmp(fovea_report_text(value), "3,4") == 0);

  fovea_program_destroy(same);
  fovea_report_destroy(line);
  fovea_report_destroy(value);
  fovea_problem_destroy(from_line);
}

static void support(fovea_problem problem, const fovea_plan_options* options) {
  fovea_answer answer = FOVEA_NO;
  fovea_report first = NULL, second = NULL, table = NULL, json = NULL;
  OK(fovea_supported(problem, options, &answer, &first));
  EXPECT(answer != FOVEA_NO && strcmp(fovea_report_text(first), "reference") == 0);
  OK(fovea_supported(problem, NULL, &answer, &second));
  EXPECT(strcmp(fovea_report_text(first), "reference") == 0); /* untouched by the second */
  OK(fovea_explain(problem, options, 0, &table));
  OK(fovea_explain(problem, options, FOVEA_EXPLAIN_JSON | FOVEA_EXPLAIN_PROVE, &json));
  EXPECT(strstr(fovea_report_text(table), "reference") != NULL);
  EXPECT(strstr(fovea_report_text(json), "\"chosen\": \"reference\"") != NULL);
  fovea_report_destroy(first);
  fovea_report_destroy(second);
  fovea_report_destroy(table);
  fovea_report_destroy(json);
}

static void ranks(fovea_problem problem) {
  fovea_parallel_config config;
  fovea_report table = NULL, json = NULL;
  memset(&config, 0, sizeof config);
  config.struct_size = sizeof config;
  config.ranks = 2;
  config.rank = 1;
  OK(fovea_parallel_plan(problem, &config, NULL, 0, &table));
  OK(fovea_parallel_plan(problem, &config, NULL, FOVEA_EXPLAIN_JSON, &json));
  EXPECT(strstr(fovea_report_text(table), "ring over 2 ranks") != NULL);
  EXPECT(strstr(fovea_report_text(json), "\"steps\": [") != NULL);
  fovea_report_destroy(table);
  fovea_report_destroy(json);
}

static void* workspace(size_t bytes, void** block) {
  *block = malloc(bytes + 64);
  return (char*)*block + (64 - (size_t)*block % 64);
}

static void calls(fovea_problem forward, fovea_problem backward,
                  const fovea_plan_options* options) {
  float q[16], k[16], v[16], o[16], lse[8], again[16], grad_o[16], dq[16], dk[16], dv[16];
  float slopes[2] = {0.5f, 0.25f}, grad_slopes[2], grad_softcap = -1;
  fovea_executor executor;
  fovea_bindings bindings;
  fovea_tensor_binding tensor;
  fovea_scalar_binding scalar;
  fovea_plan plan = NULL;
  void* block = NULL;
  size_t bytes = 0;
  int i;
  for (i = 0; i < 16; ++i) {
    q[i] = (float)sin(i);
    k[i] = (float)cos(i);
    v[i] = (float)i;
    grad_o[i] = 1;
    again[i] = -7;
  }
  memset(&bindings, 0, sizeof bindings);
  memset(&tensor, 0, sizeof tensor);
  memset(&scalar, 0, sizeof scalar);
  memset(&executor, 0, sizeof executor);
  executor.struct_size = sizeof executor;
  executor.threads = 1;
  executor.run = run_all;
  tensor.name = "slopes";
  tensor.array.data = slopes;
  scalar.name = "softcap";
  scalar.value = 30;
  bindings.struct_size = sizeof bindings;
  bindings.q.data = q;
  bindings.k.data = k;
  bindings.v.data = v;
  bindings.o.data = o;
  bindings.lse = lse;
  bindings.tensors = &tensor;
  bindings.tensor_count = 1;
  bindings.scalars = &scalar;
  bindings.scalar_count = 1;
  bindings.executor = &executor;

  OK(fovea_plan_create(forward, options, &plan));
  EXPECT(strcmp(fovea_plan_engine(plan), "reference") == 0);
  OK(fovea_plan_workspace(plan, NULL, &bytes));
  bindings.workspace = workspace(bytes, &block);
  bindings.workspace_bytes = bytes;
  OK(fovea_plan_run(plan, &bindings));
  EXPECT(fabs(o[0] - v[0]) < 1e-6 && fabs(o[1] - v[1]) < 1e-6); /* the first row sees one key */
  bindings.o.data = again;
  OK(fovea_forward(forward, options, &bindings, NULL));
  EXPECT(memcmp(o, again, sizeof o) == 0);
  fovea_plan_destroy(plan);
  free(block);

  bindings.o.data = o;
  bindings.grad_o.data = grad_o;
  bindings.grad_q.data = dq;
  bindings.grad_k.data = dk;
  bindings.grad_v.data = dv;
  tensor.gradient.data = grad_slopes;
  scalar.gradient = &grad_softcap;
  bindings.workspace = NULL;
  OK(fovea_backward(backward, options, &bindings, &bytes));
  EXPECT(grad_softcap == -1); /* asking for the size runs nothing */
  bindings.workspace = workspace(bytes, &block);
  bindings.workspace_bytes = bytes;
  OK(fovea_backward(backward, options, &bindings, NULL));
  EXPECT(grad_softcap != -1);
  EXPECT(fabs(dv[6] - 0) < 1 && fabs(dv[0] + dv[2] + dv[4] + dv[6] - 4) < 1e-5);
  free(block);
}

/* The engines of a host keep no plans in files: this bundle is empty, and loads all the same. */
static void bundles(fovea_problem problem) {
  const char* const path = "fovea_c99_test.fovea";
  fovea_bundle bundle = NULL, whole = NULL;
  uint64_t plans = 1, bytes = 0;
  OK(fovea_bundle_create(path, &bundle));
  EXPECT(fovea_bundle_add(bundle, problem, NULL, NULL) == FOVEA_UNSUPPORTED);
  OK(fovea_bundle_finish(bundle, &plans, &bytes));
  EXPECT(plans == 0 && bytes > 0);
  fovea_bundle_destroy(bundle);
  OK(fovea_bundle_load(path));
  OK(fovea_bundle_create("fovea_c99_other.fovea", &whole));
  OK(fovea_bundle_merge(whole, path));
  fovea_bundle_destroy(whole);
  EXPECT(fopen("fovea_c99_other.fovea", "rb") == NULL);
  remove(path);
  EXPECT(fovea_bundle_load(path) == FOVEA_INVALID_ARGUMENT);
}

static void process(void) {
  fovea_disk_cache_info info;
  uint64_t plans = 1, bytes = 1;
  int own_folder;
  fovea_cache_stats stats;
  fovea_report report = NULL;
  memset(&stats, 0, sizeof stats);
  stats.struct_size = sizeof stats;
  OK(fovea_cache_statistics(&stats));
  EXPECT(stats.builds >= 2 && stats.plans >= 2 && stats.misses >= 2);
  OK(fovea_cache_limit(1, 0));
  OK(fovea_cache_statistics(&stats));
  EXPECT(stats.plans == 1 && stats.evictions >= 1);
  OK(fovea_cache_clear());
  OK(fovea_cache_statistics(&stats));
  EXPECT(stats.plans == 0 && stats.bytes == 0);
  OK(fovea_disk_cache_folder(&report));
  own_folder = strstr(fovea_report_text(report), "c99-cache") != NULL;
  fovea_report_destroy(report);
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  OK(fovea_disk_cache_list(FOVEA_DISK_CACHE_VERIFY, &info, &report));
  EXPECT(info.limit > 0 && (!own_folder || (info.usable == 1 && info.plans == 0)));
  fovea_report_destroy(report);
  if (own_folder) { /* CTest sets one; by hand it would be the user's */
    OK(fovea_disk_cache_clear(&plans, &bytes));
    EXPECT(plans == 0 && bytes == 0);
  }
  OK(fovea_doctor(&report));
  EXPECT(strstr(fovea_report_text(report), "cpu") != NULL);
  fovea_report_destroy(report);
}

int main(void) {
  fovea_problem forward = NULL, backward = NULL;
  fovea_plan_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.engine = "reference";
  statuses();
  programs();
  points_and_tiles();
  problems(&forward, &backward);
  support(forward, &options);
  ranks(forward);
  fovea_set_log(count_line, &log_lines);
  calls(forward, backward, &options);
  fovea_set_log(NULL, NULL);
  EXPECT(log_lines == 2 + 3); /* two plans, three runs */
  bundles(forward);
  process();
  fovea_problem_destroy(forward);
  fovea_problem_destroy(backward);
  printf(failures == 0 ? "every function works\n" : "%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
