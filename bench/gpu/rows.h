// The rows of bench/gpu/<tier>_rows.txt: problem lines with what a peer takes, and how much of that
// ours may take.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fovea::bench {

struct Goal {
  std::optional<double> peer_ms, bar;
};

struct BenchRow {
  std::string name, peer, line;
  Goal forward, backward;
};

std::vector<BenchRow> read_rows(
    const std::string& tier);  // throws std::runtime_error that names the line

// Those whose name is among `wanted` or starts with one of them; all of them if it is empty.
std::vector<BenchRow> rows_named(const std::string& tier, const std::vector<std::string>& wanted);

}  // namespace fovea::bench
