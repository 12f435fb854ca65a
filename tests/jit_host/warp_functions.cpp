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

struct Factors {
  std::uint16_t a[16][16];
  std::uint16_t b[16][8];
  float c[16][8];
};

void put_pair(std::uint16_t* to, unsigned pair) {
  to[0] = static_cast<std::uint16_t>(pair);
  to[1] = static_cast<std::uint16_t>(pair >> 16);
}

void gather(Factors& f, void* const (&operands)[lanes]) {
  for (int lane = 0; lane < lanes; ++lane) {
    const auto& p = operand<const Product>(operands, lane);
    const int row = lane / 4, t = lane % 4 * 2;
    put_pair(&f.a[row][t], p.a[0]);
    put_pair(&f.a[row + 8][t], p.a[1]);
    put_pair(&f.a[row][t + 8], p.a[2]);
    put_pair(&f.a[row + 8][t + 8], p.a[3]);
    f.b[t][row] = static_cast<std::uint16_t>(p.b0);
    f.b[t + 1][row] = static_cast<std::uint16_t>(p.b0 >> 16);
    f.b[t + 8][row] = static_cast<std::uint16_t>(p.b1);
    f.b[t + 9][row] = static_cast<std::uint16_t>(p.b1 >> 16);
    for (int e = 0; e < 4; ++e) f.c[row + e / 2 * 8][t + e % 2] = p.c[e];
  }
}

void scatter(const Factors& f, void* const (&operands)[lanes]) {
  for (int lane = 0; lane < lanes; ++lane) {
    const int row = lane / 4, t = lane % 4 * 2;
    float* const c = operand<const Product>(operands, lane).c;
    for (int e = 0; e < 4; ++e) c[e] = f.c[row + e / 2 * 8][t + e % 2];
  }
}

template <bool f16>
[[gnu::always_inline]] inline float widened(std::uint16_t x) {
  const std::uint32_t bits = x;
  if constexpr (f16) {
    const std::uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    const auto number = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f);
    return std::bit_cast<float>(sign | (rest >= 0x7c00u ? rest << 13 | 0x7f800000u : number));
  } else {
    return std::bit_cast<float>(bits << 16);
  }
}

// Products of 16-bit numbers are exact in float; their sum is rounded at each step.
template <bool f16>
[[gnu::always_inline]] inline void multiply(Factors& f) {
  float a[16][16], b[16][8];
  for (int i = 0; i < 256; ++i) a[i / 16][i % 16] = widened<f16>(f.a[i / 16][i % 16]);
  for (int i = 0; i < 128; ++i) b[i / 8][i % 8] = widened<f16>(f.b[i / 8][i % 8]);
  for (int i = 0; i < 16; ++i) {
    float sum[8] = {};
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) sum[j] += a[i][k] * b[k][j];
    }
    for (int j = 0; j < 8; ++j) f.c[i][j] += sum[j];
  }
}

using Multiply = void (*)(Factors&);
struct Multipliers {
  Multiply f16, bf16;
};

void multiply_f16(Factors& f) { multiply<true>(f); }
void multiply_bf16(Factors& f) { multiply<false>(f); }

#if defined(__x86_64__)
[[gnu::target("avx2")]] void multiply_f16_avx2(Factors& f) { multiply<true>(f); }
[[gnu::target("avx2")]] void multiply_bf16_avx2(Factors& f) { multiply<false>(f); }

Multipliers fastest() {
  if (__builtin_cpu_supports("avx2")) return {multiply_f16_avx2, multiply_bf16_avx2};
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
  Factors factors;
  gather(factors, operands);
  (kind == Meeting::MultiplyAddF16 ? multipliers.f16 : multipliers.bf16)(factors);
  scatter(factors, operands);
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
  }
  return "";
}

}  // namespace fovea::on_host
