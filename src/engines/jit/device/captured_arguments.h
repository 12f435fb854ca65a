// What the host passes to the kernels for captured tensors: the one that summarizes them, and those
// that clear and write their gradients. Shared with the host's side, so it includes nothing.
#pragma once

namespace fovea::device {

constexpr int summary_block = 64;       // elements of a block
constexpr int summarize_threads = 128;  // of a block of threads: four blocks of elements

// A captured tensor and the index along which summarize.h cuts it into blocks.
struct SummarizeArguments {
  const void* data;
  unsigned* table;  // lowest and highest of each block: see Summary in engines/jit/words.h
  int rank;
  int along;            // the index that is cut into blocks
  long long extent[8];  // none of them 0
  long long stride[8];  // in elements
  long long blocks;     // all of the table's
  // Words that a kernel behind it wants to be 0: cleared on the way, which saves a launch.
  unsigned* cleared;
  long long cleared_words;
};

enum class SumsKept : int { Nowhere, F32, F64, Exact };  // Nowhere: nothing adds to them
enum class GradientType : int { F32, F16, BF16, F64 };

// A tensor's gradient: its sums lie one after the other, with the last of these indices fastest.
struct GradientWrite {
  const void* sums;
  void* gradient;
  SumsKept kept;
  GradientType type;
  int rank;                        // neighbours that lie dense are one index
  long long extent[8], stride[8];  // strides of the gradient, in elements
  long long count;
};

struct ClearArguments {
  void* data;        // aligned to 16 bytes
  long long pieces;  // of 16 bytes
};

constexpr int captured_threads = 256, captured_elements = 16;  // of a block; of a thread

// Such calls as words of ArgumentsOf, for a kernel that writes gradients beside what it does.
constexpr int gradient_write_words = sizeof(GradientWrite) / 8;

// Of exact_sum.h: nine digits and a word of flags.
constexpr int exact_digits = 9, exact_words = 10;

}  // namespace fovea::device
