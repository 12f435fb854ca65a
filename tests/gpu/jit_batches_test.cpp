// deterministic=1 on a GPU: the bits of a sequence do not depend on what else is in its batch, nor
// on when it runs. Eight sequences of different lengths, together, by threes, alone, and packed.
#include <cstring>
#include <numeric>

#include "gpu_pair.h"

namespace fovea::gpu_tests {
namespace {

constexpr std::size_t batch = 8;

struct Sequences {
  std::string words;  // sizes without b, formulas, features
  std::vector<std::int64_t> q_lengths, k_lengths;
};

std::string list(const std::vector<std::int64_t>& numbers) {
  std::string out;
  for (const std::int64_t n : numbers) out += (out.empty() ? "" : ",") + std::to_string(n);
  return out;
}

std::vector<std::int64_t> starts(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> out(lengths.size() + 1, 0);
  std::inclusive_scan(lengths.begin(), lengths.end(), out.begin() + 1);
  return out;
}

// Of a dense array whose first dimension is the batch.
cli::Array slice(const cli::Array& whole, std::size_t first, std::size_t count) {
  cli::Array out = whole;
  const std::size_t each = whole.bytes.size() / static_cast<std::size_t>(whole.extents[0]);
  out.extents[0] = static_cast<std::int64_t>(count);
  const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(first * each);
  out.bytes.assign(from, from + static_cast<std::ptrdiff_t>(count * each));
  return out;
}

// [B, H, S, D] as [T, H, D], or the other way round: rows of `lengths`, copied one by one.
struct Packing {
  cli::Array& dense;
  cli::Array& packed;
  const std::vector<std::int64_t>& lengths;

  template <class Copy>
  void each_row(Copy copy) const {
    const std::int64_t heads = dense.extents[1], length = dense.extents[2];
    const std::size_t bytes = static_cast<std::size_t>(dense.extents[3]) *
                              static_cast<std::size_t>(cli::element_size(dense.dtype));
    std::int64_t row = 0;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      for (std::int64_t i = 0; i < lengths[b]; ++i, ++row) {
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t there = (static_cast<std::int64_t>(b) * heads + h) * length + i;
          copy(dense.bytes.data() + static_cast<std::size_t>(there) * bytes,
               packed.bytes.data() + static_cast<std::size_t>(row * heads + h) * bytes, bytes);
        }
      }
    }
  }
};

void pack(const cli::Array& dense, cli::Array& packed, const std::vector<std::int64_t>& lengths) {
  cli::Array from = dense;
  Packing{from, packed, lengths}.each_row(
      [](auto* here, auto* there, std::size_t bytes) { std::memcpy(there, here, bytes); });
}

bool same_rows(const cli::Array& dense, const cli::Array& packed,
               const std::vector<std::int64_t>& lengths) {
  bool same = true;
  cli::Array a = dense, b = packed;
  Packing{a, b, lengths}.each_row([&](auto* here, auto* there, std::size_t bytes) {
    same = same && std::memcmp(here, there, bytes) == 0;
  });
  return same;
}

cli::Workload whole_batch(const Sequences& s) {
  return cli::make_workload(
      s.words + " b=8 qlens=" + list(s.q_lengths) + " klens=" + list(s.k_lengths), 0);
}

cli::Workload part_of(const Sequences& s, const cli::Workload& whole, std::size_t first,
                      std::size_t count) {
  const auto cut = [&](const std::vector<std::int64_t>& x) {
    const auto from = x.begin() + static_cast<std::ptrdiff_t>(first);
    return list({from, from + static_cast<std::ptrdiff_t>(count)});
  };
  cli::Workload part = cli::make_workload(
      s.words + " b=" + std::to_string(count) + " b_offset=" + std::to_string(first) +
          " qlens=" + cut(s.q_lengths) + " klens=" + cut(s.k_lengths),
      0);
  part.q = slice(whole.q, first, count);
  part.k = slice(whole.k, first, count);
  part.v = slice(whole.v, first, count);
  if (part.backward) part.grad_o = slice(whole.grad_o, first, count);
  return part;
}

cli::Workload packed_batch(const Sequences& s, const cli::Workload& whole) {
  cli::Workload packed =
      cli::make_workload(s.words + " b=8 layout=thd cu_q=" + list(starts(s.q_lengths)) +
                             " cu_k=" + list(starts(s.k_lengths)),
                         0);
  pack(whole.q, packed.q, s.q_lengths);
  pack(whole.k, packed.k, s.k_lengths);
  pack(whole.v, packed.v, s.k_lengths);
  if (packed.backward) pack(whole.grad_o, packed.grad_o, s.q_lengths);
  return packed;
}

void expect_same_bits(const Sequences& s) {
  const OnGpu here;
  const cli::Workload whole = whole_batch(s);
  GpuPair together(whole_batch(s));
  const auto right = together.run_once();
  EXPECT_EQ(beyond_limits(whole, right), "");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(different(right, together.run_once()), "") << "again";

  const bool backward = whole.backward.has_value();
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
    for (std::size_t first = 0; first + count <= batch; first += count) {
      const auto found = GpuPair(part_of(s, whole, first, count)).run_once();
      for (const char* name : {"o", "lse", "dq", "dk", "dv"}) {
        if (name[0] == 'd' && !backward) continue;
        EXPECT_EQ(slice(named(right, name), first, count).bytes, named(found, name).bytes)
            << name << " of " << count << " sequences from " << first << ": " << s.words;
      }
    }
  }

  const auto packed = GpuPair(packed_batch(s, whole)).run_once();
  EXPECT_TRUE(same_rows(named(right, "o"), named(packed, "o"), s.q_lengths)) << s.words;
  if (!backward) return;
  EXPECT_TRUE(same_rows(named(right, "dq"), named(packed, "dq"), s.q_lengths)) << s.words;
  EXPECT_TRUE(same_rows(named(right, "dk"), named(packed, "dk"), s.k_lengths)) << s.words;
  EXPECT_TRUE(same_rows(named(right, "dv"), named(packed, "dv"), s.k_lengths)) << s.words;
}

class JitBatches : public testing::TestWithParam<std::pair<const char*, Sequences>> {};

TEST_P(JitBatches, BitsOfASequenceAreItsOwn) {
  NEED_JIT();
  expect_same_bits(GetParam().second);
}

const std::pair<const char*, Sequences> batches[] = {
    {"Plain",
     {"h=4 hkv=2 sq=190 skv=260 d=64 dtype=bf16 mod=\"20*tanh(score/20) + t[h]*(k-q)\" "
      "mask=\"q + 70 >= k\" tensor=\"t:f32[H]=uniform(0.01,0.3)\" grads=q,k,v,t "
      "deterministic=1 direction=both",
      {190, 1, 64, 65, 128, 129, 0, 77},
      {260, 5, 64, 66, 200, 129, 40, 260}}},
    {"Table",
     {"h=3 sq=140 skv=140 d=40 dtype=f32 mod=\"score + t[h, clamp(q-k, -8, 8) + 8]\" "
      "tensor=\"t:f32[H,17]\" grads=q,k,v,t deterministic=1 direction=both",
      {140, 139, 3, 65, 128, 32, 17, 100},
      {140, 139, 3, 65, 128, 32, 17, 100}}},
    {"Dropout",
     {"h=2 sq=130 skv=130 d=128 dtype=f16 mask=causal dropout=0.2 seed=7 "
      "deterministic=1 direction=both",
      {130, 129, 3, 65, 128, 32, 17, 100},
      {130, 129, 3, 65, 128, 32, 17, 100}}},
    // Few queries, many keys: how keys are split follows from the sequence alone.
    {"Decoding",
     {"h=8 hkv=2 sq=2 skv=5000 d=128 dtype=bf16 lse=1 deterministic=1 direction=forward",
      {1, 1, 2, 1, 1, 2, 1, 0},
      {5000, 1, 4096, 64, 3000, 777, 1024, 12}}},
};
INSTANTIATE_TEST_SUITE_P(Of, JitBatches, testing::ValuesIn(batches),
                         [](const auto& one) { return one.param.first; });

// Gradients that many scores add to, in an order that nothing but shapes decides.
TEST(JitGradients, CapturedGradientsAreTheSameEveryTime) {
  NEED_JIT();
  const OnGpu here;
  for (
      const char* formula :
      {"mod=\"score + t[h, q, k]\" tensor=\"t:bf16[H,Sq,Skv]\"",
       "mod=\"score + t[q]\" tensor=\"t:f32[Sq]\"", "mod=\"score + t[k]\" tensor=\"t:f32[Skv]\"",
       "mod=\"score * t[]\" tensor=\"t:f32[]\"",
       "mod=\"score + t[(q * 3 + k) % 7]\" tensor=\"t:f32[7]\"",
       "mod=\"score + t[i[b, q], j[k]]\" tensor=\"t:f32[5,5]\" tensor=\"i:i32[B,Sq]=uniform(0,5)\" "
       "tensor=\"j:i64[Skv]=uniform(0,5)\"",
       "mod=\"score + t[h, clamp(q - k, -300, 300) + 300]\" tensor=\"t:f16[H,601]\"",
       "mod=\"t * tanh(score / t)\" scalar=\"t=5\""}) {
    GpuPair pair(
        "b=3 h=4 hkv=2 sq=200 skv=333 d=64 dtype=bf16 deterministic=1 direction=both "
        "grads=q,k,v,t " +
        std::string(formula));
    const auto first = pair.run_once();
    EXPECT_EQ(beyond_limits(pair.workload(), first), "") << formula;
    for (int i = 0; i < 4; ++i) EXPECT_EQ(different(first, pair.run_once()), "") << formula;
  }
}

}  // namespace
}  // namespace fovea::gpu_tests
