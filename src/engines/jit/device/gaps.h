// Rows of packed tensors that belong to no sequence: outputs are zero there, lse and row_max -inf.
// One block for the rows before each sequence, and one for those after the last.
//
// Config has: Output, or backward, GradQ, GradK and GradV with want_q, want_k and want_v.
#pragma once

#include "arguments.h"
#include "element.h"
#include "primitives.h"

namespace fovea::device {

struct Gap {
  long long first, end;
};

// Before sequence i of `count`: from where the one before it ends to where it begins.
FOVEA_DEVICE Gap gap_before(const int* starts, const int* lengths, int i, int count,
                            long long rows) {
  Gap gap{0, i < count ? starts[i] : rows};
  if (i > 0) gap.first = lengths != nullptr ? starts[i - 1] + lengths[i - 1] : starts[i];
  return gap;
}

template <class Element>
FOVEA_DEVICE void clear_rows(const TensorArgument& to, const Gap& gap, int heads, int features) {
  const long long in_row = static_cast<long long>(heads) * features;
  for (long long i = thread_index(); i < (gap.end - gap.first) * in_row; i += block_threads()) {
    const long long row = gap.first + i / in_row, head = i % in_row / features;
    write_element<Element>(to.data, row * to.position + head * to.head + i % features * to.feature,
                           0.0f);
  }
}

FOVEA_DEVICE void clear_row_values(float* to, const Gap& gap, int heads, long long rows) {
  if (to == nullptr) return;
  for (long long i = thread_index(); i < (gap.end - gap.first) * heads; i += block_threads()) {
    to[i % heads * rows + gap.first + i / heads] = -infinity();
  }
}

template <class Config>
FOVEA_DEVICE void gaps(const Arguments& a) {
  const CallArguments& call = a.call;
  const int i = block_x();
  const Gap queries = gap_before(call.q_starts, call.q_lengths, i, call.b, call.rows_q);
  if constexpr (Config::backward) {
    const Gap keys = gap_before(call.k_starts, call.k_lengths, i, call.b, call.rows_k);
    if constexpr (Config::want_q) {
      clear_rows<typename Config::GradQ>(call.grad_q, queries, call.h, call.d);
    }
    if constexpr (Config::want_k) {
      clear_rows<typename Config::GradK>(call.grad_k, keys, call.hkv, call.d);
    }
    if constexpr (Config::want_v) {
      clear_rows<typename Config::GradV>(call.grad_v, keys, call.hkv, call.dv);
    }
  } else {
    clear_rows<typename Config::Output>(call.o, queries, call.h, call.dv);
    clear_row_values(call.lse, queries, call.h, call.rows_q);
    clear_row_values(call.row_max, queries, call.h, call.rows_q);
  }
}

}  // namespace fovea::device
