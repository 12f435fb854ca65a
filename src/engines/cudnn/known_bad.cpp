#include "engines/cudnn/known_bad.h"

#include <array>

namespace fovea::cudnn {
namespace {

// Seen in 9.19.0 on sm_90, by the conformance list. On another version or architecture
// `./dev gpu known-bad` says which rows it needs.
struct Avoided {
  bool Workarounds::* what;
  int first_version, last_version;
  int first_sm, last_sm;
};
constexpr std::array<Avoided, 5> avoided{{
    {&Workarounds::narrow_inputs, 91900, 91999, 90, 90},
    {&Workarounds::row_comparisons, 91900, 91999, 90, 90},
    {&Workarounds::bias_beside_modifier, 91900, 91999, 90, 90},
    {&Workarounds::unused_score, 91900, 91999, 90, 90},
    {&Workarounds::scattered_rows, 91900, 91999, 90, 90},
}};

const Workarounds* replaced = nullptr;

}  // namespace

void replace_workarounds(const Workarounds* avoid) { replaced = avoid; }

Workarounds workarounds_for(int version, int sm) {
  if (replaced != nullptr) return *replaced;
  Workarounds avoid{false, false, false, false, false};
  for (const Avoided& row : avoided) {
    const bool concerned = version >= row.first_version && version <= row.last_version &&
                           sm >= row.first_sm && sm <= row.last_sm;
    if (concerned) avoid.*row.what = true;
  }
  return avoid;
}

}  // namespace fovea::cudnn
