// The functions of src/engines/jit/device/primitives.h for the host's compiler: kernels include
// this header instead if FOVEA_HOST_PRIMITIVES names it. Functions that need other threads or
// shared memory call the Machine, with the line that calls them. The others are plain arithmetic.
#pragma once

// On a GPU these functions need no header. The macro leaves out libstdc++'s part of <math.h>, which
// takes half of the time that a kernel takes to compile.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS

#include "machine.h"

#define FOVEA_DEVICE inline
#define FOVEA_DEVICE_CALL inline
#define FOVEA_UNROLL
#define FOVEA_NO_UNROLL
#define FOVEA_WHERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define __global__ __attribute__((visibility("default")))
#define __grid_constant__
#define __launch_bounds__(...)

namespace fovea::device {

using on_host::Meeting;
using Shared = unsigned;

inline const on_host::Machine* machine = nullptr;

// --- where this thread is ---
FOVEA_DEVICE int thread_index() { return machine->place->thread; }
FOVEA_DEVICE int block_threads() { return machine->place->threads; }
FOVEA_DEVICE int block_x() { return machine->place->block_x; }
FOVEA_DEVICE int block_y() { return machine->place->block_y; }
FOVEA_DEVICE int block_z() { return machine->place->block_z; }
FOVEA_DEVICE int grid_x() { return machine->place->grid_x; }
FOVEA_DEVICE int lane_index() { return machine->place->thread & 31; }

FOVEA_DEVICE void await_earlier_kernels() {}  // one is launched when the other has ended

// --- a warp ---
FOVEA_DEVICE unsigned ballot(bool value, FOVEA_WHERE) {
  on_host::Vote vote{value, 0};
  machine->meet(Meeting::Ballot, &vote, {file, line});
  return vote.result;
}
FOVEA_DEVICE bool any_in_warp(bool value, FOVEA_WHERE) {
  on_host::Vote vote{value, 0};
  machine->meet(Meeting::Any, &vote, {file, line});
  return vote.result != 0;
}
FOVEA_DEVICE void sync_warp(FOVEA_WHERE) {
  machine->meet(Meeting::SyncWarp, nullptr, {file, line});
}
template <class T>
FOVEA_DEVICE T shuffled(Meeting kind, T value, int lane, on_host::Where where) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  on_host::Shuffled operand{0, 0, lane};
  __builtin_memcpy(&operand.value, &value, sizeof(T));
  machine->meet(kind, &operand, where);
  __builtin_memcpy(&value, &operand.result, sizeof(T));
  return value;
}
template <class T>
FOVEA_DEVICE T shuffle_xor(T value, int mask, FOVEA_WHERE) {
  return shuffled(Meeting::ShuffleXor, value, mask, {file, line});
}
template <class T>
FOVEA_DEVICE T shuffle(T value, int lane, FOVEA_WHERE) {
  return shuffled(Meeting::Shuffle, value, lane, {file, line});
}
template <class T>
FOVEA_DEVICE T shuffle_down(T value, int by, FOVEA_WHERE) {
  const int lane = lane_index() + by < 32 ? lane_index() + by : lane_index();
  return shuffled(Meeting::Shuffle, value, lane, {file, line});
}

// --- a block ---
FOVEA_DEVICE void sync_block(FOVEA_WHERE) {
  machine->meet(Meeting::SyncBlock, nullptr, {file, line});
}
FOVEA_DEVICE bool any_in_block(bool value, FOVEA_WHERE) {
  on_host::Vote vote{value, 0};
  machine->meet(Meeting::AnyInBlock, &vote, {file, line});
  return vote.result != 0;
}

// --- shared memory ---
struct alignas(8) Words2 {
  unsigned x, y;
};
struct alignas(8) Floats2 {
  float x, y;
};
struct alignas(16) Words4 {
  unsigned x, y, z, w;
};
struct alignas(16) Floats4 {
  float x, y, z, w;
};

template <class T>
FOVEA_DEVICE T load_shared(Shared at, FOVEA_WHERE) {
  T value;
  machine->load(&value, at, sizeof(T), {file, line});
  return value;
}
template <class T>
FOVEA_DEVICE void store_shared(Shared at, T value, FOVEA_WHERE) {
  machine->store(at, &value, sizeof(T), {file, line});
}
FOVEA_DEVICE void add_shared(Shared at, float value, FOVEA_WHERE) {
  machine->add(at, value, {file, line});
}

// --- asynchronous copies ---
template <int bytes>
FOVEA_DEVICE void copy_async(Shared to, const void* from, int valid, FOVEA_WHERE) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
  machine->copy(to, from, bytes, valid, {file, line});
}
FOVEA_DEVICE void copy_async_if(bool really, Shared to, const void* from, FOVEA_WHERE) {
  if (really) machine->copy(to, from, 16, 16, {file, line});
}
FOVEA_DEVICE void commit_copies() { machine->commit(); }
template <int pending>
FOVEA_DEVICE void wait_copies() {
  machine->wait(pending);
}

// --- matrix products ---
FOVEA_DEVICE void load_matrices(unsigned (&r)[4], Shared row, FOVEA_WHERE) {
  on_host::MatrixRows rows{r, row};
  machine->meet(Meeting::LoadMatrices, &rows, {file, line});
}
FOVEA_DEVICE void load_matrices_transposed(unsigned (&r)[4], Shared row, FOVEA_WHERE) {
  on_host::MatrixRows rows{r, row};
  machine->meet(Meeting::LoadMatricesTransposed, &rows, {file, line});
}

struct F16 {};
struct BF16 {};

FOVEA_DEVICE void multiply_add(F16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1,
                               FOVEA_WHERE) {
  on_host::Product product{c, a, b0, b1};
  machine->meet(Meeting::MultiplyAddF16, &product, {file, line});
}
FOVEA_DEVICE void multiply_add(BF16, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                               unsigned b1, FOVEA_WHERE) {
  on_host::Product product{c, a, b0, b1};
  machine->meet(Meeting::MultiplyAddBf16, &product, {file, line});
}

// --- global memory ---
template <class T>
FOVEA_DEVICE T load_global(const T* at) {
  return *at;
}

// --- atomics in global memory: one thread runs at a time ---
FOVEA_DEVICE void add_global(float* at, float value) { *at += value; }
FOVEA_DEVICE void add_global(double* at, double value) { *at += value; }
FOVEA_DEVICE void add_global(unsigned long long* at, unsigned long long value) { *at += value; }
FOVEA_DEVICE void or_global(unsigned* at, unsigned value) { *at |= value; }
inline constexpr bool adds_vectors = true;
FOVEA_DEVICE void add_global(float* at, const Floats4& v) {
  auto* const to = static_cast<float*>(__builtin_assume_aligned(at, 16));
  to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
}
FOVEA_DEVICE void add_global(float* at, const Floats2& v) {
  auto* const to = static_cast<float*>(__builtin_assume_aligned(at, 8));
  to[0] += v.x, to[1] += v.y;
}
FOVEA_DEVICE unsigned count_global(unsigned* at, unsigned value) {
  const unsigned before = *at;
  *at += value;
  return before;
}
// Blocks run one after the other: bits that are not set now will never be.
FOVEA_DEVICE void wait_for_bits(const unsigned* one, const unsigned* other, unsigned bits,
                                FOVEA_WHERE) {
  if (((*one | *other) & bits) != bits) machine->wait_for_ever({file, line});
}
FOVEA_DEVICE void fence_global() {}

// --- numbers ---
// On a GPU these need no header.
FOVEA_DEVICE int max(int a, int b) { return a < b ? b : a; }
FOVEA_DEVICE int min(int a, int b) { return b < a ? b : a; }

FOVEA_DEVICE int first_bit(unsigned x) { return __builtin_ctz(x); }
FOVEA_DEVICE int last_bit(unsigned x) { return 31 - __builtin_clz(x); }
FOVEA_DEVICE float float_of_bits(unsigned x) { return __builtin_bit_cast(float, x); }
FOVEA_DEVICE unsigned bits_of(float x) { return __builtin_bit_cast(unsigned, x); }
FOVEA_DEVICE float infinity() { return __builtin_inff(); }

FOVEA_DEVICE float to_float(F16, unsigned short x) {
  const unsigned sign = (x & 0x8000u) << 16, rest = x & 0x7fffu;
  if (rest >= 0x7c00u) return float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  // After the shift the exponent is too small by 112, also that of a subnormal number.
  return float_of_bits(sign | bits_of(float_of_bits(rest << 13) * 0x1p112f));
}
FOVEA_DEVICE float to_float(BF16, unsigned short x) {
  return float_of_bits(static_cast<unsigned>(x) << 16);
}
// To nearest, ties to even; any NaN becomes the one that the hardware gives.
FOVEA_DEVICE unsigned rounded(F16, float value) {
  const unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return 0x7fffu;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and beyond
  if (rest < 0x38800000u) {                        // below 2^-14: a multiple of 2^-24
    const float steps = float_of_bits(rest) * 0x1p24f + 0x1p23f;
    return sign | (bits_of(steps) - bits_of(0x1p23f));
  }
  return sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13);
}
FOVEA_DEVICE unsigned rounded(BF16, float value) {
  const unsigned bits = bits_of(value);
  if (value != value) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
FOVEA_DEVICE unsigned pack(F16, float low, float high) {
  return rounded(F16{}, low) | rounded(F16{}, high) << 16;
}
FOVEA_DEVICE unsigned pack(BF16, float low, float high) {
  return rounded(BF16{}, low) | rounded(BF16{}, high) << 16;
}

template <class Element>
FOVEA_DEVICE unsigned add_times_zero(Element, unsigned sum, unsigned pair) {
  const auto times_zero = [](unsigned x) {
    return to_float(Element{}, static_cast<unsigned short>(x)) * 0.0f;
  };
  const float low = times_zero(sum) + times_zero(pair);
  const float high = times_zero(sum >> 16) + times_zero(pair >> 16);
  return pack(Element{}, low == 0 ? 0.0f : low, high == 0 ? 0.0f : high);
}
FOVEA_DEVICE unsigned multiply_pairs(BF16, unsigned a, unsigned b) {
  const auto low = [](unsigned x) { return to_float(BF16{}, static_cast<unsigned short>(x)); };
  return pack(BF16{}, low(a) * low(b), low(a >> 16) * low(b >> 16));
}

FOVEA_DEVICE float add_rn(float a, float b) { return a + b; }
FOVEA_DEVICE float sub_rn(float a, float b) { return a - b; }
FOVEA_DEVICE float mul_rn(float a, float b) { return a * b; }
FOVEA_DEVICE float div_rn(float a, float b) { return a / b; }
FOVEA_DEVICE float fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

FOVEA_DEVICE float without_subnormals(float x) {
  return (bits_of(x) & 0x7f800000u) == 0 ? float_of_bits(bits_of(x) & 0x80000000u) : x;
}
FOVEA_DEVICE float exp2_approx(float x) {
  return without_subnormals(__builtin_exp2f(without_subnormals(x)));
}
FOVEA_DEVICE float log2_approx(float x) { return __builtin_log2f(x); }
FOVEA_DEVICE float tanh_approx(float x) { return __builtin_tanhf(x); }
FOVEA_DEVICE float reciprocal_approx(float x) {
  return without_subnormals(1.0f / without_subnormals(x));
}

inline unsigned load_shared_word(Shared at) { return load_shared<unsigned>(at); }

}  // namespace fovea::device

// --- the shared object of a kernel ---
// compile.cpp adds these lines to every source: FOVEA_HOST_OBJECT once, and FOVEA_HOST_ENTRY for
// each kernel. Module and launch call what they define.
namespace fovea::on_host {

template <int... i>
struct Numbers {};

template <class... Parameters, int... i>
void call(void (*kernel)(Parameters...), void** parameters, Numbers<i...>) {
  kernel(*static_cast<const Parameters*>(parameters[i])...);
}
template <class... Parameters>
void call(void (*kernel)(Parameters...), void** parameters) {
  call(kernel, parameters, Numbers<__integer_pack(sizeof...(Parameters))...>{});
}

}  // namespace fovea::on_host

#define FOVEA_HOST_OBJECT                                                   \
  extern "C" __attribute__((visibility("default"))) void fovea_set_machine( \
      const fovea::on_host::Machine* machine) {                             \
    fovea::device::machine = machine;                                       \
  }
#define FOVEA_HOST_ENTRY(name)                                                                 \
  extern "C" __attribute__((visibility("default"))) void fovea_run_##name(void** parameters) { \
    fovea::on_host::call(&name, parameters);                                                   \
  }
