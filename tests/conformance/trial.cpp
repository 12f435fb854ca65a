#include "trial.h"

#include <optional>

namespace fovea::conformance {
namespace {

void add_complaints(const cli::Results& results, std::vector<std::string>& out) {
  for (const cli::Pass* pass : {&results.forward, &results.backward}) {
    for (const std::string& complaint : pass->complaints) out.push_back("it " + complaint);
  }
}

}  // namespace

cli::Results run(const cli::Workload& workload, const std::string& engine,
                 const std::string& device, cli::Threads threads) {
  cli::CallOptions options;
  options.engine = engine;
  options.device = device;
  options.threads = threads;
  return cli::run_workload(workload, options);
}

std::vector<std::string> complaints(const Case& problem, const std::string& engine,
                                    const std::string& device,
                                    std::vector<cli::Comparison>* comparisons) {
  std::vector<std::string> out;
  const cli::Workload workload = cli::make_workload(problem.line, 0, problem.data);
  const cli::Results results = run(workload, engine, device);
  add_complaints(results, out);
  const bool on_cpu = results.forward.engine == "cpu";  // the same bits whoever runs its tasks
  if (on_cpu || workload.config.deterministic != 0) {
    const auto threads = on_cpu ? cli::Threads::OneInTurn : cli::Threads::Own;
    const cli::Results again = run(workload, engine, device, threads);
    add_complaints(again, out);
    for (std::size_t i = 0; i < results.arrays.size(); ++i) {
      if (results.arrays[i].array.bytes == again.arrays.at(i).array.bytes) continue;
      out.push_back(results.arrays[i].name + " differs between " +
                    (on_cpu ? "its own threads and one of the host" : "two runs"));
    }
  }
  // An engine whose own random numbers are the portable ones is held to the reference there, too.
  const std::string line = cli::with_portable_rng(problem.line);
  std::optional<cli::Workload> other;
  if (line != problem.line) other = cli::make_workload(line, 0, problem.data);
  const cli::Workload& portable = other ? *other : workload;
  const auto compared = cli::compare_all(portable, results, run(portable, "reference"));
  for (const cli::Comparison& one : compared) {
    if (!one.within) out.push_back(one.name + ": " + one.complaint);
  }
  if (comparisons != nullptr) *comparisons = compared;
  return out;
}

}  // namespace fovea::conformance
