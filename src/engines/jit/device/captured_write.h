// After a backward: sums of captured gradients in the gradients' types and strides.
#pragma once

#include "captured_arguments.h"
#include "element.h"
#include "exact_sum.h"

namespace fovea::device {

FOVEA_DEVICE double sum_of(const GradientWrite& call, long long i) {
  switch (call.kept) {
    case SumsKept::Nowhere: break;
    case SumsKept::F32: return static_cast<double>(static_cast<const float*>(call.sums)[i]);
    case SumsKept::F64: return static_cast<const double*>(call.sums)[i];
    case SumsKept::Exact:
      return exact_value(static_cast<const unsigned long long*>(call.sums) + i * exact_words);
  }
  return 0;
}

FOVEA_DEVICE void write_gradient(const GradientWrite& call, long long at, double x) {
  switch (call.type) {
    case GradientType::F32: return write_element<F32>(call.gradient, at, static_cast<float>(x));
    case GradientType::F16: return write_element<F16>(call.gradient, at, static_cast<float>(x));
    case GradientType::BF16: return write_element<BF16>(call.gradient, at, static_cast<float>(x));
    case GradientType::F64: static_cast<double*>(call.gradient)[at] = x;
  }
}

FOVEA_DEVICE long long gradient_offset(const GradientWrite& call, long long i) {
  if (call.rank == 1) return i * call.stride[0];
  long long at = 0;
  for (int dim = call.rank - 1; dim >= 0; --dim) {
    const long long above = i / call.extent[dim];
    at += (i - above * call.extent[dim]) * call.stride[dim];
    i = above;
  }
  return at;
}

// Four f32 sums to a dense gradient of another type than f64.
FOVEA_DEVICE void write_four(const GradientWrite& call, long long first, const Floats4& x) {
  if (call.type == GradientType::F32) {
    write_pair<F32>(call.gradient, first, x.x, x.y);
    write_pair<F32>(call.gradient, first + 2, x.z, x.w);
    return;
  }
  const bool half = call.type == GradientType::F16;
  const Words2 words{half ? pack(F16{}, x.x, x.y) : pack(BF16{}, x.x, x.y),
                     half ? pack(F16{}, x.z, x.w) : pack(BF16{}, x.z, x.w)};
  *reinterpret_cast<Words2*>(static_cast<unsigned short*>(call.gradient) + first) = words;
}

FOVEA_DEVICE void captured_write(const GradientWrite& call) {
  constexpr int all = captured_threads * captured_elements, fours = captured_elements / 4;
  const long long first = static_cast<long long>(block_x()) * all;
  const bool dense = call.kept == SumsKept::F32 && call.rank == 1 && call.stride[0] == 1 &&
                     call.type != GradientType::F64 && first + all <= call.count &&
                     reinterpret_cast<unsigned long long>(call.gradient) % 8 == 0;
  if (!dense) {
    for (int i = thread_index(); i < all && first + i < call.count; i += captured_threads) {
      write_gradient(call, gradient_offset(call, first + i), sum_of(call, first + i));
    }
    return;
  }
  const long long own = first + 4 * thread_index();
  Floats4 x[fours];
  FOVEA_UNROLL for (int i = 0; i < fours; ++i) {
    x[i] = reinterpret_cast<const Floats4*>(static_cast<const float*>(call.sums) +
                                            own)[i * captured_threads];
  }
  FOVEA_UNROLL for (int i = 0; i < fours; ++i) {
    write_four(call, own + 4 * i * captured_threads, x[i]);
  }
}

// Small gradients, written by a kernel of the backward beside its own work, which saves a launch:
// `count` of them, whose arguments lie among the kernel's words. By all threads of its grid.
template <int count>
FOVEA_DEVICE void write_captured(const long long* words) {
  if constexpr (count > 0) {
    const auto* const calls = reinterpret_cast<const GradientWrite*>(words);
    const long long own = static_cast<long long>(block_x()) * block_threads() + thread_index();
    const long long threads = static_cast<long long>(grid_x()) * block_threads();
    FOVEA_NO_UNROLL for (int c = 0; c < count; ++c) {
      const GradientWrite& call = calls[c];
      FOVEA_NO_UNROLL for (long long i = own; i < call.count; i += threads) {
        write_gradient(call, gradient_offset(call, i), sum_of(call, i));
      }
    }
  }
}

}  // namespace fovea::device
