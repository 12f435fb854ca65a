#include "attention/described_plan.h"

#include <utility>

#include "base/error.h"

namespace fovea {
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
