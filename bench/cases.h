// The modifiers and masks that benchmarks have in common.
#pragma once

namespace fovea::bench {

struct Case {
  const char* name;
  const char* words;  // of a problem line
};

inline constexpr Case cases[] = {
    {"none", ""},
    {"causal", "mask=causal"},
    {"softcap", "mod=softcap(20)"},
    {"alibi", "mod=alibi"},
    {"bias", "mod=\"score + t[h,q,k]\" tensor=\"t:bf16[H,Sq,Skv]\""},
    {"relative", "mod=\"score + (q - k)\""},
    {"sliding", "mask=sliding(1024)"},
    {"softcap+causal", "mod=softcap(20) mask=causal"},
    {"alibi+causal", "mod=alibi mask=causal"},
};
inline constexpr int plain_cases = 7;  // the first of them: one modifier or one mask

// About forty operations, with three captured tensors and three scalars: soft cap, ALiBi, a learned
// bias by clipped distance, a gate by tanh and a learned temperature, under a mask.
inline constexpr const char* long_formula =
    "mod=\"let d = q - k; let t = score / temperature[h]; "
    "let capped = softcap * tanh(t / softcap); let near = clamp(d, -64, 64) + 64; "
    "let gate = sigmoid(gain * tanh(f32(d) * 0.01) + shift); "
    "d < 512 ? capped + slopes[h] * (k - q) + gate * table[h, near] : capped - softplus(t) * 0.5\" "
    "mask=\"q >= k\" tensor=temperature:f32[H] tensor=slopes:f32[H] tensor=table:f32[H,129] "
    "scalar=softcap=30 scalar=gain=2 scalar=shift=0.1";

}  // namespace fovea::bench
