// The vector loops that the strip interpreter runs, as a table per instruction set. Plain types
// alone: read by kernel sources and by the interpreter.
//
// A strip is `rows` rows of panel_width cells of 32 bits: f32, i32, or bool as 0 and -1. A loop
// always computes whole rows; what stands beyond the last column is undefined. An operand is a
// vector (cells of a row lie next to one another) or a splat (one cell for the whole row).
#pragma once

#include <stdint.h>

namespace fovea::cpu {

// The operations of the language, in the order of ir::Op, then those made of several.
enum class StripOp : uint8_t {
#define FOVEA_OP(name, text, form, signature, flags) name,
#include "ir/ops.def"
#undef FOVEA_OP
  Copy,            // x
  MulAdd,          // a b + c
  MulSub,          // a b - c
  NegMulAdd,       // c - a b
  TanhOfQuotient,  // tanh(x / u)
  SoftCap,         // tanh(x / u) v
  MulMulDiv,       // (a u) b / v
  MulTanhSlope,    // (a u) (1 - t t) / v
  Line,            // rest + mode * k, i32, from (k, rest)
  LineToFloat,     // f32(rest + mode * k)
  AddLine,         // x + u f32(rest + mode * k), from (x, u, k, rest)
  AddAbsLine,      // x + u |f32(rest + mode * k)|
  SubLine,         // x - u f32(rest + mode * k)
  SubAbsLine,      // x - u |f32(rest + mode * k)|
  SelectLess,      // i32 a < b ? x : y
  SelectLessEqual,
  SelectEqual,
  AndLess,  // i32 a < b, and the bool x
  AndLessEqual,
  AndEqual,
};
inline constexpr int strip_op_count = static_cast<int>(StripOp::AndEqual) + 1;

struct StripCall {
  void* out;          // rows panel_width cells apart; may be an operand's own memory
  const void* in[4];  // the first cell of each operand
  int64_t step[4];    // cells from one row of it to the next
  int rows;
  int mode;  // what the operation says
};
using StripKernel = void (*)(const StripCall&);

// Bit i of a kernel's kinds: operand i is a splat.
inline constexpr int strip_kind_count = 16;

// Rows of a captured tensor: column c of row r is element at[r] + c * step. Writes whole panels,
// zeros beyond `columns`; reads what it was asked for and not a byte more.
struct StripRows {
  void* out;
  const void* data;
  const int64_t* at;
  int rows, columns;
  int64_t step;
};

// Elements of one captured tensor, anywhere: data[at[i]].
struct StripPoints {
  void* out;
  const void* data;
  const int64_t* at;
  int count;
};

// One index of a captured tensor is a vector: element row_at[r] + clamp(index) * stride, index
// clamped to [0, last]. All of that fits in 32 bits. For elements of 32 bits.
struct StripGather {
  void* out;
  const int32_t* index;
  int64_t index_step;  // cells from one row of indices to the next
  const void* data;
  const int64_t* row_at;
  int32_t stride, last;
  int rows, columns;
};

inline constexpr int strip_dtype_count = 8;  // in the order of fovea::DType

struct StripKernels {
  StripKernel fast[strip_op_count][strip_kind_count];   // null if it does not occur
  StripKernel exact[strip_op_count][strip_kind_count];  // as ir/arith, bit for bit
  void (*rows[strip_dtype_count])(const StripRows&);
  void (*points[strip_dtype_count])(const StripPoints&);
  void (*gather)(const StripGather&);
  // first, first + 1, ... (wraps); writes whole panels.
  void (*sequence)(int32_t* out, int32_t first, int count);
  // One bit per column of a vector or splat of bools, row r's at bits[r * words], from bit `shift`
  // on: added to what is there.
  void (*bits)(const StripCall& value, bool splat, int columns, uint64_t* bits, int64_t words,
               int shift);
};

}  // namespace fovea::cpu
