/* The calls that julia_calls.c replays: programs, strides and gradients as Fovea.jl makes them.
 * bindings/julia/Fovea.jl/test/replay.jl reads this table and compares it with the package.
 * Included there only. */
#ifndef FOVEA_TESTS_GPU_JULIA_CASES_H
#define FOVEA_TESTS_GPU_JULIA_CASES_H

#include <fovea/fovea.h>
#include <stddef.h>
#include <stdint.h>

enum { B = 2, H = 4, HKV = 2, SQ = 96, SKV = 128, D = 64 };
enum { GAP = 8 }; /* keys of the array around a view that are not in it */

/* How a captured array comes: its extents in the order of the formula. */
typedef struct {
  const char* name;
  fovea_dtype type;
  int64_t extent[4];
  const char* strides; /* as in fovea_problem_config; "": dense, last index fastest */
  int first;           /* element of the buffer */
} Captured;

#define BIAS_EXTENTS {B, H, SQ, SKV}
static const Captured none = {"", FOVEA_F32, {0}, "", 0};
static const Captured slopes = {"slopes", FOVEA_F32, {H}, "", 0};
static const Captured bias = {"bias", FOVEA_F32, BIAS_EXTENTS, "", 0};
static const Captured learned = {"bias", FOVEA_BF16, BIAS_EXTENTS, "", 0};
/* Of an array (SKV + GAP, SQ, H, B). */
static const Captured view = {"bias", FOVEA_BF16, BIAS_EXTENTS, "bias:52224,13056,136,1", GAP};
static const Captured of_text = {"table", FOVEA_F32, {SKV, SQ, H, B}, "table:1,128,12288,49152", 0};
static const Captured mask = {"mask", FOVEA_BOOL, {SQ, SKV}, "", 0};

typedef struct {
  const char* name;
  const char* line;  /* the program, as bindings/julia prints it */
  const char* grads; /* of the backward */
  const Captured* captured;
  int strided;         /* q is every second head of an array with eight */
  int lengths;         /* kv_lengths are bound */
  int q_offset;        /* bound at the call */
  const char* refusal; /* part of what engine cudnn says; NULL: it must run there, too */
} Case;

#define CAUSAL "mask=\"q >= k\" "
#define SOFTCAP "mod=\"cap * tanh(score / cap)\" scalar=\"cap\" "
#define ALIBI "mod=\"score + slopes[h] * (k - q)\" mask=\"q >= k\" tensor=\"slopes:f32[H]\" "
#define BIAS "mod=\"score + bias[b, h, q, k]\" tensor=\"bias:f32[B,H,Sq,Skv]\" "
#define LEARNED "mod=\"score + bias[b, h, q, k]\" tensor=\"bias:bf16[B,H,Sq,Skv]\" "
#define OF_TEXT "mod=\"score + table[k, q, h, b]\" tensor=\"table:f32[Skv,Sq,H,B]\" "
#define MASK "mask=\"mask[q, k]\" tensor=\"mask:bool[Sq,Skv]\" "
static const Case cases[] = {
    {"plain", "", "q,k,v", &none, 0, 0, 0, NULL},
    {"causal", CAUSAL, "q,k,v", &none, 0, 0, 0, NULL},
    {"strided view", CAUSAL, "q,k,v", &none, 1, 0, 0, NULL},
    {"kv_lengths", "", "q,k,v", &none, 0, 1, 0, NULL},
    {"q_offset", CAUSAL, "q,k,v", &none, 0, 0, 32, NULL},
    {"softcap", SOFTCAP, "q,k,v", &none, 0, 0, 0, NULL},
    {"softcap with its gradient", SOFTCAP, "q,k,v,cap", &none, 0, 0, 0, "no gradients of scalars"},
    {"alibi", ALIBI, "q,k,v", &slopes, 0, 0, 0, NULL},
    {"bias", BIAS, "q,k,v", &bias, 0, 0, 0, NULL},
    {"bias with its gradient", LEARNED, "q,k,v,bias", &learned, 0, 0, 0, NULL},
    {"bias that is a view, with its gradient", LEARNED, "q,k,v,bias", &view, 0, 0, 0, NULL},
    {"table of a text", OF_TEXT, "q,k,v", &of_text, 0, 0, 0, NULL},
    {"mask of Bools", MASK, "q,k,v", &mask, 0, 0, 0, "no tensors of bool"},
};

#endif
