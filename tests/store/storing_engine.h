// An engine that keeps its plans, which are texts, in the process's store: what bundles and their
// verb are tested with if there is no GPU library. For GPUs alone, so that other tests of the
// process do not meet it.
#pragma once

#include <csignal>
#include <string>

#include "attention/problem_text.h"
#include "tests/planner/fake_engine.h"
#include "tests/store/store_case.h"

namespace fovea::testing {

class StoringEngine : public FakeEngine {
 public:
  StoringEngine() : FakeEngine("fake") {
    record = false;
    verdict = [](const Baked& baked) {
      if (baked.problem.sizes.d > 256) return refusal("d_too_large");
      return Verdict{Answer::Expected, {}, 0, ""};
    };
  }

  std::string environment = "fake 1.0 sm_90";

  Judged judge(const Baked& baked, const Device& device) const override {
    if (device.kind == DeviceKind::Cpu) return {refusal("no_gpu")};
    return FakeEngine::judge(baked, device);
  }
  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& from,
                                const Device& device) const override {
    const std::string line = print(baked.problem);
    if (baked.problem.sizes.h == 13) std::raise(SIGKILL);  // as a library that aborts
    if (baked.problem.sizes.h == 17) throw DeviceError("fake: the device is on fire");
    store::get_or_build({"fake", environment, line}, [&] {
      ++built;
      return store::testing::blob_of("plan of " + line);
    });
    return FakeEngine::compile(baked, from, device);
  }
  bool keeps_plans() const override { return true; }
  std::string refuse_stored(const std::string& of) const override {
    return of == environment ? "" : "its plans are for " + of + ", here is " + environment;
  }

  mutable std::atomic<int> built{0};
};

// Gives the process's store a folder of its own, before it is first used. Its path.
inline std::string use_own_folder() {
  static const store::testing::TemporaryFolder folder;
  static const bool set = ::setenv("FOVEA_CACHE_DIR", folder.path("cache").c_str(), 1) == 0;
  return set ? store::plan_store().disk().choice().path : "";
}

// One for the process, known to its planner.
inline StoringEngine& storing_engine() {
  static StoringEngine& known = []() -> StoringEngine& {
    use_own_folder();
    static StoringEngine engine;
    planner().add({&engine});
    return engine;
  }();
  return known;
}

}  // namespace fovea::testing
