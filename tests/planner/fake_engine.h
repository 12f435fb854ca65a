// An engine that does what a test tells it to, and counts what it was asked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "attention/engine.h"
#include "attention/problem_text.h"
#include "base/error.h"
#include "ir/lift.h"
#include "planner/planner.h"

namespace fovea::testing {

class FakePlan : public Plan {
 public:
  FakePlan(std::size_t bytes, std::function<void(const Bindings&)> work,
           std::shared_ptr<std::atomic<int>> alive)
      : bytes_(bytes), work_(std::move(work)), alive_(std::move(alive)) {
    ++*alive_;
  }
  ~FakePlan() override { --*alive_; }
  std::size_t workspace_bytes(const Sizes&) const override { return 0; }
  std::size_t memory_bytes() const override { return bytes_; }
  void run(const Bindings& bindings) const override {
    if (work_) work_(bindings);
  }

 private:
  std::size_t bytes_;
  std::function<void(const Bindings&)> work_;
  std::shared_ptr<std::atomic<int>> alive_;
};

class FakeEngine : public Engine {
 public:
  explicit FakeEngine(std::string name) : name_(std::move(name)) {}

  // What the test sets before it asks.
  std::function<Verdict(const Baked&)> verdict = [](const Baked&) {
    return Verdict{Answer::Expected, {}, 0, ""};
  };
  std::function<void()> while_compiling = [] {};
  std::function<void(const Bindings&)> work;
  bool bakes_sizes = true;
  bool pairs_at_once = false;

  // What it was asked.
  mutable std::atomic<int> bakes{0}, judged{0}, proven{0}, compiled{0};
  mutable Baked last_judged, last_compiled;
  std::shared_ptr<std::atomic<int>> plans_alive = std::make_shared<std::atomic<int>>(0);

  std::string name() const override { return name_; }
  Baking bake(const Problem& problem, const Device&) const override {
    ++bakes;
    ir::Lifted lifted = ir::lift_literals(problem.program);
    Baked out{problem};
    out.problem.program = std::move(lifted.program);
    if (!bakes_sizes) out.problem.sizes = {};
    return {std::move(out), std::move(lifted.literals)};
  }
  Judged judge(const Baked& baked, const Device&) const override {
    if (record) last_judged = baked;
    ++judged;
    return {verdict(baked), std::make_shared<const Baked>(baked)};
  }
  Judged prove(const Baked& baked, const Device& device) const override {
    ++proven;
    Judged out = judge(baked, device);
    if (out.answer == Answer::Expected) out.answer = Answer::Proven;
    return out;
  }
  bool builds_pairs_at_once() const override { return pairs_at_once; }
  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& from,
                                const Device&) const override {
    const auto* const lowered = static_cast<const Baked*>(from.lowered.get());
    if (lowered == nullptr || *lowered != baked) throw InternalError("judged something else");
    if (record) last_compiled = baked;
    ++compiled;
    while_compiling();
    return std::make_unique<FakePlan>(plan_bytes, work, plans_alive);
  }

  bool record = true;  // not from many threads
  std::size_t plan_bytes = 100;

 private:
  std::string name_;
};

inline Problem problem_of(const std::string& line) {
  ProblemLine parsed = parse_problem_line(line);
  return parsed.forward ? *parsed.forward : *parsed.backward;
}

inline Device device_named(const std::string& name) {
  Device device;
  device.name = name;
  return device;
}

inline Verdict refusal(const std::string& code) {
  return {Answer::No, {{code, "limit of " + code, "got of " + code, "advice for " + code}}, 0, ""};
}

constexpr int thread_count = 16;

inline void in_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace fovea::testing
