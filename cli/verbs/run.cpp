// `fovea run`: runs a line on an engine, checks it against the reference, writes its tensors.
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/verbs/run_report.h"
#include "cli/verbs/table.h"
#include "cli/verbs/verb.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string line, dump;
  CallOptions call;
  DataOptions data;
  std::uint64_t seed = 0;
  bool check = false, brief = false;
};

// Why this engine: the planner's choice, or what it says about a choice of its own.
std::string reason_for(const Workload& workload, const CallOptions& call) {
  const auto [answer, text] = supported(*workload.forward, {"", call.device});
  const std::string why = text.substr(0, text.find('\n'));
  if (call.engine.empty()) return why;
  return answer == FOVEA_NO ? "it was named; else " + why : "it was named";
}

std::string differences_left_out(const Workload& workload, bool reference) {
  // The T5 bucket formula took 2.3 s for 2e5 on two busy cores: at worst some twenty seconds.
  constexpr double most = 2e6;
  if (!workload.backward) return "there is no backward";
  if (!reference) return "they are of the reference engine; name it to see them";
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
  verb.option("LINE", options->line, "A problem line: b=2 h=8 sq=256 mod=\"...\" ...").required();
  verb.option("--engine", options->call.engine, "The engine; without, the fastest that can");
  verb.option("--device", options->call.device, "Where: cpu, or a GPU: cuda:0").tell_default();
  verb.flag("--check", options->check,
            "Compare all outputs and gradients with the reference engine; exit 1 unless right");
  verb.flag("--brief", options->brief, "Check, and print only a line for each question");
  verb.option("--dump", options->dump, "Write every input, output and gradient as .npy here");
  verb.option("--seed", options->seed, "Of the data; without, the line's seed or 1");
  verb.option("--repeat", options->call.repeat, "Run so many times, tell the median")
      .between(1, 1000000)
      .tell_default();
  verb.flag("--poison-masked", options->data.poison_masked_kv,
            "NaN and Inf in keys and values that the mask hides from every query");
  verb.flag("--spread-captured", options->data.spread_captured,
            "Captured tensors with gaps between their elements");
  verb.footer(
      "Examples:\n"
      "  fovea run 'b=2 h=8 hkv=2 sq=64 d=32 mask=causal direction=both' --check\n"
      "  fovea run 'sq=64 mod=\"score + slopes[h]*(k-q)\" tensor=\"slopes:f32[H]\" h=4 "
      "direction=both grads=q,k,v,slopes' --dump out\n"
      "  fovea run 'b=1 h=4 sq=512 d=128 dtype=bf16 mod=softcap(20)' --device cuda:0 --check\n"
      "The reference engine runs only when it is named: with --engine reference, --check also compares\n"
      "the backward with finite differences of the forward, in double precision.");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
