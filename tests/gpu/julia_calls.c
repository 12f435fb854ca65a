/* The calls that Fovea.jl makes for arrays of CUDA.jl, replayed from C: arrays (head_dim, heads,
 * seq, batch), column-major, some of them strided; a stream; a workspace; captured arrays as
 * programs of the package have them (last index first) and as a text of the user's has them (in
 * Julia's order, with strides). The calls are julia_cases.h's, which the package's tests compare
 * with what it makes. Every output and gradient is compared with the reference engine on the host.
 *
 *   fovea_julia_calls [ENGINE]     jit unless told; "cpu" runs the same calls on host memory
 *
 * Exits with 77 if there is no GPU, or no such engine. Memory is julia_memory.h's. */
#include <fovea/fovea.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "julia_cases.h"
#include "julia_memory.h"

/* Everything a call touches, on the host; the device has a copy of each. */
typedef struct {
  Buffer q, k, v, o, lse, d_o, dq, dk, dv; /* bf16, but lse */
  Buffer learned, d_bias;                  /* bf16 */
  Buffer slopes, bias, d_cap;              /* f32 */
  Buffer lengths;                          /* i32 */
  Buffer mask;                             /* one byte each */
} Arrays;

static Arrays make_arrays(int strided) {
  const int heads = strided ? 2 * H : H;
  Arrays a;
  memset(&a, 0, sizeof a);
  a.q = random_bf16((size_t)D * heads * SQ * B, 1);
  a.k = random_bf16((size_t)D * HKV * SKV * B, 2);
  a.v = random_bf16((size_t)D * HKV * SKV * B, 3);
  a.d_o = random_bf16((size_t)D * H * SQ * B, 4);
  a.o = zero_buffer((size_t)D * H * SQ * B, 2);
  a.dq = zero_buffer((size_t)D * H * SQ * B, 2);
  a.dk = zero_buffer(a.k.count, 2);
  a.dv = zero_buffer(a.v.count, 2);
  a.lse = zero_buffer((size_t)B * H * SQ, 4);
  a.slopes = random_f32(H, 5, 0.1f);
  a.bias = random_f32((size_t)SKV * SQ * H * B, 6, 1.0f);
  a.learned = random_bf16((size_t)(SKV + GAP) * SQ * H * B, 7);
  a.d_bias = zero_buffer((size_t)SKV * SQ * H * B, 2);
  a.d_cap = zero_buffer(1, 4);
  a.lengths = zero_buffer(B, 4);
  ((int32_t*)a.lengths.host)[0] = SKV;
  ((int32_t*)a.lengths.host)[1] = 37;
  a.mask = zero_buffer((size_t)SKV * SQ, 1);
  for (int q = 0; q < SQ; ++q) {
    for (int k = 0; k < SKV; ++k)
      ((unsigned char*)a.mask.host)[q * SKV + k] = k == 0 || (q + 3 * k) % 5 < 3;
  }
  return a;
}

static Buffer* buffer_list(Arrays* a) { return &a->q; }
enum { BUFFERS = sizeof(Arrays) / sizeof(Buffer) };

static int failed(const char* call, fovea_status status) {
  if (status == FOVEA_OK) return 0;
  printf("  %s: %s: %s\n", call, fovea_status_name(status), fovea_last_error());
  return 1;
}

/* As Fovea.jl's config_of: layout bshd is what (head_dim, heads, seq, batch) is; strides by batch,
 * head, position, feature only if they are not dense. */
static fovea_problem_config config_of(const Case* c, fovea_direction direction,
                                      fovea_program program) {
  fovea_problem_config config;
  memset(&config, 0, sizeof config);
  config.struct_size = sizeof config;
  config.direction = direction;
  config.layout = FOVEA_BSHD;
  config.sizes.b = B, config.sizes.h = H, config.sizes.hkv = HKV;
  config.sizes.sq = SQ, config.sizes.skv = SKV, config.sizes.d = D, config.sizes.dv = D;
  config.dtype = config.o_dtype = FOVEA_BF16;
  if (direction == FOVEA_BACKWARD) {
    config.do_dtype = config.dq_dtype = config.dk_dtype = config.dv_dtype = FOVEA_BF16;
    config.grads = c->grads;
  }
  if (c->strided) {
    config.q_strides[0] = (int64_t)D * 2 * H * SQ;
    config.q_strides[1] = 2 * D;
    config.q_strides[2] = (int64_t)D * 2 * H;
    config.q_strides[3] = 1;
  }
  config.program = program;
  if (c->captured->strides[0] != 0) config.tensor_strides = c->captured->strides;
  config.has_k_lengths = c->lengths;
  config.q_offset = c->q_offset != 0; /* its value comes with the call */
  config.lse = direction == FOVEA_FORWARD;
  return config;
}

static int mentions(const char* list, const char* word) { return strstr(list, word) != NULL; }

static void set_strides(fovea_array* array, const char* text) {
  const char* at = strchr(text, ':');
  int64_t dense = 1;
  for (int i = array->rank; i-- > 0;) {
    array->stride[i] = dense;
    dense *= array->extent[i];
  }
  for (int i = 0; at != NULL && i < array->rank; ++i) {
    char* end = NULL;
    array->stride[i] = strtoll(at + 1, &end, 10);
    at = end;
  }
}

/* As Fovea.jl's c_array. A gradient is an Array of its own: dense, and of the same order. */
static fovea_array captured_array(const Captured* c, void* data, int is_gradient) {
  fovea_array array;
  memset(&array, 0, sizeof array);
  array.data = (char*)data + (is_gradient ? 0 : 2 * c->first); /* only bf16 begins later */
  array.dtype = c->type;
  while (array.rank < 4 && c->extent[array.rank] != 0) {
    array.extent[array.rank] = c->extent[array.rank];
    ++array.rank;
  }
  set_strides(&array, is_gradient ? "" : c->strides);
  return array;
}

typedef struct {
  fovea_tensor_binding tensors[1];
  fovea_scalar_binding scalars[1];
  fovea_bindings bindings;
} Call;

static void fill_call(Call* call, const Case* c, Arrays* a, fovea_direction direction,
                      int on_device) {
  const int back = direction == FOVEA_BACKWARD;
  fovea_bindings* b = &call->bindings;
  memset(call, 0, sizeof *call);
#define AT(x) (on_device ? (a->x).device : (a->x).host)
  b->struct_size = sizeof *b;
  b->q.data = AT(q), b->k.data = AT(k), b->v.data = AT(v), b->o.data = AT(o), b->lse = AT(lse);
  if (back)
    b->grad_o.data = AT(d_o), b->grad_q.data = AT(dq), b->grad_k.data = AT(dk),
    b->grad_v.data = AT(dv);
  if (c->lengths) b->k_lengths = AT(lengths);
  if (c->captured != &none) {
    void* data = c->captured == &slopes           ? AT(slopes)
                 : c->captured == &mask           ? AT(mask)
                 : c->captured->type == FOVEA_F32 ? AT(bias)
                                                  : AT(learned);
    call->tensors[0].name = c->captured->name;
    call->tensors[0].array = captured_array(c->captured, data, 0);
    if (back && mentions(c->grads, c->captured->name)) {
      call->tensors[0].gradient = captured_array(c->captured, AT(d_bias), 1);
    }
    b->tensor_count = 1;
  }
  if (mentions(c->line, "cap")) {
    call->scalars[0].name = "cap";
    call->scalars[0].value = 3;
    if (back && mentions(c->grads, "cap")) call->scalars[0].gradient = AT(d_cap);
    b->scalar_count = 1;
  }
#undef AT
  b->tensors = call->tensors;
  b->scalars = call->scalars;
  b->q_offset.is_set = b->k_offset.is_set = 1;
  b->q_offset.value = c->q_offset;
}

/* Program, problem, plan, workspace, run: in the order of Fovea.jl. */
static fovea_status run(const Case* c, Arrays* a, fovea_direction direction, const char* engine,
                        const char* device) {
  const int on_device = strcmp(device, "cpu") != 0;
  fovea_program program = NULL;
  fovea_problem problem = NULL;
  fovea_plan plan = NULL;
  fovea_plan_options options;
  size_t bytes = 0;
  Call call;
  fovea_status status = FOVEA_OK;
  if (c->line[0] != 0) status = fovea_program_parse(c->line, &program);
  if (status != FOVEA_OK) return status;
  const fovea_problem_config config = config_of(c, direction, program);
  status = fovea_problem_create(&config, &problem);
  fovea_program_destroy(program);
  if (status != FOVEA_OK) return status;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.engine = engine;
  options.device = device;
  status = fovea_plan_create(problem, &options, &plan);
  fovea_problem_destroy(problem);
  if (status != FOVEA_OK) return status;
  status = fovea_plan_workspace(plan, NULL, &bytes);
  if (status == FOVEA_OK) {
    Buffer workspace = zero_buffer(bytes + 64, 1);
    if (on_device) to_device(&workspace);
    fill_call(&call, c, a, direction, on_device);
    call.bindings.workspace = aligned(on_device ? workspace.device : workspace.host);
    call.bindings.workspace_bytes = bytes;
    call.bindings.stream = on_device ? julia_stream() : NULL;
    status = fovea_plan_run(plan, &call.bindings);
    if (on_device && status == FOVEA_OK) wait_for_stream();
    free_buffer(&workspace);
  }
  fovea_plan_destroy(plan);
  return status;
}

/* Relative error of a device result against the reference; limits as everywhere in Fovea. */
static int differs(const char* what, const Buffer* got, const Buffer* want, double limit) {
  const double error = relative_error(got, want);
  printf("  %-8s %.1e of %.1e\n", what, error, limit);
  return !(error <= limit);
}

static int compare(const Case* c, Arrays* got, Arrays* want) {
  const double out = 6e-3, gradient = 3 * 6e-3;
  int bad = differs("o", &got->o, &want->o, out) + differs("lse", &got->lse, &want->lse, 1e-4);
  bad +=
      differs("dq", &got->dq, &want->dq, gradient) + differs("dk", &got->dk, &want->dk, gradient);
  bad += differs("dv", &got->dv, &want->dv, gradient);
  if (mentions(c->grads, "bias")) bad += differs("d_bias", &got->d_bias, &want->d_bias, gradient);
  if (mentions(c->grads, "cap")) bad += differs("d_cap", &got->d_cap, &want->d_cap, gradient);
  return bad;
}

static int run_case(const Case* c, const char* engine, const char* device) {
  const int on_device = strcmp(device, "cpu") != 0;
  Arrays got = make_arrays(c->strided), want = make_arrays(c->strided);
  int bad = 0;
  printf("%s\n", c->name);
  if (on_device) {
    for (int i = 0; i < BUFFERS; ++i) to_device(buffer_list(&got) + i);
  }
  fovea_status status = run(c, &got, FOVEA_FORWARD, engine, device);
  if (status == FOVEA_OK) status = run(c, &got, FOVEA_BACKWARD, engine, device);
  const int may_refuse = c->refusal != NULL && strcmp(engine, "cudnn") == 0;
  if (status == FOVEA_UNSUPPORTED && may_refuse && mentions(fovea_last_error(), c->refusal)) {
    printf("  refused: %s\n", fovea_last_error());
  } else if (failed("run", status)) {
    bad = 1;
  } else {
    if (on_device) {
      for (int i = 0; i < BUFFERS; ++i) to_host(buffer_list(&got) + i);
    }
    bad = failed("reference forward", run(c, &want, FOVEA_FORWARD, "reference", "cpu")) ||
          failed("reference backward", run(c, &want, FOVEA_BACKWARD, "reference", "cpu")) ||
          compare(c, &got, &want);
  }
  for (int i = 0; i < BUFFERS; ++i)
    free_buffer(buffer_list(&got) + i), free_buffer(buffer_list(&want) + i);
  return bad;
}

int main(int argc, char** argv) {
  const char* engine = argc > 1 ? argv[1] : "jit";
  const int on_host = strcmp(engine, "cpu") == 0;
  const char* why = on_host ? NULL : open_gpu();
  if (why != NULL) {
    printf("skipped: no GPU: %s\n", why);
    return 77;
  }
  if (!mentions(fovea_engines(), engine)) {
    printf("skipped: no engine %s in this build (engines: %s)\n", engine, fovea_engines());
    return 77;
  }
  int bad = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bad += run_case(&cases[i], engine, on_host ? "cpu" : "cuda:0") != 0;
  }
  printf("%d of %d failed\n", bad, (int)(sizeof cases / sizeof cases[0]));
  return bad != 0;
}
