#include "engines/cudnn/known_bad.h"

#include <array>

namespace fovea::cudnn {
namespace {

// Where something was seen: first and last are both included.
struct Seen {
  int first_version, last_version;  // of cuDNN
  int first_sm, last_sm;
  bool covers(int version, int sm) const {
    return version >= first_version && version <= last_version && sm >= first_sm && sm <= last_sm;
  }
};

struct SeenWrong {
  WrongFeature feature;
  Seen seen;
};
constexpr std::array<SeenWrong, 2> seen_wrong{{
    // cudnn-frontend refuses these versions too. Can go when nobody has them.
    {{"attention is wrong in cuDNN 9.10.0 and 9.10.1", "use cuDNN 9.10.2 or newer"},
     {91000, 91001, 80, 129}},
    // Its backward on sm_90 read a workspace that it had not cleared if there were rows between
    // sequences (Transformer Engine's issue 2186); sm_8x has packed sequences since 9.18.1.
    {{"packed sequences are not right before cuDNN 9.18.1",
      "use cuDNN 9.18.1 or newer, or pad the sequences and give their lengths",
      /*packed_only=*/true},
     {90000, 91800, 80, 129}},
}};

struct Avoided {
  bool Workarounds::* what;
  Seen seen;
};

// By the conformance list. On another version or architecture `./dev gpu known-bad` says which rows
// it needs.
constexpr std::array<Avoided, 5> avoided{{
    {&Workarounds::narrow_inputs, {91900, 91999, 90, 90}},
    {&Workarounds::row_comparisons, {91900, 91999, 90, 90}},
    {&Workarounds::bias_beside_modifier, {91900, 91999, 90, 90}},
    {&Workarounds::unused_score, {91900, 91999, 90, 90}},
    {&Workarounds::scattered_rows, {91900, 91999, 90, 90}},
}};

const Workarounds* replaced = nullptr;

}  // namespace

std::vector<WrongFeature> wrong_features(int version, int sm) {
  std::vector<WrongFeature> out;
  for (const SeenWrong& row : seen_wrong) {
    if (row.seen.covers(version, sm)) out.push_back(row.feature);
  }
  return out;
}

void replace_workarounds(const Workarounds* avoid) { replaced = avoid; }

Workarounds workarounds_for(int version, int sm) {
  if (replaced != nullptr) return *replaced;
  Workarounds avoid{false, false, false, false, false};
  for (const Avoided& row : avoided) avoid.*row.what = row.seen.covers(version, sm);
  return avoid;
}

}  // namespace fovea::cudnn
