/* Fovea: fused attention whose scores you can modify. This is the whole C interface: it includes
 * its parts evaluate.h, caching.h (plans in memory and in files) and parallel.h (many ranks).
 *
 * Rules that hold throughout:
 * - Every function that can fail returns a fovea_status. The text of the last failure of this
 *   thread is fovea_last_error(); it names the argument, its value and the rule it breaks.
 * - Structs begin with struct_size = sizeof(the struct); every other field may be zero, which means
 *   its default. A later version appends fields only.
 * - Handles are opaque, immutable, safe to share between threads, and destroyed by their _destroy;
 *   destroying NULL does nothing. Texts come in reports, which own them.
 * - No exception crosses, nothing aborts, nothing is printed unless FOVEA_VERBOSE asks for it.
 * - Sizes, strides and extents count elements. Positions are 0-based.
 *
 * docs/language.md has the formulas, docs/c.md a walk through one call.
 */
#ifndef FOVEA_FOVEA_H
#define FOVEA_FOVEA_H

#include <stddef.h>
#include <stdint.h>

#define FOVEA_VERSION_MAJOR 0
#define FOVEA_VERSION_MINOR 1
#define FOVEA_VERSION_PATCH 0

#if defined(__GNUC__)
#define FOVEA_API __attribute__((visibility("default")))
#else
#define FOVEA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statuses and errors ---- */

typedef enum fovea_status {
  FOVEA_OK = 0,
  FOVEA_INVALID_ARGUMENT = 1, /* the caller's mistake */
  FOVEA_UNSUPPORTED = 2,      /* no engine can; the text has every engine's reasons */
  FOVEA_DEVICE_ERROR = 3,     /* a library or a device failed */
  FOVEA_OUT_OF_MEMORY = 4,
  FOVEA_INTERNAL_ERROR = 5 /* a bug in Fovea */
} fovea_status;

/* "0.1.0"; static. */
FOVEA_API const char* fovea_version(void);

/* "FOVEA_OK" ...; static; "unknown status" for other numbers. */
FOVEA_API const char* fovea_status_name(fovea_status status);

/* The text of this thread's last failure, "" if none. Valid until this thread's next failure. */
FOVEA_API const char* fovea_last_error(void);

/* ---- texts that Fovea gives out ---- */

typedef struct fovea_report_s* fovea_report;

/* The text, ending in a zero byte; valid until the report is destroyed. "" for NULL. */
FOVEA_API const char* fovea_report_text(fovea_report report);
FOVEA_API void fovea_report_destroy(fovea_report report);

/* ---- element types and layouts ---- */

typedef enum fovea_dtype {
  FOVEA_DTYPE_DEFAULT = 0,
  FOVEA_F32 = 1,
  FOVEA_F16 = 2,
  FOVEA_BF16 = 3,
  FOVEA_F64 = 4,
  FOVEA_I32 = 5,
  FOVEA_I64 = 6,
  FOVEA_U8 = 7,
  FOVEA_BOOL = 8
} fovea_dtype;

typedef enum fovea_layout {
  FOVEA_BHSD = 0, /* [B, H, S, D] */
  FOVEA_BSHD = 1, /* [B, S, H, D] */
  FOVEA_SBHD = 2, /* [S, B, H, D] */
  FOVEA_THD = 3   /* packed: [T, H, D] with starts bound per call */
} fovea_layout;

/* ---- programs: formulas with what they capture ---- */

typedef struct fovea_program_s* fovea_program;

/* mod="..." mask="..." bprop="..." tensor="name:f32[H]" scalar="name=30"; all optional. */
FOVEA_API fovea_status fovea_program_parse(const char* line, fovea_program* program);
FOVEA_API void fovea_program_destroy(fovea_program program);

typedef enum fovea_text_form {
  FOVEA_TEXT_CANONICAL = 0, /* one line that parses back as the same program */
  FOVEA_TEXT_INDENTED = 1,  /* for people */
  FOVEA_TEXT_DOUBLE = 2     /* of a program alone: one line whose literals are doubles */
} fovea_text_form;

FOVEA_API fovea_status fovea_program_print(fovea_program program, fovea_text_form form,
                                           fovea_report* report);

/* 1 if both are the same formulas with the same declared types, whatever names they use; else 0. */
FOVEA_API int fovea_program_equal(fovea_program a, fovea_program b);

/* The derivative of mod as formulas, simplified. `by` is "score" or the name of a captured float
 * tensor or scalar: one formula, or, for a tensor, a line `load => formula` per distinct load.
 * NULL: all of them in paragraphs, for people. */
FOVEA_API fovea_status fovea_program_differentiate(fovea_program program, const char* by,
                                                   fovea_text_form form, fovea_report* report);

/* Compares a hand-written bprop with the derived one at random points. *error gets the largest
 * relative error; the report (may be NULL) says where. */
FOVEA_API fovea_status fovea_program_check_bprop(fovea_program program, uint64_t seed, int points,
                                                 double* error, fovea_report* report);

/* What a program captures, in canonical order. */
typedef struct fovea_capture_info {
  size_t struct_size;
  const char* name;    /* valid as long as the program */
  fovea_dtype dtype;   /* of a scalar: FOVEA_F32 or FOVEA_I32 */
  int32_t rank;        /* of a tensor */
  const char* extents; /* of a tensor: "H,129"; of a scalar: "" */
  const char* data;    /* what stood after '=' in the declaration of a tensor; "" if nothing */
  double value;        /* of a scalar: its default */
  int32_t has_value;
} fovea_capture_info;

FOVEA_API size_t fovea_program_tensor_count(fovea_program program);
FOVEA_API size_t fovea_program_scalar_count(fovea_program program);
FOVEA_API fovea_status fovea_program_tensor(fovea_program program, size_t i,
                                            fovea_capture_info* info);
FOVEA_API fovea_status fovea_program_scalar(fovea_program program, size_t i,
                                            fovea_capture_info* info);

/* Strides that are all zero mean "not given". If every stride really is zero (one element that
 * stands for all), one of them is written so. */
#define FOVEA_ZERO_STRIDE INT64_MIN

/* An array in memory: a captured tensor, or its gradient. */
typedef struct fovea_array {
  void* data;
  fovea_dtype dtype; /* 0: as declared */
  int32_t rank;      /* 0: rank and extents as declared */
  int64_t extent[8];
  int64_t stride[8]; /* all zero: dense, last index fastest */
} fovea_array;

/* Captured things are bound by name. */
typedef struct fovea_tensor_binding {
  const char* name;
  fovea_array array;
  fovea_array gradient; /* data NULL: not wanted; extents may be zero: those of the array */
} fovea_tensor_binding;

typedef struct fovea_scalar_binding {
  const char* name;
  double value;
  const void* device; /* not NULL: an f32 (f64 if q is f64) or i32 that the call reads there */
  void* gradient;     /* one f32 (f64 if q is f64); NULL: not wanted */
} fovea_scalar_binding;

#include "fovea/evaluate.h" /* fovea_program_evaluate, fovea_program_classify */

/* ---- problems: which attention ---- */

typedef struct fovea_problem_s* fovea_problem;

/* A tangent is how a forward and its backward change along a direction (docs/semantics.md). */
typedef enum fovea_direction { FOVEA_FORWARD, FOVEA_BACKWARD, FOVEA_TANGENT } fovea_direction;
typedef enum fovea_rng { FOVEA_RNG_PORTABLE = 0, FOVEA_RNG_ENGINE = 1 } fovea_rng;

typedef struct fovea_sizes {
  int64_t b, h, hkv, sq, skv, d, dv; /* hkv 0: h; dv 0: d */
  int64_t t_q, t_k;                  /* FOVEA_THD: rows of the packed tensors */
} fovea_sizes;

typedef struct fovea_problem_config {
  size_t struct_size;
  fovea_direction direction;
  fovea_layout layout;
  fovea_sizes sizes;
  fovea_dtype dtype;                                           /* of q, k, v; 0: f32 */
  fovea_dtype o_dtype, do_dtype, dq_dtype, dk_dtype, dv_dtype; /* 0: as q */
  /* By batch, head, position, feature; all zero: dense in the layout. */
  int64_t q_strides[4], k_strides[4], v_strides[4], o_strides[4];
  int64_t do_strides[4], dq_strides[4], dk_strides[4], dv_strides[4];
  fovea_program program; /* NULL: none; not kept */
  float scale;           /* 0: 1 / sqrt(d) */
  float dropout;
  fovea_rng rng;
  int32_t has_q_lengths, has_k_lengths; /* bound per call */
  int32_t sink;
  int32_t lse, row_max, max_logit; /* outputs of a forward */
  int32_t has_grad_lse;            /* input of a backward */
  const char* grads;               /* of a backward: "q,k,v,slopes,sink"; NULL: "q,k,v" */
  int32_t b_offset, h_offset, q_offset, k_offset;
  int32_t has_q_offsets, has_k_offsets; /* one per sequence, bound per call */
  int32_t h_global;                     /* what the leaf H is; 0: h */
  int32_t deterministic, capture, strict;
  const void* reserved[8]; /* for fp8 scales: must be NULL */
  /* How captured tensors will lie: "bias:1,64,4096 slopes:2", a stride by dimension; those that are
   * not named: dense. Engines that bake strides (cudnn) need it; others take what is bound. */
  const char* tensor_strides;
  int32_t device_values; /* scale, scalars and offsets of h, q, k may be bound on the device */
  double scale_f64;      /* not 0: instead of scale; kept as it is for f64 tensors, else rounded */
  int32_t verify; /* the first call of its plan is compared with the reference engine, as with
                     FOVEA_VERIFY=first */
} fovea_problem_config;

FOVEA_API fovea_status fovea_problem_create(const fovea_problem_config* config,
                                            fovea_problem* problem);

/* From a problem line. direction=both gives the forward of the pair; *backward (may be NULL) gets
 * the other, or NULL if the line has one direction. */
FOVEA_API fovea_status fovea_problem_parse(const char* line, fovea_problem* problem,
                                           fovea_problem* backward);
FOVEA_API void fovea_problem_destroy(fovea_problem problem);

/* What stands after `key=` in a line, without quotes: qlens, seed ... "" if it has no such key. */
FOVEA_API fovea_status fovea_line_value(const char* line, const char* key, fovea_report* value);

/* "; did you mean 'x'?" with the nearest of candidates that spaces separate; "" if none is near. */
FOVEA_API fovea_status fovea_suggest(const char* word, const char* candidates, fovea_report* text);

/* The problem's program; to be destroyed. */
FOVEA_API fovea_status fovea_problem_program(fovea_problem problem, fovea_program* program);

/* The canonical line; fovea_problem_parse gives back an equal problem. */
FOVEA_API fovea_status fovea_problem_print(fovea_problem problem, fovea_report* report);
FOVEA_API int fovea_problem_equal(fovea_problem a, fovea_problem b);

/* The problem as a config whose pointers live as long as it. `config` needs struct_size. */
FOVEA_API fovea_status fovea_problem_describe(fovea_problem problem, fovea_problem_config* config);

/* ---- plans ---- */

typedef struct fovea_plan_s* fovea_plan;

typedef struct fovea_plan_options {
  size_t struct_size;
  const char* engine; /* NULL: FOVEA_ENGINE, else the fastest; the reference engine only by name */
  const char* device; /* NULL: "cpu"; "cuda:0", a built-in description ("h200") or a JSON file */
  fovea_problem partner; /* of a training pair, to choose one engine for both; NULL: a line's own */
} fovea_plan_options;

typedef enum fovea_answer {
  FOVEA_NO = 0,
  FOVEA_EXPECTED = 1, /* by the engine's rules */
  FOVEA_PROVEN = 2    /* by building it, or by the library's own check */
} fovea_answer;

/* Can it run? Builds nothing. *answer is the best verdict; the report (may be NULL) names the
 * engine, or every engine's reasons. options may be NULL. */
FOVEA_API fovea_status fovea_supported(fovea_problem problem, const fovea_plan_options* options,
                                       fovea_answer* answer, fovea_report* report);

typedef enum fovea_explain_flags {
  FOVEA_EXPLAIN_JSON = 1,
  FOVEA_EXPLAIN_PROVE = 2 /* build plans to prove support */
} fovea_explain_flags;

/* Every engine's verdict, as a table or as JSON. */
FOVEA_API fovea_status fovea_explain(fovea_problem problem, const fovea_plan_options* options,
                                     uint32_t flags, fovea_report* report);

/* A plan, from the cache or built. options may be NULL. */
FOVEA_API fovea_status fovea_plan_create(fovea_problem problem, const fovea_plan_options* options,
                                         fovea_plan* plan);
FOVEA_API void fovea_plan_destroy(fovea_plan plan);
FOVEA_API const char* fovea_plan_engine(fovea_plan plan); /* its name; lives with the plan */

/* Bytes of workspace for calls of these sizes (NULL: the problem's). Alignment: 64 bytes. */
FOVEA_API fovea_status fovea_plan_workspace(fovea_plan plan, const fovea_sizes* sizes,
                                            size_t* bytes);

typedef struct fovea_tensor {
  void* data;
  int64_t stride[4]; /* all zero: the problem's */
} fovea_tensor;

/* A value of this call. Zero: the problem's own. */
typedef struct fovea_f32_value {
  float value;
  int32_t is_set;
  const float* device; /* not NULL: read there when the call runs */
} fovea_f32_value;
typedef struct fovea_i32_value {
  int32_t value;
  int32_t is_set;
  const int32_t* device;
} fovea_i32_value;
typedef struct fovea_u64_value {
  uint64_t value;
  const uint64_t* device;
} fovea_u64_value;

/* The threads of an engine that works on the CPU. run() calls task(context, i) once for each
 * i < count and returns when all are done. run NULL: Fovea's own, at most `threads` of them. */
typedef struct fovea_executor {
  size_t struct_size;
  void* self;
  int32_t threads;
  void (*run)(void* self, size_t count, void (*task)(void* context, size_t i), void* context);
} fovea_executor;

typedef struct fovea_bindings {
  size_t struct_size;
  const fovea_sizes* sizes; /* NULL: the problem's */
  fovea_tensor q, k, v, o;
  fovea_tensor grad_o, grad_q, grad_k, grad_v;
  void* lse;                /* [B, H, Sq], packed [H, T]; f32 (f64 if q is f64), dense */
  const void* grad_lse;     /* the same */
  void* row_max;            /* the same */
  void* max_logit;          /* [H] */
  const void* sink;         /* [H] */
  void* grad_sink;          /* [H] */
  const int32_t* q_lengths; /* [B] */
  const int32_t* k_lengths;
  const int32_t* q_starts; /* [B + 1], packed */
  const int32_t* k_starts;
  const int32_t* q_offsets; /* [B] */
  const int32_t* k_offsets;
  const fovea_tensor_binding* tensors;
  size_t tensor_count;
  const fovea_scalar_binding* scalars;
  size_t scalar_count;
  fovea_f32_value scale;
  fovea_u64_value seed, offset; /* of dropout; only the low 32 bits of offset count */
  fovea_i32_value b_offset, h_offset, q_offset, k_offset;
  void* workspace;
  size_t workspace_bytes;
  void* stream;                   /* a CUstream */
  const fovea_executor* executor; /* NULL: Fovea's own threads */
  /* Of a tangent. Dense in the problem's layout, in the types of q, k, v, o, lse and sink. */
  const void* tangent_q;
  const void* tangent_k;
  const void* tangent_v;
  const void* tangent_sink;
  void* tangent_o; /* written, as is the next */
  void* tangent_lse;
  /* Of captured things, by name, as arrays and values; those not named have none. */
  const fovea_tensor_binding* tensor_tangents;
  size_t tensor_tangent_count;
  const fovea_scalar_binding* scalar_tangents;
  size_t scalar_tangent_count;
  double scale_f64; /* as in the config */
} fovea_bindings;

/* Runs a plan. Nothing is written if the bindings are refused. */
FOVEA_API fovea_status fovea_plan_run(fovea_plan plan, const fovea_bindings* bindings);

/* Plan and run in one call, for a problem of that direction. To learn the size of the workspace,
 * call with workspace_bytes and without a workspace in the bindings (which may be NULL): nothing is
 * run. Otherwise pass NULL for workspace_bytes. */
FOVEA_API fovea_status fovea_forward(fovea_problem problem, const fovea_plan_options* options,
                                     const fovea_bindings* bindings, size_t* workspace_bytes);
FOVEA_API fovea_status fovea_backward(fovea_problem problem, const fovea_plan_options* options,
                                      const fovea_bindings* bindings, size_t* workspace_bytes);

/* ---- the process ---- */

/* Plans in memory and in files: fovea_cache_*, fovea_bundle_*, fovea_disk_cache_*. */
#include "fovea/caching.h"
#include "fovea/parallel.h" /* fovea_parallel_plan */

/* What was found on this machine and what was not, with what to do about it. */
FOVEA_API fovea_status fovea_doctor(fovea_report* report);

/* Names of all engines, best first, separated by spaces; static. */
FOVEA_API const char* fovea_engines(void);

/* Gets every line that FOVEA_VERBOSE asks for instead of standard error; NULL: back to that. */
FOVEA_API void fovea_set_log(void (*log)(void* context, const char* line), void* context);

#ifdef __cplusplus
}
#endif
#endif
