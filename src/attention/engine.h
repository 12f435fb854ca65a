// The contracts of engines and plans. An engine says whether it can run a Problem and why not,
// what of the Problem a plan would depend on, and compiles that into a plan.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attention/bindings.h"
#include "attention/device.h"
#include "attention/problem.h"
#include "ir/lift.h"

namespace fovea {

// Why an engine cannot: for people, and by code for programs.
struct Reason {
  std::string code;    // stable, snake_case: "head_dim_too_large"
  std::string limit;   // "head_dim <= 256 of cudnn on sm_90"
  std::string got;     // "head_dim 320"
  std::string advice;  // "use engine jit, or split the head"
};
// "head_dim 320, but head_dim <= 256 of cudnn on sm_90: use engine jit, or split the head"
std::string describe(const Reason& reason);

enum class Answer : std::uint8_t {
  Proven,    // a build or a library's own check has shown it
  Expected,  // by the engine's rules
  No,        // with reasons
};

struct Verdict {
  Answer answer = Answer::No;
  std::vector<Reason> reasons;  // of a No
  double cost = 0;              // expected time in seconds, to order engines by; 0: unknown
  std::string note;             // "supported, but slow: ..."
};

// Throws Unsupported with the first reason of a No.
void throw_if_refused(const Verdict& verdict);

// A verdict with what the engine worked out to reach it, so that compile() need not do so again.
struct Judged : Verdict {
  std::shared_ptr<const void> lowered{};  // the engine's own; may be null
};

// What a plan may depend on: the Problem with everything that the engine does not bake set to its
// default. It is the cache key, compared in full, and all that compile() gets.
struct Baked {
  Problem problem;
  bool operator==(const Baked&) const = default;
};

// Literals are lifted out of the formulas into scalars behind the declared ones (ir/lift), so that
// a new value needs no new plan; their values are bound with each call.
struct Baking {
  Baked baked;
  std::vector<float> literals;
};

class Plan {
 public:
  virtual ~Plan() = default;
  virtual std::size_t workspace_bytes(const Sizes& sizes) const = 0;
  virtual std::size_t memory_bytes() const = 0;  // that the plan itself holds, for the cache
  // Allocates, builds and locks nothing; safe from many threads. The Bindings are validated.
  virtual void run(const Bindings& bindings) const = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;
  // Whether it runs tangents; if not, it is never asked about one.
  virtual bool has_tangents() const { return false; }
  // Never refuses: judge() says what cannot be run.
  virtual Baking bake(const Problem& problem, const Device& device) const = 0;
  // Takes microseconds and builds nothing.
  virtual Judged judge(const Baked& baked, const Device& device) const = 0;
  // How long a call will take, to order engines by; 0: unknown. Of the whole Problem, since plans
  // need not depend on sizes. Takes microseconds and changes no verdict.
  virtual double expected_seconds(const Problem& problem, const Device& device) const;
  // As judge(), but certain: builds, or asks the library. The answer is remembered.
  virtual Judged prove(const Baked& baked, const Device& device) const {
    return judge(baked, device);
  }
  // `judged` is what judge() or prove() said of the same. Throws Unsupported if that is a No.
  virtual std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                        const Device& device) const = 0;
  // Whether the plans of a training pair are built at the same time, by two threads, as soon as the
  // forward's is asked for: worth it if compile() takes seconds of one thread.
  virtual bool builds_pairs_at_once() const { return false; }
  // Whether compile() keeps what it makes in src/store, for other processes.
  virtual bool keeps_plans() const { return false; }
  // Why plans that were stored with this environment in their keys cannot be used by this process
  // ("its plans are for cudnn 9.18.0, here is cudnn 9.19.0"); empty: they are. Asked before a
  // bundle is loaded.
  virtual std::string refuse_stored(const std::string& environment) const;
};

// Verdicts that building has proven, for judge() to repeat. Bounded; safe from many threads.
class Proofs {
 public:
  std::optional<Verdict> find(const Baked& baked, const Device& device) const;
  void keep(const Baked& baked, const Device& device, const Verdict& verdict);

 private:
  struct Proof {
    Baked baked;
    Device device;
    Verdict verdict;
  };
  mutable std::mutex mutex_;
  std::multimap<std::uint64_t, Proof> proofs_;
};

// A plan for a GPU that is described and not here: it was compiled and stored, and cannot run.
std::unique_ptr<Plan> make_described_plan(const Device& device);

// bake() of engines whose plans depend on the formulas, types and features of a Problem alone. They
// read all else (sizes, strides, scale, offsets, values) from Bindings at every call, so that it
// never needs another plan. With Shifts::Lift that includes numbers that only shift positions:
// worth it if a plan takes seconds to compile.
Baking bake_for_host(const Problem& problem, ir::Shifts shifts = ir::Shifts::Stay);

// judge() of engines that run on a CPU alone: adds a reason if the device is none.
void refuse_other_devices(const std::string& engine, const Device& device, Verdict& verdict);

}  // namespace fovea
