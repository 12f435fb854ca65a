#include "attention/engine.h"

#include "base/error.h"

namespace fovea {

// "head_dim 320, but head_dim <= 256 of cudnn on sm_90: use engine jit, or split the head"
std::string describe(const Reason& reason) {
  std::string out = reason.got;
  if (!reason.limit.empty()) out += (out.empty() ? "" : ", but ") + reason.limit;
  if (out.empty()) out = reason.code;
  if (!reason.advice.empty()) out += ": " + reason.advice;
  return out;
}

void throw_if_refused(const Verdict& verdict) {
  for (const Reason& reason : verdict.reasons) throw Unsupported(describe(reason));
}

double Engine::expected_seconds(const Problem&, const Device&) const { return 0; }

std::string Engine::refuse_stored(const std::string&) const {
  return "engine " + name() + " keeps no plans in files";
}

}  // namespace fovea
