#include "tests/jit_host/warp_functions.h"

#include <bit>
#include <cstdint>

namespace fovea::on_host {
namespace {

template <class T>
T& operand(void* const (&operands)[lanes], int lane) {
  return *static_cast<T*>(operands[lane]);
}

// --- m16n8k16, as the PTX manual lays it out ---

using Floats8 = float __attribute__((vector_size(32)));
using Words8 = std::uint32_t __attribute__((vector_size(32)));

struct Factors {
  float a[16][16];
  Floats8 b[16];
};

// Four pairs of 16-bit numbers; the lower of each first.
template <bool f16>
[[gnu::always_inline]] inline Floats8 widened(const unsigned (&pairs)[4]) {
  Words8 bits;
  for (int i = 0; i < 8; ++i) bits[i] = i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2];
  bits &= 0xffff0000u;
  if constexpr (!f16) return std::bit_cast<Floats8>(bits);
  const Words8 sign = bits & 0x80000000u, rest = (bits & 0x7fffffffu) >> 3;
  // The exponent is too small by 112, also that of a subnormal number.
  const Words8 number = std::bit_cast<Words8>(std::bit_cast<Floats8>(rest) * 0x1p112f);
  return std::bit_cast<Floats8>(sign | (rest >= 0x0f800000u ? rest | 0x7f800000u : number));
}

template <bool f16>
[[gnu::always_inline]] inline void gather(Factors& f, void* const (&operands)[lanes]) {
  for (int lane = 0; lane < lanes; ++lane) {
    const auto& p = operand<const Product>(operands, lane);
    const int row = lane / 4, t = lane % 4 * 2;
    const Floats8 a = widened<f16>({p.a[0], p.a[1], p.a[2], p.a[3]});
    const Floats8 b = widened<f16>({p.b0, p.b1, 0, 0});
    for (int i = 0; i < 2; ++i) {
      f.a[row][t + i] = a[i];
      f.a[row + 8][t + i] = a[i + 2];
      f.a[row][t + 8 + i] = a[i + 4];
      f.a[row + 8][t + 8 + i] = a[i + 6];
      f.b[t + i][row] = b[i];
      f.b[t + 8 + i][row] = b[i + 2];
    }
  }
}

// Products of 16-bit numbers are exact in float; their sum is rounded at each step.
template <bool f16>
[[gnu::always_inline]] inline void multiply(void* const (&operands)[lanes]) {
  Factors f;
  gather<f16>(f, operands);
  for (int i = 0; i < 16; ++i) {
    Floats8 even = {}, odd = {};
    for (int k = 0; k < 16; k += 2) {
      even += f.a[i][k] * f.b[k];
      odd += f.a[i][k + 1] * f.b[k + 1];
    }
    even += odd;
    for (int t = 0; t < 4; ++t) {
      float* const c = operand<const Product>(operands, i % 8 * 4 + t).c + i / 8 * 2;
      c[0] += even[2 * t];
      c[1] += even[2 * t + 1];
    }
  }
}

using Multiply = void (*)(void* const (&)[lanes]);
struct Multipliers {
  Multiply f16, bf16;
};

void multiply_f16(void* const (&operands)[lanes]) { multiply<true>(operands); }
void multiply_bf16(void* const (&operands)[lanes]) { multiply<false>(operands); }

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] void multiply_f16_avx2(void* const (&operands)[lanes]) {
  multiply<true>(operands);
}
[[gnu::target("avx2,fma")]] void multiply_bf16_avx2(void* const (&operands)[lanes]) {
  multiply<false>(operands);
}

Multipliers fastest() {
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {multiply_f16_avx2, multiply_bf16_avx2};
  }
  return {multiply_f16, multiply_bf16};
}
#else
Multipliers fastest() { return {multiply_f16, multiply_bf16}; }
#endif

}  // namespace

void vote(Meeting kind, void* const (&operands)[lanes]) {
  unsigned votes = 0;
  for (int i = 0; i < lanes; ++i) {
    votes |= static_cast<unsigned>(operand<Vote>(operands, i).value) << i;
  }
  const unsigned result = kind == Meeting::Ballot ? votes : votes != 0 ? 1u : 0u;
  for (int i = 0; i < lanes; ++i) operand<Vote>(operands, i).result = result;
}

void shuffle(Meeting kind, void* const (&operands)[lanes]) {
  for (int i = 0; i < lanes; ++i) {
    auto& mine = operand<Shuffled>(operands, i);
    const int from = (kind == Meeting::ShuffleXor ? i ^ mine.lane : mine.lane) & (lanes - 1);
    mine.result = operand<Shuffled>(operands, from).value;
  }
}

void load_matrices(Meeting kind, void* const (&operands)[lanes], SharedMemory& memory,
                   const User& first_lane, Where where) {
  std::uint16_t matrix[4][8][8];
  for (int i = 0; i < lanes; ++i) {
    const User user{first_lane.thread + i, first_lane.warp_epoch};
    memory.load_row(matrix[i / 8][i % 8], operand<MatrixRows>(operands, i).row, user, where);
  }
  const bool transposed = kind == Meeting::LoadMatricesTransposed;
  for (int i = 0; i < lanes; ++i) {
    unsigned* const r = operand<MatrixRows>(operands, i).r;
    const int row = i / 4, t = i % 4 * 2;
    for (int m = 0; m < 4; ++m) {
      const unsigned low = transposed ? matrix[m][t][row] : matrix[m][row][t];
      const unsigned high = transposed ? matrix[m][t + 1][row] : matrix[m][row][t + 1];
      r[m] = low | high << 16;
    }
  }
}

void multiply_add(Meeting kind, void* const (&operands)[lanes]) {
  static const Multipliers multipliers = fastest();
  (kind == Meeting::MultiplyAddF16 ? multipliers.f16 : multipliers.bf16)(operands);
}

const char* name_of(Meeting kind) {
  switch (kind) {
    case Meeting::Ballot: return "ballot";
    case Meeting::Any: return "any_in_warp";
    case Meeting::SyncWarp: return "sync_warp";
    case Meeting::ShuffleXor: return "shuffle_xor";
    case Meeting::Shuffle: return "shuffle";
    case Meeting::LoadMatrices: return "load_matrices";
    case Meeting::LoadMatricesTransposed: return "load_matrices_transposed";
    case Meeting::MultiplyAddF16: return "multiply_add(F16)";
    case Meeting::MultiplyAddBf16: return "multiply_add(BF16)";
    case Meeting::SyncBlock: return "sync_block";
    case Meeting::AnyInBlock: return "any_in_block";
    case Meeting::FenceRegisters: return "fence_registers";
    case Meeting::MultiplyTiles: return "multiply_tiles";
    case Meeting::CommitProducts: return "commit_products";
    case Meeting::WaitProducts: return "wait_products";
  }
  return "";
}

}  // namespace fovea::on_host
