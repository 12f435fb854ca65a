// `fovea bench`: how long problem lines take, forward and backward.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>

#include "cli/check/call.h"
#include "cli/check/gradient_check.h"
#include "cli/verbs/table.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string line;
  CallOptions call;
};

// A file has one line each; what starts with # is a comment.
std::vector<std::string> lines_of(const std::string& line_or_file) {
  if (!std::filesystem::is_regular_file(line_or_file)) return {line_or_file};
  std::ifstream in(line_or_file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') lines.push_back(line);
  }
  if (lines.empty()) throw std::invalid_argument("the file '" + line_or_file + "' has no lines");
  return lines;
}

double tensor_bytes(const Workload& workload, const Results& results) {
  double sum = 0;
  for (const auto& arrays : {input_arrays(workload), results.arrays}) {
    for (const NamedArray& named : arrays) sum += static_cast<double>(named.array.bytes.size());
  }
  return sum;
}

void add_row(Table& table, const char* direction, const Pass& pass, double flops, double bytes) {
  if (!pass.ran) return;
  const double median = pass.seconds[pass.seconds.size() / 2];
  table.add({direction, pass.engine, time_text(median), time_text(pass.seconds.front()),
             std::to_string(pass.seconds.size()), rate_text(flops / median), bytes_text(bytes),
             bytes_text(static_cast<double>(pass.workspace_bytes))});
}

void run(const Options& options) {
  const std::vector<std::string> lines = lines_of(options.line);
  Progress progress("benchmarks");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    progress.show(static_cast<double>(i) / static_cast<double>(lines.size()));
    const Workload workload = make_workload(lines[i], 0);
    run_workload(workload, {options.call.engine, options.call.device, 1, 0});  // warms up
    const Results results = run_workload(workload, options.call);
    const double forward = 2 * forward_work(workload);
    const double bytes = tensor_bytes(workload, results);
    Table table(
        {"direction", "engine", "median", "fastest", "runs", "rate", "tensors", "workspace"});
    add_row(table, "forward", results.forward, forward, bytes);
    add_row(table, "backward", results.backward, 2.5 * forward, bytes);
    std::cout << "\r" << lines[i] << "\n" << table.text() << std::flush;
  }
  std::cout << "(the rate counts every score, masked or not: 2 products forward, 5 backward)\n";
}

}  // namespace

void add_bench(CLI::App& program) {
  Verb verb(program, "bench", "Time a problem line, or each line of a file");
  const auto options = std::make_shared<Options>();
  options->call.seconds = 1;
  verb.option("LINE", options->line, "A problem line, or a file of them").required();
  verb.option("--engine", options->call.engine, "The engine; without, the fastest that can");
  verb.option("--device", options->call.device, "Where: cpu, or a GPU: cuda:0").tell_default();
  verb.option("--seconds", options->call.seconds, "How long each direction is repeated")
      .between(0.0, 3600.0)
      .tell_default();
  verb.footer(
      "Examples:\n"
      "  fovea bench 'b=1 h=8 sq=256 d=64 mask=causal direction=both'\n"
      "  fovea bench 'b=4 h=16 sq=4096 d=128 dtype=bf16 mask=causal' --device cuda:0\n"
      "  fovea bench lines.txt --seconds 5");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
