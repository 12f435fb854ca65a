// The modifiers and masks that benchmarks of single calls have in common.
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

}  // namespace fovea::bench
