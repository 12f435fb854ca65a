#include "engines/cudnn/known_bad.h"

#include <array>

#include "cuda/libraries.h"

namespace fovea::cudnn {
namespace {

struct Row {
  int first_version, last_version;  // of cuDNN, both included
  int first_sm, last_sm;
  bool (*concerns)(const Problem& problem);
  const char* what;
  const char* advice;
};

bool any_attention(const Problem&) { return true; }
bool packed(const Problem& problem) { return problem.layout == Layout::Thd; }

// Only what is known.
constexpr std::array<Row, 2> rows{{
    // cudnn-frontend refuses these versions too. Can go when nobody has them.
    {91000, 91001, 80, 129, any_attention, "attention is wrong in cuDNN 9.10.0 and 9.10.1",
     "use cuDNN 9.10.2 or newer"},
    // Its backward on sm_90 read a workspace that it had not cleared where there were rows between
    // sequences (Transformer Engine's issue 2186); sm_8x has packed sequences since 9.18.1.
    {90000, 91800, 80, 129, packed, "packed sequences are not right before cuDNN 9.18.1",
     "use cuDNN 9.18.1 or newer, or pad the sequences and give their lengths"},
}};

// All seen in 9.19.0 on sm_90, by the conformance list. Nobody has looked at later versions and at
// other architectures: a row ends where `./dev gpu` passes without it.
constexpr int not_yet = 99999;
struct Avoided {
  bool Avoid::* what;
  int first_version, last_version;
  int first_sm, last_sm;
};
constexpr std::array<Avoided, 5> avoided{{
    {&Avoid::narrow_inputs, 90000, not_yet, 80, 129},
    {&Avoid::row_comparisons, 90000, not_yet, 80, 129},
    {&Avoid::bias_beside_modifier, 90000, not_yet, 80, 129},
    {&Avoid::unused_score, 90000, not_yet, 80, 129},
    {&Avoid::scattered_rows, 90000, not_yet, 80, 129},
}};

}  // namespace

Avoid what_to_avoid(int version, int sm) {
  Avoid avoid{false, false, false, false, false};
  for (const Avoided& row : avoided) {
    const bool concerned = version >= row.first_version && version <= row.last_version &&
                           sm >= row.first_sm && sm <= row.last_sm;
    if (concerned) avoid.*row.what = true;
  }
  return avoid;
}

std::vector<Reason> known_bad(int version, int sm, const Problem& problem) {
  std::vector<Reason> reasons;
  for (const Row& row : rows) {
    if (version < row.first_version || version > row.last_version) continue;
    if (sm < row.first_sm || sm > row.last_sm || !row.concerns(problem)) continue;
    reasons.push_back({"known_bad", row.what, "cuDNN " + cuda::version_text(version), row.advice});
  }
  return reasons;
}

}  // namespace fovea::cudnn
