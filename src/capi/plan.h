// Plans as calls use them, and the plans that a problem's handle was last asked for: a call that
// plans and runs finds its plan by comparing a few words instead of the whole problem. The cache of
// plans decides how long a plan is kept.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/device.h"
#include "attention/engine.h"
#include "attention/validate.h"
#include "fovea/fovea.h"

namespace fovea::capi {

// What calls need besides the plan. Shared by all handles that were made for the same words.
struct PlanFacts {
  std::shared_ptr<const Problem> problem;
  CallRules rules;  // of *problem
  std::string engine;
  std::vector<float> literals;  // of this problem
  DeviceKind device = DeviceKind::Cpu;
  std::string described_as;  // the name of a device that is only described: nothing can run there
  // Set by the first call that is compared with the reference engine.
  std::shared_ptr<std::atomic_flag> verified = std::make_shared<std::atomic_flag>();
};

struct FoundPlan {
  std::shared_ptr<const PlanFacts> facts;
  std::shared_ptr<const Plan> plan;
};

// The engine, device and partner that a caller names.
struct PlanWords {
  std::string_view engine;  // empty: the planner's choice
  std::string_view device = "cpu";
  const std::shared_ptr<const Problem>& partner;
};

// Safe from many threads.
class RecentPlans {
 public:
  // A plan that was made for these words and that the cache still holds: a hit there.
  std::optional<FoundPlan> find(const PlanWords& words) const;
  void remember(const PlanWords& words, const FoundPlan& found);

 private:
  struct RecentPlan {
    std::string engine, device;
    std::shared_ptr<const Problem> partner;
    std::shared_ptr<const PlanFacts> facts;  // null: nothing here
    std::weak_ptr<const Plan> plan;          // memory is the cache's to keep or give back
    bool is_for(const PlanWords& words) const {
      return facts && engine == words.engine && device == words.device && partner == words.partner;
    }
  };

  mutable std::mutex mutex_;
  std::array<RecentPlan, 2> entries_;  // of one device mostly
  std::size_t next_ = 0;               // to be replaced
};

}  // namespace fovea::capi

struct fovea_plan_s : fovea::capi::FoundPlan {};
