#include "bench/capi/idle_engine.h"

#include <mutex>

#include "attention/engine.h"
#include "ir/lift.h"
#include "planner/planner.h"

namespace fovea::bench {
namespace {

class IdlePlan : public Plan {
 public:
  std::size_t workspace_bytes(const Sizes&) const override { return 4096; }
  std::size_t memory_bytes() const override { return sizeof *this; }
  void run(const Bindings& bindings) const override { benchmark::DoNotOptimize(&bindings); }
};

class IdleEngine : public Engine {
 public:
  std::string name() const override { return idle_engine; }
  Baking bake(const Problem& problem, const Device&) const override {
    ir::Lifted lifted = ir::lift_literals(problem.program);
    Baked baked{problem};
    baked.problem.program = std::move(lifted.program);
    return {std::move(baked), std::move(lifted.literals)};
  }
  Judged judge(const Baked&, const Device&) const override {
    return {{Answer::Expected, {}, 0, ""}};
  }
  std::unique_ptr<Plan> compile(const Baked&, const Judged&, const Device&) const override {
    return std::make_unique<IdlePlan>();
  }
};

}  // namespace

void add_idle_engine() {
  static std::once_flag once;
  std::call_once(once, [] { planner().add({new IdleEngine, /*only_when_named=*/true}); });
}

}  // namespace fovea::bench
