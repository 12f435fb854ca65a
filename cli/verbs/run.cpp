// `fovea run`: runs a line on an engine, checks it against the reference, writes its tensors.
// `fovea bench`: how long lines take, forward and backward.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/check/call.h"
#include "cli/check/compare.h"
#include "cli/check/gradient_check.h"
#include "cli/verbs/table.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

// What --check found.
struct Checks {
  std::vector<Comparison> comparisons;
  std::vector<GradientCheck> differences;
  std::string differences_left_out;  // why; "" if they were not
};

std::string shape_text(const Array& array) {
  std::string out;
  for (const std::int64_t extent : array.extents) {
    out += (out.empty() ? "" : ",") + std::to_string(extent);
  }
  return "[" + out + "]";
}

// Of the finite elements; the others are counted.
std::string norm_text(const Array& array) {
  double sum = 0;
  std::int64_t other = 0;
  for (std::int64_t i = 0; i < array.size(); ++i) {
    const double x = array.get(i);
    std::isfinite(x) ? sum += x * x : ++other;
  }
  const std::string norm = number_text(std::sqrt(sum), 7);
  return other == 0 ? norm : norm + " (" + std::to_string(other) + " not finite)";
}

std::string checksum_text(const Array& array) {  // FNV-1a of the bytes
  std::uint32_t hash = 2166136261u;
  for (const unsigned char byte : array.bytes) hash = (hash ^ byte) * 16777619u;
  char text[16];
  std::snprintf(text, sizeof text, "%08x", hash);
  return text;
}

double median(const Pass& pass) { return pass.seconds[pass.seconds.size() / 2]; }

std::string pass_text(const char* name, const Pass& pass) {
  if (!pass.ran) return "";
  std::string out = std::string(name) + ": engine " + pass.engine + ", " + time_text(median(pass));
  if (pass.seconds.size() > 1) {
    out += " (median of " + std::to_string(pass.seconds.size()) + ", fastest " +
           time_text(pass.seconds.front()) + ")";
  }
  return out + ", workspace " + bytes_text(static_cast<double>(pass.workspace_bytes)) + "\n";
}

template <class Check>
std::string verdict_text(const Check& check) {
  return check.within ? "ok" : "FAILED: " + check.complaint;
}

template <class Check>
std::string failures(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& one : checks) {
    if (!one.within) out += "; " + one.name + " FAILED: " + one.complaint;
  }
  return out;
}

std::string error_text(const std::vector<Comparison>& comparisons) {
  const Comparison* worst = nullptr;
  for (const Comparison& one : comparisons) {
    const bool worse =
        worst == nullptr || one.relative / one.limit > worst->relative / worst->limit;
    if (worse) worst = &one;
  }
  if (worst == nullptr) return "not checked";
  return std::to_string(comparisons.size()) + " tensors, the worst is " + worst->name + ": " +
         number_text(worst->relative) + " (limit " + number_text(worst->limit) + ")" +
         failures(comparisons);
}

std::string gradient_text(const Checks& checks) {
  if (checks.differences.empty()) return "left out: " + checks.differences_left_out;
  double worst = 0;
  int samples = 0;
  std::string names;
  for (const GradientCheck& one : checks.differences) {
    worst = std::max(worst, one.error);
    samples += one.samples;
    names += (names.empty() ? "" : " ") + one.name;
  }
  return names + ": within " + number_text(worst) + " of finite differences (" +
         std::to_string(samples) + " samples)" + failures(checks.differences);
}

bool all_within(const Checks& checks) {
  return std::ranges::all_of(checks.comparisons, &Comparison::within) &&
         std::ranges::all_of(checks.differences, &GradientCheck::within);
}

// Shape, type, norm and checksum of each.
std::string outputs_text(const Results& results) {
  Table table({"output", "shape", "type", "norm", "checksum"});
  for (const NamedArray& named : results.arrays) {
    table.add({named.name, shape_text(named.array), named.array.dtype, norm_text(named.array),
               checksum_text(named.array)});
  }
  return table.text();
}

// Engine, time, workspace.
std::string passes_text(const Results& results) {
  return pass_text("forward", results.forward) + pass_text("backward", results.backward);
}

// "" if memory was left alone.
std::string complaints_text(const Results& results) {
  std::string out;
  for (const Pass* pass : {&results.forward, &results.backward}) {
    for (const std::string& one : pass->complaints) {
      out += "the engine " + pass->engine + " " + one + "\n";
    }
  }
  return out;
}

std::string checks_text(const Checks& checks) {
  Table table({"check", "relative error", "worst element", "limit", "verdict"});
  for (const Comparison& c : checks.comparisons) {
    table.add({c.name, number_text(c.relative), number_text(c.worst), number_text(c.limit),
               verdict_text(c)});
  }
  std::string out = "\nagainst the reference engine\n" + table.text();
  if (checks.differences.empty()) {
    return checks.differences_left_out.empty()
               ? out
               : out + "\nfinite differences left out: " + checks.differences_left_out + "\n";
  }
  Table differences({"gradient", "samples", "kinks left out", "error", "verdict"});
  for (const GradientCheck& c : checks.differences) {
    differences.add({c.name, std::to_string(c.samples), std::to_string(c.kinks),
                     number_text(c.error), verdict_text(c)});
  }
  return out + "\nthe backward against finite differences of the forward, in double precision\n" +
         differences.text();
}

// For --brief. Engine, why it, time, error, gradient check: a line each.
std::string brief_text(const std::string& why, const Results& results, const Checks& checks) {
  std::string engine = results.forward.engine, time = time_text(median(results.forward));
  if (results.backward.ran) {
    if (results.backward.engine != engine) engine += " and " + results.backward.engine;
    time = "forward " + time + ", backward " + time_text(median(results.backward));
  }
  Table table({"engine", engine});
  table.add({"why", why});
  table.add({"time", time});
  table.add({"against the reference", error_text(checks.comparisons)});
  if (results.backward.ran) table.add({"gradients", gradient_text(checks)});
  return table.text();
}

struct Options {
  std::string line, dump;
  CallOptions call;
  DataOptions data;
  std::uint64_t seed = 0;
  bool check = false, brief = false;
};

// Why this engine: what the planner says, or that it was named, with what the planner would say.
std::string reason_for(const Workload& workload, const CallOptions& call) {
  const std::string text = explain(*workload.forward, {"", call.device});
  const std::size_t row = text.find("\nengine ");  // "engine   cpu: cpu is the fastest ..."
  const std::size_t start = text.find(": ", row) + 2;
  const std::string why = text.substr(start, text.find('\n', start) - start);
  return call.engine.empty() ? why : "it was named; otherwise " + why;
}

std::string differences_left_out(const Workload& workload, bool reference) {
  // The T5 bucket formula took 2.3 s for 2e5 on two busy cores: at worst some twenty seconds.
  constexpr double most = 2e6;
  if (!workload.backward) return "there is no backward";
  if (!reference) return "they check the reference engine; see --engine reference";
  const double work = forward_work(workload);
  if (work <= most) return "";
  return number_text(work) + " multiplications a forward is more than " + number_text(most) +
         "; give smaller sizes";
}

Checks run_checks(const Workload& workload, const Options& options, const Results& results) {
  constexpr int samples = 8;
  Checks checks;
  // The generator of engine cpu is the portable one, so its draws can be checked.
  const bool same_draws = results.forward.engine == "cpu";
  const Workload checked =
      same_draws ? make_workload(with_portable_rng(options.line), options.seed, options.data)
                 : make_workload(options.line, options.seed, options.data);
  const Results reference = run_workload(checked, {"reference", "cpu", 1, 0});
  checks.comparisons = compare_all(workload, results, reference);
  const bool wanted = results.forward.engine == "reference" || options.brief;
  checks.differences_left_out = differences_left_out(workload, wanted);
  if (!checks.differences_left_out.empty()) return checks;
  Progress progress("finite differences");
  checks.differences =
      check_gradients(workload, samples, [&](double share) { progress.show(share); });
  return checks;
}

void dump(const Workload& workload, const Results& results, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error("--dump " + folder + ": " + error.message());
  std::size_t count = 0;
  for (const auto& arrays : {input_arrays(workload), results.arrays}) {
    for (const NamedArray& named : arrays) {
      write_npy(folder + "/" + named.name + ".npy", named.array);
      ++count;
    }
  }
  std::cout << "\nwrote " << count << " arrays to " << folder << "/\n";
}

void run(const Options& options) {
  const Workload workload = make_workload(options.line, options.seed, options.data);
  const Results results = run_workload(workload, options.call);
  const std::string complaints = complaints_text(results);
  if (!options.brief) std::cout << outputs_text(results) << passes_text(results);
  std::cout << complaints;
  if (!options.dump.empty()) dump(workload, results, options.dump);
  const bool checked = options.check || options.brief;
  const Checks checks = checked ? run_checks(workload, options, results) : Checks{};
  const bool right = complaints.empty() && all_within(checks);
  if (options.brief) {
    std::cout << brief_text(reason_for(workload, options.call), results, checks);
  } else if (checked) {
    std::cout << checks_text(checks);
  }
  if (checked) std::cout << (right ? "\nall within the limits\n" : "\nNOT within the limits\n");
  if (!right) throw Failed();
}

}  // namespace

void add_run(CLI::App& program) {
  Verb verb(program, "run",
            "Run a problem line, check it against the reference, write its tensors");
  const auto options = std::make_shared<Options>();
  verb.option("LINE", options->line, "A problem line: b=2 h=8 sq=256 mod=\"...\"; or a formula")
      .required();
  verb.option("--engine", options->call.engine, "An engine by name; default: the fastest");
  verb.option("--device", options->call.device, "cpu, or a GPU: cuda:0").tell_default();
  verb.flag("--check", options->check,
            "Compare all outputs and gradients with the reference engine; exit 1 if any is wrong");
  verb.flag("--brief", options->brief, "Check, and print only a summary");
  verb.option("--dump", options->dump, "Write every input, output and gradient here, as .npy");
  verb.option("--seed", options->seed, "Seed of the data; default: the line's seed, or 1");
  verb.option("--repeat", options->call.repeat, "Run this many times and print the median time")
      .between(1, 1000000)
      .tell_default();
  verb.flag("--poison-masked", options->data.poison_masked_kv,
            "Put NaN and Inf into keys and values that the mask hides from every query");
  verb.flag("--spread-captured", options->data.spread_captured,
            "Put gaps between the elements of captured tensors");
  verb.footer(
      "Examples:\n"
      "  fovea run 'b=2 h=8 hkv=2 sq=64 d=32 mask=causal direction=both' --check\n"
      "  fovea run 'sq=64 mod=\"score + slopes[h]*(k-q)\" tensor=\"slopes:f32[H]\" h=4 "
      "direction=both grads=q,k,v,slopes' --dump out\n"
      "  fovea run 'b=1 h=4 sq=512 d=128 dtype=bf16 mod=softcap(20)' --device cuda:0 --check\n"
      "With --engine reference, --check also compares the backward with finite differences of the\n"
      "forward, in double precision.");
  verb.callback([options] {
    options->line = line_of(options->line);
    run(*options);
  });
}

namespace {

struct BenchOptions {
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
  table.add({direction, pass.engine, time_text(median(pass)), time_text(pass.seconds.front()),
             std::to_string(pass.seconds.size()), rate_text(flops / median(pass)),
             bytes_text(bytes), bytes_text(static_cast<double>(pass.workspace_bytes))});
}

void run_bench(const BenchOptions& options) {
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
  Verb verb(program, "bench", "Time a problem line, or every line of a file");
  const auto options = std::make_shared<BenchOptions>();
  options->call.seconds = 1;
  verb.option("LINE", options->line, "A problem line, or a file of them").required();
  verb.option("--engine", options->call.engine, "An engine by name; default: the fastest");
  verb.option("--device", options->call.device, "cpu, or a GPU: cuda:0").tell_default();
  verb.option("--seconds", options->call.seconds, "How long to repeat each direction")
      .between(0.0, 3600.0)
      .tell_default();
  verb.footer(
      "Examples:\n"
      "  fovea bench 'b=1 h=8 sq=256 d=64 mask=causal direction=both'\n"
      "  fovea bench 'b=4 h=16 sq=4096 d=128 dtype=bf16 mask=causal' --device cuda:0\n"
      "  fovea bench lines.txt --seconds 5");
  verb.callback([options] { run_bench(*options); });
}

}  // namespace fovea::cli
