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
bool has_modifier(const Problem& p) { return static_cast<bool>(p.program.mod()); }
bool is_packed(const Problem& p) { return p.layout == Layout::Thd; }

constexpr std::array<Row, 3> rows{{
    // Release notes of 9.10.2.
    {91000, 91001, 80, 129, any_attention, "attention is wrong in cuDNN 9.10.0 and 9.10.1",
     "use cuDNN 9.10.2 or newer"},
    // Modifiers and plans from a description of the device appeared step by step until then.
    {0, 91099, 80, 129, has_modifier, "score modifiers need cuDNN 9.11 or newer here",
     "use cuDNN 9.19"},
    // int32 overflow of ragged offsets, fixed in 9.12.
    {0, 91199, 90, 90, is_packed, "packed sequences overflow 32-bit offsets before cuDNN 9.12",
     "use cuDNN 9.19"},
}};

}  // namespace

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
