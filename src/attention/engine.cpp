#include "attention/engine.h"

#include <utility>

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

namespace {

class DescribedPlan : public Plan {
 public:
  explicit DescribedPlan(std::string name) : name_(std::move(name)) {}
  std::size_t workspace_bytes(const Sizes&) const override { return 0; }
  std::size_t memory_bytes() const override { return sizeof *this; }
  void run(const Bindings&) const override {
    throw DeviceError("this plan was compiled for " + name_ +
                      ", which is described and not here: run it on device cuda:N");
  }

 private:
  std::string name_;
};

}  // namespace

std::unique_ptr<Plan> make_described_plan(const Device& device) {
  return std::make_unique<DescribedPlan>(device.name);
}

}  // namespace fovea
