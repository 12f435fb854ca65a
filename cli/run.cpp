// `fovea run`: runs a line on an engine, checks it against the reference, writes its tensors.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include "call.h"
#include "compare.h"
#include "gradient_check.h"
#include "table.h"
#include "verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string line, dump;
  CallOptions call;
  Twists twists;
  std::uint64_t seed = 0;
  bool check = false;
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

void print_outputs(const Results& results) {
  Table table({"output", "shape", "type", "norm", "checksum"});
  for (const NamedArray& named : results.arrays) {
    table.add({named.name, shape_text(named.array), named.array.dtype, norm_text(named.array),
               checksum_text(named.array)});
  }
  std::cout << table.text();
}

void print_pass(const char* name, const Pass& pass) {
  if (!pass.ran) return;
  std::cout << name << ": engine " << pass.engine << ", "
            << time_text(pass.seconds[pass.seconds.size() / 2]);
  if (pass.seconds.size() > 1) {
    std::cout << " (median of " << pass.seconds.size() << ", fastest "
              << time_text(pass.seconds.front()) << ")";
  }
  std::cout << ", workspace " << bytes_text(static_cast<double>(pass.workspace_bytes)) << "\n";
}

bool report_complaints(const Results& results) {
  bool none = true;
  for (const Pass* pass : {&results.forward, &results.backward}) {
    for (const std::string& complaint : pass->complaints) {
      std::cout << "the engine " << pass->engine << " " << complaint << "\n";
      none = false;
    }
  }
  return none;
}

bool check_against_reference(const Workload& workload, const Options& options,
                             const Results& results) {
  CallOptions call = options.call;
  call.engine = "reference";
  call.device = "cpu";
  call.repeat = 1;
  const Results reference = run_workload(workload, call);
  Table table({"check", "relative error", "worst element", "limit", "verdict"});
  bool within = true;
  for (const Comparison& c : compare_all(workload, results, reference)) {
    table.add({c.name, number_text(c.relative), number_text(c.worst), number_text(c.limit),
               c.within ? "ok" : "FAILED: " + c.complaint});
    within = within && c.within;
  }
  std::cout << "\nagainst the reference engine\n" << table.text();
  return within;
}

bool check_by_differences(const Workload& workload) {
  constexpr double most = 2e7;  // about a minute of finite differences
  constexpr int samples = 8;
  const double work = forward_work(workload);
  if (!workload.backward) return true;
  std::cout << "\nthe backward against finite differences of the forward, in double precision\n";
  if (work > most) {
    std::cout << "  left out: " << number_text(work) << " multiplications a forward is more than "
              << number_text(most) << "; give smaller sizes\n";
    return true;
  }
  Progress progress("finite differences");
  const auto checks =
      check_gradients(workload, samples, [&](double share) { progress.show(share); });
  Table table({"gradient", "samples", "kinks left out", "error", "verdict"});
  bool within = true;
  for (const GradientCheck& c : checks) {
    table.add({c.name, std::to_string(c.samples), std::to_string(c.kinks), number_text(c.error),
               c.within ? "ok" : "FAILED: " + c.complaint});
    within = within && c.within;
  }
  std::cout << table.text();
  return within;
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
  const Workload workload = make_workload(options.line, options.seed, options.twists);
  const Results results = run_workload(workload, options.call);
  print_outputs(results);
  print_pass("forward", results.forward);
  print_pass("backward", results.backward);
  bool right = report_complaints(results);
  if (!options.dump.empty()) dump(workload, results, options.dump);
  if (options.check) {
    right = check_against_reference(workload, options, results) && right;
    if (results.forward.engine == "reference") right = check_by_differences(workload) && right;
    std::cout << "\n" << (right ? "all within the limits" : "NOT within the limits") << "\n";
  }
  if (!right) throw Failed();
}

}  // namespace

void add_run(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "run", "Run a problem line, check it against the reference, write its tensors");
  const auto options = std::make_shared<Options>();
  verb->add_option("LINE", options->line, "A problem line: b=2 h=8 sq=256 mod=\"...\" ...")
      ->required();
  verb->add_option("--engine", options->call.engine, "The engine; without, the fastest that can");
  verb->add_option("--device", options->call.device, "Where: cpu")->capture_default_str();
  verb->add_flag("--check", options->check,
                 "Compare all outputs and gradients with the reference engine; exit 1 unless right");
  verb->add_option("--dump", options->dump, "Write every input, output and gradient as .npy here");
  verb->add_option("--seed", options->seed, "Of the data; without, the line's seed or 1");
  verb->add_option("--repeat", options->call.repeat, "Run so many times, tell the median")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  verb->add_flag("--poison-masked", options->twists.poison_masked_kv,
                 "NaN and Inf in keys and values that the mask hides from every query");
  verb->add_flag("--spread-captured", options->twists.spread_captured,
                 "Captured tensors with gaps between their elements");
  verb->footer(
      "Examples:\n"
      "  fovea run 'b=2 h=8 hkv=2 sq=64 d=32 mask=causal direction=both' --engine reference "
      "--check\n"
      "  fovea run 'sq=64 mod=\"score + slopes[h]*(k-q)\" tensor=\"slopes:f32[H]\" h=4 "
      "direction=both grads=q,k,v,slopes' --engine reference --dump out\n"
      "The reference engine runs only when it is named. With it, --check also compares the backward\n"
      "with finite differences of the forward, in double precision.");
  verb->callback([options] { run(*options); });
}

}  // namespace fovea::cli
