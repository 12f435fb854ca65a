// The kernels for sm_90 without a GPU: lines for what only these kernels do. There are several
// tiles of keys, every class of head dims, scores that outgrow the first reference, values behind
// the end of a sequence, and tensors that TMA cannot copy. FOVEA_TEST_LINE_TEXT="..." runs that
// line instead.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/jit_host/lines.h"

namespace fovea::on_host {
namespace {

constexpr const char* lines[] = {
    "b=1 h=2 sq=300 d=128 dtype=bf16 lse=1",
    "b=1 h=2 sq=300 d=128 dtype=bf16 mask=causal lse=1",
    "b=2 h=2 hkv=1 sq=130 skv=500 d=64 dtype=f16 mask=causal_bottom_right lse=1",
    "b=1 h=2 sq=260 d=96 dtype=bf16 mask=sliding(70)",
    "b=1 h=1 sq=200 skv=300 d=192 dtype=bf16",
    "b=1 h=2 sq=150 skv=260 d=192 dv=128 dtype=f16 mask=causal",
    "b=1 h=1 sq=140 skv=200 d=256 dtype=bf16 mask=causal",
    "b=1 h=1 sq=140 skv=330 d=72 dv=40 dtype=bf16",
    // Scores that grow while keys go by, beyond what sums can hold, and -inf before them.
    "b=1 h=1 sq=200 skv=700 d=64 dtype=bf16 mod=\"score - 2 * k\" lse=1",
    "b=1 h=1 sq=200 skv=700 d=64 dtype=f16 mod=\"score - 0.1 * k\" lse=1",
    "b=1 h=1 sq=200 skv=500 d=64 dtype=bf16 mod=\"k > 200 ? -inf : score\" lse=1",
    // Tiles of keys from the first to the last, of more than 32, also with rows that see few.
    "b=1 h=1 sq=130 skv=4300 d=64 dtype=bf16 mod=\"score + t[h] * (k - q)\" "
    "tensor=\"t:f32[H]=uniform(-0.9,-0.8)\" lse=1",
    "b=1 h=2 sq=300 d=64 dtype=bf16 mod=\"score - 2 * k + u[q]\" mask=sliding(90) "
    "tensor=\"u:f32[Sq]\" lse=1",
    "b=1 h=1 sq=300 skv=500 d=64 dtype=bf16 mask=\"k < q - 150\" lse=1 row_max=1",
    "b=1 h=2 sq=300 d=64 dtype=bf16 mod=softcap(20) sink=1 lse=1",
    // Bounded scores: rows that see nothing, a bound that is too wide, one of either sign.
    "b=1 h=2 sq=200 skv=300 d=64 dtype=bf16 mod=softcap(5) mask=\"k < q - 50\" lse=1",
    "b=1 h=2 sq=200 d=64 dtype=bf16 mod=softcap(90) scale=3 mask=causal lse=1",
    "b=1 h=2 sq=200 d=64 dtype=bf16 mod=\"c * sigmoid(score)\" scalar=\"c=-3\" lse=1",
    // More parts of a mask than are told apart, of every kind of staged values.
    "b=2 h=2 sq=300 skv=420 d=64 dtype=bf16 mask=\"q >= k - 100 && q - k < 200 && doc[b,k] < 3 && "
    "(k % 7 != 3 && t[h, min(abs(k - q), 15)] < 0.9)\" tensor=\"doc:i32[B,Skv]=docs(5)\" "
    "tensor=\"t:f32[H,16]\" lse=1",
    "b=2 h=2 sq=260 d=64 dtype=bf16 dropout=0.2 lse=1",
    "b=1 h=2 sq=260 d=128 dtype=bf16 mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\"",
    "b=2 h=2 sq=264 d=64 dtype=f16 mask=\"t[q,k] < 0.3\" tensor=\"t:f16[Sq,Skv]\"",
    "b=1 h=4 sq=300 d=64 dtype=bf16 mod=alibi mask=causal lse=1",
    "b=1 h=2 sq=300 d=64 dtype=bf16 mod=\"c * tanh(score / c)\" scalar=\"c=-3\" row_max=1",
    "b=1 h=2 sq=260 d=64 dtype=bf16 mod=\"score + t[k] + u[q]\" tensor=\"t:f32[Skv]\" "
    "tensor=\"u:f32[Sq]\"",
    "b=3 h=2 sq=200 d=64 dtype=bf16 qlens=90,200,1 klens=150,17,0 lse=1",
    "h=2 layout=thd cu_q=0,100,100,130,400 cu_k=0,100,120,130,400 sq=270 skv=270 d=64 dtype=bf16 mask=causal lse=1",
    "h=2 layout=thd cu_q=0,100,100,130,400 cu_k=0,100,120,130,400 sq=270 skv=270 q_offset=3 "
    "k_offset=0,7,1,90 d=64 dtype=bf16 mod=\"score + t[h, min(abs(k - q), 15)]\" tensor=\"t:f32[H,16]\"",
    "b=1 h=1 sq=200 d=64 dtype=bf16 scale=-0.2 lse=1",
    // Few queries: heads of a group share tiles.
    "b=2 h=8 hkv=1 sq=13 skv=300 d=128 dtype=bf16 mod=alibi mask=causal_bottom_right lse=1 sink=1",
    "b=2 h=12 hkv=3 sq=40 skv=300 d=64 dtype=bf16 mod=\"score * w[b,h]\" mask=\"k < 20 * h + q\" "
    "tensor=\"w:f32[B,H]\" lse=1 row_max=1",
    "h=4 hkv=1 layout=thd cu_q=0,20,20,50,51 cu_k=0,100,120,130,400 sq=30 skv=270 d=64 dtype=f16 "
    "mask=causal dropout=0.2 lse=1",
    "b=1 h=4 hkv=1 sq=30 skv=200 d=128 dtype=bf16 mod=\"h == 2 && q == 5 ? sqrt(-1.0) : score\" "
    "mask=\"h != 3 || k < q\" lse=1",
    "b=1 h=1 sq=200 d=20 dtype=bf16",
    // Backwards: several tiles of keys and of queries, groups of heads, every kind of captured
    // gradient. Those of tables, and those that change with the score, run the general backward
    // behind this forward.
    "b=1 h=2 sq=300 d=128 dtype=bf16 direction=both",
    "b=1 h=2 sq=200 skv=260 d=128 dv=64 dtype=f16 mask=causal direction=both",
    "b=2 h=4 hkv=2 sq=130 skv=300 d=64 dtype=bf16 mask=causal_bottom_right direction=both",
    "b=1 h=2 sq=260 d=96 dtype=bf16 mask=sliding(70) direction=both",
    "b=1 h=2 sq=200 d=64 dtype=bf16 mod=softcap(5) mask=causal direction=both",
    "b=1 h=1 sq=150 d=128 dtype=bf16 dropout=0.2 direction=both",
    "b=1 h=1 sq=150 d=64 dtype=f16 mod=softcap(5) dropout=0.2 direction=both",
    "b=3 h=2 sq=200 d=64 dtype=bf16 qlens=90,200,1 klens=150,17,0 direction=both",
    "h=2 layout=thd cu_q=0,100,100,130,400 cu_k=0,100,120,130,400 sq=270 skv=270 d=64 "
    "dtype=bf16 mask=causal direction=both",
    "b=2 h=2 sq=200 d=64 dtype=bf16 mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\" "
    "grads=q,k,v,t direction=both",
    "b=2 h=2 sq=129 skv=200 d=128 dtype=bf16 mod=\"score + t[k] + u[b,q] + w[h]\" "
    "tensor=\"t:f32[Skv]\" tensor=\"u:f32[B,Sq]\" tensor=\"w:f32[H]\" grads=q,k,v,t,u,w "
    "direction=both",
    "b=2 h=4 hkv=2 sq=200 d=64 dtype=bf16 mod=\"score + w[h] * (k - q)\" mask=causal "
    "tensor=\"w:f32[H]=uniform(0.004,0.5)\" grads=q,k,v,w direction=both",
    "b=1 h=4 hkv=2 sq=130 skv=200 d=64 dtype=f16 mod=\"score + t[h,q] - c * u[h,k]\" scalar=\"c=0.5\" "
    "tensor=\"t:f16[H,Sq]\" tensor=\"u:bf16[H,Skv]\" mask=sliding(50) grads=q,k,v,t,u,c "
    "direction=both",
    "h=2 layout=thd cu_q=0,100,100,130,400 cu_k=0,100,120,130,400 sq=270 skv=270 d=64 dtype=bf16 "
    "mod=\"score + t[b,h] * (k - q) / 99 + u[q]\" tensor=\"t:f32[B,H]\" tensor=\"u:f32[270]\" "
    "grads=q,k,v,t,u direction=both",
    "b=1 h=4 hkv=2 sq=200 skv=400 d=64 dtype=bf16 mask=causal deterministic=1 direction=both",
    "h=2 layout=thd cu_q=0,100,100,130,400 cu_k=0,100,120,130,400 sq=270 skv=270 d=128 "
    "dtype=f16 mask=\"q / 50 == k / 50\" deterministic=1 direction=both",
    "b=1 h=2 sq=200 d=64 dtype=bf16 mod=\"score + t[h, min(abs(k - q), 15)]\" "
    "tensor=\"t:f32[H,16]\" grads=q,k,v,t direction=both",
    // Sums of dS: two tables by distance, one of them with runs of equal elements, and rows that
    // are not whole tiles; a NaN that must stay among the distances of its query; a bias in slices
    // that do not follow one another, and one that no map can have.
    "b=2 h=2 hkv=1 sq=201 skv=330 d=64 dtype=f16 mod=\"score + t[h, k - q + 200] + "
    "u[clamp(k - q, -9, 9) + 9]\" tensor=\"t:f32[H,530]\" tensor=\"u:bf16[19]\" grads=q,k,v,t,u "
    "direction=both",
    "b=1 h=1 sq=200 d=64 dtype=bf16 mask=causal mod=\"score + t[k - q + 199] + (q == 100 ? "
    "sqrt(-1.0) : 0.0)\" tensor=\"t:f32[400]\" grads=q,k,v,t direction=both",
    "b=2 h=2 sq=136 d=64 dtype=f16 mask=causal mod=\"3 * tanh((score + t[q,h,k]) / 3)\" "
    "tensor=\"t:f16[Sq,H,Skv]\" grads=q,k,v,t direction=both",
    "b=2 h=2 sq=130 skv=203 d=64 dtype=bf16 mod=\"score + t[h,q,k]\" "
    "tensor=\"t:bf16[H,Sq,Skv]\" grads=q,k,v,t direction=both",
    // Heads wider than 128 have a backward of their own.
    "b=1 h=2 sq=140 skv=200 d=256 dtype=bf16 mask=causal direction=both",
    "b=1 h=2 hkv=1 sq=100 skv=130 d=192 dv=128 dtype=f16 mask=causal_bottom_right direction=both",
    "b=1 h=1 sq=130 d=160 dv=256 dtype=bf16 mod=softcap(5) dropout=0.2 direction=both",
    "b=3 h=1 sq=150 d=192 dtype=bf16 qlens=90,150,1 klens=130,17,0 direction=both",
    "h=1 layout=thd cu_q=0,70,70,100,200 cu_k=0,100,120,130,200 sq=100 skv=100 d=256 "
    "dtype=bf16 mask=\"q / 50 == k / 50\" direction=both",
    "b=1 h=2 sq=100 skv=130 d=256 dtype=bf16 "
    "mod=\"5 * tanh(score / 5) + t[k] + u[b,q] + w[h] * (k - q)\" tensor=\"t:f32[Skv]\" "
    "tensor=\"u:f32[B,Sq]\" tensor=\"w:f32[H]\" grads=q,k,v,t,u,w direction=both",
    "b=1 h=2 hkv=1 sq=100 skv=200 d=256 dtype=bf16 mask=causal deterministic=1 direction=both",
    "h=1 layout=thd cu_q=0,100,100,130,300 cu_k=0,100,120,130,300 sq=170 skv=170 d=192 dtype=f16 "
    "mask=\"q / 50 == k / 50\" deterministic=1 direction=both",
    // Sums are added from registers, since shared memory has no room for them.
    "b=1 h=2 sq=130 d=256 dtype=bf16 mod=\"score + w[h] * (k - q)\" mask=causal "
    "tensor=\"w:f32[H]=uniform(0.004,0.5)\" grads=q,k,v,w deterministic=1 direction=both",
    "b=1 h=1 sq=100 skv=150 d=256 dtype=bf16 mask=causal mod=\"score + t[k - q + 99] + (q == 70 ? "
    "sqrt(-1.0) : 0.0)\" tensor=\"t:f32[400]\" grads=q,k,v,t direction=both",
    "b=2 h=2 hkv=1 sq=101 skv=170 d=192 dtype=f16 mod=\"4 * tanh((score + t[h, k - q + 100] + "
    "u[clamp(k - q, -9, 9) + 9]) / 4)\" mask=causal tensor=\"t:f32[H,530]\" tensor=\"u:bf16[19]\" "
    "grads=q,k,v,t,u direction=both",
    "b=1 h=2 sq=100 skv=136 d=256 dtype=bf16 mod=\"score + t[h,q,k]\" "
    "tensor=\"t:bf16[H,Sq,Skv]\" grads=q,k,v,t direction=both",
    "b=2 h=2 sq=100 d=192 dtype=bf16 mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\" "
    "grads=q,k,v,t direction=both",
    "b=1 h=2 sq=200 d=64 dtype=bf16 mod=\"score * w[h] + t[a[q]]\" tensor=\"w:f32[H]\" "
    "tensor=\"t:f32[9]\" tensor=\"a:i32[Sq]\" grads=q,k,v,w,t direction=both",
};

// What the mask hides is NaN and Inf: rows that it spreads to are computed again.
constexpr const char* poisoned_lines[] = {
    "b=1 h=2 hkv=1 sq=200 skv=150 d=64 dtype=bf16 mask=\"k % 3 == 1\" mod=softcap(3) sink=1 "
    "direction=both",
    "b=2 h=1 sq=70 skv=150 d=96 dtype=f16 mask=\"k < 100\" dropout=0.3 q_offset=5 direction=both",
    "b=1 h=1 sq=100 skv=150 d=192 dv=40 dtype=bf16 mask=\"h == 1 || k < q - 60 || k > 140\" "
    "mod=\"score - t[h] * (k - q)\" tensor=\"t:f32[H]\" deterministic=1 direction=both",
};

void check(const char* line, bool poisoned) {
  conformance::Case problem;
  problem.line = line;
  problem.data.poison_masked_kv = poisoned;
  EXPECT_EQ(complaint(problem), "") << line;
}

TEST(JitOnHostHopper, LinesOfItsOwn) {
  use_host_gpu();
  const char* const given = std::getenv("FOVEA_TEST_LINE_TEXT");
  if (given != nullptr) return check(given, false);
  const Budget budget(env_number("FOVEA_TEST_SECONDS", default_seconds));
  for (const char* const line : poisoned_lines) {
    if (budget.is_left()) check(line, true);
  }
  for (const char* const line : lines) {
    if (budget.is_left()) check(line, false);
  }
}

}  // namespace
}  // namespace fovea::on_host
