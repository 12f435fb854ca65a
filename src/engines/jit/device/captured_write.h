// After a backward: sums of captured gradients in the gradients' types and strides.
#pragma once

#include "captured_call.h"
#include "element.h"
#include "exact_sum.h"

namespace fovea::device {

FOVEA_DEVICE double sum_of(const CapturedCall& call, long long i) {
  switch (call.kept) {
    case SumsKept::Nowhere: break;
    case SumsKept::F32: return static_cast<double>(static_cast<const float*>(call.sums)[i]);
    case SumsKept::F64: return static_cast<const double*>(call.sums)[i];
    case SumsKept::Exact:
      return exact_value(static_cast<const unsigned long long*>(call.sums) + i * exact_words);
  }
  return 0;
}

FOVEA_DEVICE void write_gradient(const CapturedCall& call, long long at, double x) {
  switch (call.type) {
    case GradientType::F32: return write_element<F32>(call.gradient, at, static_cast<float>(x));
    case GradientType::F16: return write_element<F16>(call.gradient, at, static_cast<float>(x));
    case GradientType::BF16: return write_element<BF16>(call.gradient, at, static_cast<float>(x));
    case GradientType::F64: static_cast<double*>(call.gradient)[at] = x;
  }
}

FOVEA_DEVICE long long gradient_offset(const CapturedCall& call, long long i) {
  if (call.rank == 1) return i * call.stride[0];
  long long at = 0;
  for (int dim = call.rank - 1; dim >= 0; --dim) {
    const long long above = i / call.extent[dim];
    at += (i - above * call.extent[dim]) * call.stride[dim];
    i = above;
  }
  return at;
}

// Four f32 sums to a dense gradient at once; false: they do not lie so.
FOVEA_DEVICE bool write_four(const CapturedCall& call, long long first) {
  const bool dense = call.kept == SumsKept::F32 && call.rank == 1 && call.stride[0] == 1 &&
                     first + 3 < call.count &&
                     reinterpret_cast<unsigned long long>(call.gradient) % 8 == 0;
  if (!dense || call.type == GradientType::F64) return false;
  const Floats4 x = *reinterpret_cast<const Floats4*>(static_cast<const float*>(call.sums) + first);
  if (call.type == GradientType::F32) {
    write_pair<F32>(call.gradient, first, x.x, x.y);
    write_pair<F32>(call.gradient, first + 2, x.z, x.w);
    return true;
  }
  const bool half = call.type == GradientType::F16;
  const Words2 words{half ? pack(F16{}, x.x, x.y) : pack(BF16{}, x.x, x.y),
                     half ? pack(F16{}, x.z, x.w) : pack(BF16{}, x.z, x.w)};
  *reinterpret_cast<Words2*>(static_cast<unsigned short*>(call.gradient) + first) = words;
  return true;
}

FOVEA_DEVICE void captured_write(const CapturedCall& call) {
  const long long first =
      (static_cast<long long>(block_x()) * captured_threads + thread_index()) * captured_elements;
  if (write_four(call, first)) return;
  for (long long i = first; i < first + captured_elements && i < call.count; ++i) {
    write_gradient(call, gradient_offset(call, i), sum_of(call, i));
  }
}

}  // namespace fovea::device
