// All that kernels use of the hardware: indices, warps, barriers, shared memory, asynchronous
// copies, matrix products, atomics. Everything else in this folder is plain C++ over these, so that
// the same kernels run on a CPU in tests, where FOVEA_HOST_PRIMITIVES names a header with the same
// functions.
//
// Shared memory is addressed by byte offsets (Shared) into the block's dynamic shared memory.
// A block is one-dimensional. Functions that speak of a warp must be reached by all its 32 lanes.
#pragma once

#if defined(FOVEA_HOST_PRIMITIVES)
#include FOVEA_HOST_PRIMITIVES
#else

#define FOVEA_DEVICE __device__ __forceinline__
#if !defined(FOVEA_DEVICE_CALL)  // a kernel whose threads have few registers inlines those, too
#define FOVEA_DEVICE_CALL __device__ __noinline__  // rarely called: kept out of the hot code
#endif
#define FOVEA_UNROLL _Pragma("unroll")
#define FOVEA_NO_UNROLL _Pragma("unroll 1")

namespace fovea::device {

using Shared = unsigned;  // a byte offset into the block's shared memory

// --- where this thread is ---
FOVEA_DEVICE int thread_index() { return threadIdx.x; }
FOVEA_DEVICE int block_threads() { return blockDim.x; }
FOVEA_DEVICE int block_x() { return blockIdx.x; }
FOVEA_DEVICE int block_y() { return blockIdx.y; }
FOVEA_DEVICE int block_z() { return blockIdx.z; }
FOVEA_DEVICE int grid_x() { return gridDim.x; }
FOVEA_DEVICE int lane_index() { return threadIdx.x & 31; }

// --- kernels one after the other ---
// Once in every kernel, by all threads, before they touch global memory: waits until the kernels
// before it have ended and what they wrote is seen. The next kernel may be started from here on, on
// multiprocessors as they become free (cuda::launch with `overlaps`).
FOVEA_DEVICE void await_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// --- a warp ---
FOVEA_DEVICE unsigned ballot(bool value) { return __ballot_sync(~0u, value); }
FOVEA_DEVICE bool any_in_warp(bool value) { return __any_sync(~0u, value); }
FOVEA_DEVICE void sync_warp() { __syncwarp(); }
template <class T>  // float, int, unsigned or double
FOVEA_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(~0u, value, mask);
}
template <class T>
FOVEA_DEVICE T shuffle(T value, int lane) {
  return __shfl_sync(~0u, value, lane);
}
// Of the lane that is `by` further on; its own in the last ones.
template <class T>
FOVEA_DEVICE T shuffle_down(T value, int by) {
  return __shfl_down_sync(~0u, value, by);
}

// --- a block ---
FOVEA_DEVICE void sync_block() { __syncthreads(); }
FOVEA_DEVICE bool any_in_block(bool value) { return __syncthreads_or(value); }

// --- shared memory; T has 2, 4, 8 or 16 bytes and lies aligned to its size ---
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

extern "C" __shared__ __align__(1024) unsigned char fovea_shared_memory[];

// Addresses of 32 bits: NVRTC would compute each with 64, in registers of its own.
FOVEA_DEVICE unsigned shared_base() {
  return static_cast<unsigned>(__cvta_generic_to_shared(fovea_shared_memory));
}
template <int bytes>
struct SharedWord {
  using Type = unsigned short;
};
template <>
struct SharedWord<4> {
  using Type = unsigned;
};
template <>
struct SharedWord<8> {
  using Type = unsigned long long;
};

template <class T>
FOVEA_DEVICE T load_shared(Shared at) {
  const unsigned address = shared_base() + at;
  union {
    T value;
    typename SharedWord<sizeof(T)>::Type word;
    unsigned words[4];
  } x;
  if constexpr (sizeof(T) == 16) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.words[0]), "=r"(x.words[1]), "=r"(x.words[2]), "=r"(x.words[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("ld.shared.b64 %0, [%1];" : "=l"(x.word) : "r"(address) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x.word) : "r"(address) : "memory");
  } else {
    static_assert(sizeof(T) == 2);
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(x.word) : "r"(address) : "memory");
  }
  return x.value;
}
template <class T>
FOVEA_DEVICE void store_shared(Shared at, T value) {
  const unsigned address = shared_base() + at;
  union {
    T value;
    typename SharedWord<sizeof(T)>::Type word;
    unsigned words[4];
  } x;
  x.value = value;
  if constexpr (sizeof(T) == 16) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(x.words[0]),
                 "r"(x.words[1]), "r"(x.words[2]), "r"(x.words[3])
                 : "memory");
  } else if constexpr (sizeof(T) == 8) {
    asm volatile("st.shared.b64 [%0], %1;" ::"r"(address), "l"(x.word) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(x.word) : "memory");
  } else {
    static_assert(sizeof(T) == 2);
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(x.word) : "memory");
  }
}
// A word that is not loaded if nobody uses it.
FOVEA_DEVICE unsigned load_shared_word(Shared at) {
  return *reinterpret_cast<const unsigned*>(fovea_shared_memory + at);
}
FOVEA_DEVICE void add_shared(Shared at, float value) {
  atomicAdd(reinterpret_cast<float*>(fovea_shared_memory + at), value);
}
// --- asynchronous copies from global to shared memory; bytes is 4, 8 or 16 ---
// Both addresses are aligned to `bytes`. The last bytes - valid are zeros; valid is 0 to bytes, and
// `from` is not read if valid is 0.
template <int bytes>
FOVEA_DEVICE void copy_async(Shared to, const void* from, int valid) {
  const unsigned at = shared_base() + to;
  if constexpr (bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(bytes),
                 "r"(valid)
                 : "memory");
  }
}
// All 16 bytes or, without a branch, nothing.
FOVEA_DEVICE void copy_async_if(bool really, Shared to, const void* from) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(
          shared_base() + to),
      "l"(from), "r"(static_cast<int>(really))
      : "memory");
}
FOVEA_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>  // waits until at most so many committed groups of this thread are under way
FOVEA_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// --- matrix products ---
// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
// Lane l gets elements (l / 4, 2 (l % 4)) and the next of each; transposed: of its transpose.
FOVEA_DEVICE void load_matrices(unsigned (&r)[4], Shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_base() + row)
               : "memory");
}
FOVEA_DEVICE void load_matrices_transposed(unsigned (&r)[4], Shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_base() + row)
               : "memory");
}

struct F16 {};  // names of the 16-bit types that the matrix units multiply
struct BF16 {};

// c (16 x 8) += a (16 x 16) b (16 x 8), f32 sums. Lane l holds, with row = l / 4 and t = l % 4:
// c: (row, 2t), (row, 2t + 1), (row + 8, 2t), (row + 8, 2t + 1)
// a: pairs (row, 2t), (row + 8, 2t), (row, 2t + 8), (row + 8, 2t + 8); b: pairs (k = 2t, column =
// row), (k = 2t + 8, column = row)
FOVEA_DEVICE void multiply_add(F16, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FOVEA_DEVICE void multiply_add(BF16, float (&c)[4], const unsigned (&a)[4], unsigned b0,
                               unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- global memory ---
// An element that nothing writes while the kernel runs.
template <class T>
FOVEA_DEVICE T load_global(const T* at) {
  return __ldg(at);
}

// --- atomics in global memory ---
FOVEA_DEVICE void add_global(float* at, float value) { atomicAdd(at, value); }
FOVEA_DEVICE void add_global(double* at, double value) { atomicAdd(at, value); }
FOVEA_DEVICE void add_global(unsigned long long* at, unsigned long long value) {
  atomicAdd(at, value);
}
FOVEA_DEVICE void or_global(unsigned* at, unsigned value) { atomicOr(at, value); }
// Whether several neighbours are added to at once; else a warp should add to 32 neighbours.
#if __CUDA_ARCH__ >= 900
inline constexpr bool adds_vectors = true;
#else
inline constexpr bool adds_vectors = false;
#endif
// Four sums in a row; `at` is aligned to 16 bytes.
FOVEA_DEVICE void add_global(float* at, const Floats4& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at), "f"(v.x), "f"(v.y), "f"(v.z),
               "f"(v.w)
               : "memory");
#else
  atomicAdd(at, v.x);
  atomicAdd(at + 1, v.y);
  atomicAdd(at + 2, v.z);
  atomicAdd(at + 3, v.w);
#endif
}
// Two; `at` is aligned to 8 bytes.
FOVEA_DEVICE void add_global(float* at, const Floats2& v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1,%2};" ::"l"(at), "f"(v.x), "f"(v.y) : "memory");
#else
  atomicAdd(at, v.x);
  atomicAdd(at + 1, v.y);
#endif
}
// Counts up and returns what was there: for "the last block to arrive goes on".
FOVEA_DEVICE unsigned count_global(unsigned* at, unsigned value) { return atomicAdd(at, value); }
// Until all of `bits` are in one of two words, which other blocks set.
FOVEA_DEVICE void wait_for_bits(const unsigned* one, const unsigned* other, unsigned bits) {
  for (unsigned x = 0, y = 0; ((x | y) & bits) != bits;) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(one) : "memory");
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(y) : "l"(other) : "memory");
  }
}
// What this thread wrote before is seen by whoever sees what it writes after.
FOVEA_DEVICE void fence_global() { __threadfence(); }

// --- numbers ---
FOVEA_DEVICE int first_bit(unsigned x) { return __ffs(x) - 1; }  // the lowest one that is set
FOVEA_DEVICE int last_bit(unsigned x) { return 31 - __clz(static_cast<int>(x)); }
FOVEA_DEVICE float float_of_bits(unsigned x) { return __uint_as_float(x); }
FOVEA_DEVICE unsigned bits_of(float x) { return __float_as_uint(x); }
FOVEA_DEVICE float infinity() { return __uint_as_float(0x7f800000u); }

FOVEA_DEVICE float to_float(F16, unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
FOVEA_DEVICE float to_float(BF16, unsigned short x) {
  return __uint_as_float(static_cast<unsigned>(x) << 16);
}
// Two numbers rounded to nearest even; `low` goes to the low half.
FOVEA_DEVICE unsigned pack(F16, float low, float high) {
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
FOVEA_DEVICE unsigned pack(BF16, float low, float high) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Adds 0 times a packed pair to a sum that is 0 in the beginning and stays so as long as all pairs
// are finite. From sm_90 on.
FOVEA_DEVICE unsigned add_times_zero(F16, unsigned sum, unsigned pair) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
  return sum;
}
FOVEA_DEVICE unsigned add_times_zero(BF16, unsigned sum, unsigned pair) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sum) : "r"(pair), "r"(0));
  return sum;
}

// Both products of two packed pairs, rounded. From sm_90 on.
FOVEA_DEVICE unsigned multiply_pairs(BF16, unsigned a, unsigned b) {
  unsigned r;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// Operations that round once and are never contracted: what decisions are computed with.
FOVEA_DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
FOVEA_DEVICE float sub_rn(float a, float b) { return __fsub_rn(a, b); }
FOVEA_DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
FOVEA_DEVICE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
FOVEA_DEVICE float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// The special function unit: fast, a few units in the last places off (tanh: 2^-11 relative).
FOVEA_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FOVEA_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FOVEA_DEVICE float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
FOVEA_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace fovea::device

#endif
