// What the kernels that clear and write the gradients of captured tensors are told, by the host.
#pragma once

namespace fovea::device {

enum class SumsKept : int { Nowhere, F32, F64, Exact };  // Nowhere: nothing adds to them
enum class GradientType : int { F32, F16, BF16, F64 };

// A tensor's gradient: its sums lie one after the other, with the last of these indices fastest.
struct CapturedCall {
  const void* sums;
  void* gradient;
  SumsKept kept;
  GradientType type;
  int rank;                        // neighbours that lie dense are one index
  long long extent[8], stride[8];  // strides of the gradient, in elements
  long long count;
};

struct ClearCall {
  void* data;        // aligned to 16 bytes
  long long pieces;  // of 16 bytes
};

constexpr int captured_threads = 256, captured_elements = 16;  // of a block; of a thread

// Such calls as words of ArgumentsOf, for a kernel that writes gradients beside what it does.
constexpr int captured_call_words = sizeof(CapturedCall) / 8;

// Of exact_sum.h: nine digits and a word of flags.
constexpr int exact_digits = 9, exact_words = 10;

}  // namespace fovea::device
