// What an engine makes of a problem, held to the reference engine. Apart from problems.h, which is
// used beside the library's own Problem.
#pragma once

#include "cli/check/compare.h"
#include "problems.h"

namespace fovea::conformance {

cli::Results run(const cli::Workload& workload, const std::string& engine,
                 const std::string& device = "cpu", cli::Threads threads = cli::Threads::Own);

// Runs it and says in words what is wrong: outputs that were left unwritten or written past their
// ends, numbers beyond the limits of the reference engine, and bits that differ between two runs
// with deterministic=1, or, on engine cpu always, between its own threads and one of the host's.
// None: it is right. `comparisons` gets those with the reference, if it is not null.
std::vector<std::string> complaints(const Case& problem, const std::string& engine,
                                    const std::string& device = "cpu",
                                    std::vector<cli::Comparison>* comparisons = nullptr);

}  // namespace fovea::conformance
