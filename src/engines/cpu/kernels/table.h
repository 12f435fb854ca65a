// What the kernels of one instruction set offer, as a table of functions: the only way to call
// them. Uses only plain types, since kernel sources, which use nothing of the C++ library, read
// this header.
//
// Every matrix here is stored in panels: column c of row r is at data[(c / width * rows + r) *
// width + c % width], with `width` the table's panel_width and `rows` the allocated rows. One
// layout serves as either factor of a product and as its result, so nothing is packed twice.
#pragma once

#include <stdint.h>

namespace fovea::cpu {

// A matrix in panels.
struct Panels {
  float* data = nullptr;
  int64_t rows = 0;  // allocated, of each panel
};

// A matrix of the caller: rows `row_step` elements apart, columns `column_step`.
enum class StoredType : uint8_t { F32, F16, BF16 };
struct Strided {
  void* data = nullptr;
  int64_t row_step = 0, column_step = 1;
  StoredType type = StoredType::F32;
};

// C = A B, C += A B or C = diag(scale) C + A B over rows [0, m) and columns [0, n) of C, summed
// over [k_first, k_last). Sums run over k in order, one after the other, whatever m and n are.
enum class Into : uint8_t { Set, Add, Rescale };
struct Product {
  Panels a, b, c;
  int m = 0, n = 0, k_first = 0, k_last = 0;
  bool a_transposed = false;  // A(i, k) is a's row k, column i
  Into into = Into::Set;
  const float* scale = nullptr;  // Rescale: one per row
  bool skip_zeros = false;       // a zero in A times anything is zero: for B with NaN or Inf in it
  // Memory that the next product will read, to be fetched meanwhile.
  const float* fetch = nullptr;
  int64_t fetch_floats = 0;
  float factor = 1;  // of pairs, into Set: what the product is multiplied with
};

// Scores to probabilities, one pass of the online softmax over rows [first, last) and columns
// [0, columns) of a tile. In place.
struct SoftmaxTile {
  Panels scores;
  int first = 0, last = 0, columns = 0;
  const uint64_t* keep = nullptr;  // null: all kept; else [row][columns / 64 rounded up]
  int keep_words = 0;              // words of a row
  // Scores are these plus shift[row] (null: 0), a double: what is the same for a row of the tile is
  // not added to each score, where it would push out their last digits.
  const double* shift = nullptr;
  float* row_max = nullptr;       // [rows], updated
  float* reference = nullptr;     // [rows], updated: row_sum adds up 2^(s log2 e - reference)
  double* shifted_max = nullptr;  // instead of these two, if there are shifts
  double* shifted_reference = nullptr;
  float* row_sum = nullptr;  // [rows], updated
  float* rescale = nullptr;  // [rows], what the sums so far are multiplied with
};

// The same for the backward: from scores and lse to P and dS.
struct SoftmaxBackward {
  const float* scores = nullptr;   // strip: [rows][panel_width], modified scores
  const float* grad_p = nullptr;   // strip: dO V^T
  float* p = nullptr;              // strip: what dV is summed with
  float* grad = nullptr;           // strip: p (dp - delta + dlse)
  int rows = 0, columns = 0;       // columns <= panel_width
  const uint64_t* keep = nullptr;  // null: all; else word of row r at keep[r * keep_words]
  int keep_words = 0, keep_shift = 0;
  const double* lse = nullptr;  // [rows], of the scores as they are here; -inf: nothing in the row
  const float* row_term = nullptr;  // [rows], dlse - delta
  const uint64_t* drop = nullptr;   // null: no dropout; else bits of what is not dropped, as keep
  float drop_scale = 1;
  uint64_t* live = nullptr;  // [rows]: out, bits of the scores that are kept and not -inf
};

// Rows [first, last) and columns [column_first, column_last).
struct MatrixPart {
  int first = 0, last = 0, column_first = 0, column_last = 0;

  int rows() const { return last - first; }
  int columns() const { return column_last - column_first; }
};

// One value of the formulas where a strip is: at data[row * row_step + column * column_step], in
// cells of 32 bits: f32, i32, or bool as 0 and -1. Rows and columns count from the strip's first.
struct StripValue {
  const void* data = nullptr;
  int64_t row_step = 0, column_step = 0;
  const float* f32() const { return static_cast<const float*>(data); }
  const int32_t* i32() const { return static_cast<const int32_t*>(data); }
};

struct DropoutRow {
  uint64_t seed = 0;
  uint32_t offset = 0, bh = 0, q = 0, k = 0;  // the coordinates of the first column
  uint64_t threshold = 0;
};

struct StripKernels;  // kernels/strip_table.h

// Products of bf16. A cell of a matrix then holds two numbers that are neighbours along the sum: k
// counts cells, the first number of a cell in its low half. Matrices are read as their type BF16
// and kept as it, so nothing of them is lost; P and dS are rounded to it.
struct PairKernels {
  void (*multiply)(const Product&);
  // As KernelTable's pack and pack_transposed: neighbours are columns of `from`.
  bool (*pack)(const Strided& from, int rows, int columns, Panels to, int padded_rows);
  bool (*pack_transposed)(const Strided& from, int rows, int columns, Panels to, int padded_rows);
  // Neighbours are rows of `from`: row r of `to` has rows 2 r and 2 r + 1.
  bool (*pack_rows)(const Strided& from, int rows, int columns, Panels to, int padded_rows);
  // From f32 to pairs of columns, and to pairs of rows: rows [first, last), columns
  // [column_first, column_last) rounded up to whole vectors. `first` is even for narrow_rows, and
  // the row behind an odd last one counts as zeros.
  void (*narrow)(Panels from, const MatrixPart& part, Panels to);
  void (*narrow_rows)(Panels from, const MatrixPart& part, Panels to);
};

struct KernelTable {
  const char* isa;
  int lanes;        // floats in a vector
  int panel_width;  // a multiple of lanes, at most 64
  int strip_rows;

  void (*multiply)(const Product&);

  // rows x columns of `from`, times `factor`, into panels; columns up to the panel's end and rows
  // up to `padded_rows` become zero. Returns whether all of it is finite.
  bool (*pack)(const Strided& from, int rows, int columns, float factor, Panels to,
               int padded_rows);
  // The same, transposed: row r of `from` becomes column r; rows past the end become zero columns.
  bool (*pack_transposed)(const Strided& from, int rows, int columns, Panels to, int padded_rows);
  bool (*all_finite)(const float* numbers, int64_t count);
  // Row r of panels, times factor[r] (null: 1), to the caller's memory.
  void (*unpack)(Panels from, int rows, int columns, const float* factor, const Strided& to);

  void (*softmax)(const SoftmaxTile&);
  void (*softmax_backward)(const SoftmaxBackward&);

  // A value as a strip; 0 if live (null: all are) has no bit.
  void (*spread)(const StripValue& value, int rows, int columns, const uint64_t* live, float* to);

  // Adds the columns of a strip's rows, x times a value of a formula, to sums[row][lane]. An x of 0
  // adds nothing, whatever the value is. The other one: two strips as they are.
  void (*add_rows)(const float* x, int rows, int columns, const StripValue& factor, float* sums);
  void (*add_two_rows)(const float* x, const float* y, int rows, int columns, float* of_x,
                       float* of_y);

  // Bits of what is not dropped, for `columns` scores of one row.
  void (*dropout)(const DropoutRow&, int columns, uint64_t* bits);
  // scores[row][c] *= bit ? scale : 0
  void (*apply_dropout)(Panels p, int row, int columns, const uint64_t* bits, float scale);

  // sum over c of a[c] * b[c] for rows of panels
  void (*row_dots)(Panels a, Panels b, int rows, int columns, float* out);
  // to[i] = from[0][i] + from[1][i] + ..., in order, `terms` of them; `to` may be one of them.
  // `count`: whole panels.
  void (*add_up)(float* to, const float* const* from, int terms, int64_t count);

  const StripKernels* strips;
  const PairKernels* pairs;  // null: this instruction set has none
};

extern const KernelTable scalar_kernels;
extern const KernelTable neon_kernels;
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
extern const KernelTable avx512_bf16_kernels;

}  // namespace fovea::cpu
