// What all verbs take from the command line, and the verbs that only print what the library says:
// diff, doctor, explain, cache. The others have a file each.
#include "cli/verbs/verbs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <fovea/handle.hpp>
#include <iostream>
#include <memory>

#include "cli/check/captured.h"
#include "cli/check/workload.h"
#include "cli/verbs/table.h"

namespace fovea::cli {
namespace {

// A line starts with `key=`; `q == k ? ...` and `let t = ...` do not.
bool starts_with_key(const std::string& text) {
  std::size_t at = text.find_first_not_of(" \t\n");
  if (at == std::string::npos) return true;
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (at < text.size() && is_name(text[at])) ++at;
  at = std::min(text.find_first_not_of(' ', at), text.size());  // "sq = 64" is a mistake in a line
  return at < text.size() && text[at] == '=' && (at + 1 == text.size() || text[at + 1] != '=');
}

}  // namespace

Option& Option::required() {
  option_.required();
  return *this;
}

Option& Option::tell_default() {
  option_.capture_default_str();
  return *this;
}

Option& Option::not_negative() {
  option_.check(CLI::NonNegativeNumber);
  return *this;
}

Option& Option::between(int lowest, int highest) {
  option_.check(CLI::Range(lowest, highest));
  return *this;
}

Option& Option::between(double lowest, double highest) {
  option_.check(CLI::Range(lowest, highest));
  return *this;
}

Verb::Verb(CLI::App& program, const std::string& name, const std::string& help)
    : app_(*program.add_subcommand(name, help)) {}

template <class T>
Option Verb::option(const std::string& name, T& value, const std::string& help) {
  return Option(*app_.add_option(name, value, help));
}
template Option Verb::option(const std::string&, std::string&, const std::string&);
template Option Verb::option(const std::string&, int&, const std::string&);
template Option Verb::option(const std::string&, unsigned long&, const std::string&);
template Option Verb::option(const std::string&, double&, const std::string&);

void Verb::flag(const std::string& name, bool& value, const std::string& help) {
  app_.add_flag(name, value, help);
}

void Verb::footer(const std::string& text) { app_.footer(text); }

void Verb::callback(const std::function<void()>& work) { app_.callback(work); }

std::string line_of(const std::string& text) {
  if (starts_with_key(text)) return text;
  const std::string mask = "mask=\"" + text + "\"";
  fovea_program program = nullptr;
  const bool is_mask = fovea_program_parse(mask.c_str(), &program) == FOVEA_OK;
  fovea_program_destroy(program);
  return is_mask ? mask : "mod=\"" + text + "\"";
}

namespace {

// ---- diff ----

void run_diff(const std::string& text) {
  const Program program = Problem(line_of(text)).program();
  const std::string printed = program.line();
  if (line_value(printed, "mod").empty()) {
    const bool masked = !line_value(printed, "mask").empty();
    throw std::invalid_argument("there is nothing to differentiate: give mod=\"...\"" +
                                std::string(masked ? " (a mask has no derivative)" : ""));
  }
  const char* const by_all = nullptr;
  std::cout << report_of(fovea_program_differentiate, program.get(), by_all, FOVEA_TEXT_INDENTED);
}

// ---- doctor ----

void run_doctor() {
  const std::string text = report_of(fovea_doctor);
  std::cout << text << (text.ends_with('\n') ? "" : "\n");
}

// ---- explain ----

struct ExplainOptions {
  std::string line, engine, device = "cpu", strategy = "ring", order = "contiguous";
  bool json = false, prove = false;
  int ranks = 0, rank = 0, head_ranks = 0;
};

std::string explanation_of(const Problem& problem, const ExplainOptions& options) {
  std::uint32_t flags = 0;
  if (options.json) flags |= FOVEA_EXPLAIN_JSON;
  if (options.prove) flags |= FOVEA_EXPLAIN_PROVE;
  std::string text = explain(problem, {options.engine, options.device}, flags);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Who computes what on many ranks, with the line's own lengths and data.
void explain_ranks(const ExplainOptions& options) {
  const Workload work = make_values(line_of(options.line), 0);
  const auto tensors = bind_tensors(work.captured);
  const auto scalars = bind_scalars(work.captured);
  const auto data = [](const std::vector<std::int32_t>& x) {
    return x.empty() ? nullptr : x.data();
  };
  fovea_bindings values{};
  values.struct_size = sizeof values;
  values.q_lengths = data(work.q_lengths);
  values.k_lengths = data(work.k_lengths);
  values.q_starts = data(work.q_starts);
  values.k_starts = data(work.k_starts);
  values.tensors = tensors.data();
  values.tensor_count = tensors.size();
  values.scalars = scalars.data();
  values.scalar_count = scalars.size();
  const fovea_parallel_config config{sizeof config,         options.ranks,
                                     options.rank,          options.strategy.c_str(),
                                     options.order.c_str(), options.head_ranks};
  const std::uint32_t flags = options.json ? FOVEA_EXPLAIN_JSON : 0;
  std::cout << report_of(fovea_parallel_plan, work.forward->get(), &config, &values, flags);
}

void run_explain(const ExplainOptions& options) {
  if (options.ranks != 0) return explain_ranks(options);
  const auto [problem, backward] = Problem::parse(line_of(options.line));
  const std::string first = explanation_of(problem, options);
  if (!backward) {
    std::cout << first << "\n";
    return;
  }
  const std::string second = explanation_of(*backward, options);
  if (options.json) {
    std::cout << "{\"forward\": " << first << ",\n\"backward\": " << second << "}\n";
  } else {
    std::cout << "forward\n" << first << "\n\nbackward\n" << second << "\n";
  }
}

// ---- cache ----

struct CacheOptions {
  std::string what = "list";
  bool json = false;
};

std::string folder() { return report_of(fovea_disk_cache_folder); }

std::string size_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string plans_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " plan" : " plans");
}

// "3 plans, 512 KiB of at most 1 GiB in /home/me/.cache/fovea"
std::string where_text(const fovea_disk_cache_info& info) {
  const std::string bytes = size_text(info.bytes) + " of at most " + size_text(info.limit);
  std::string out = plans_text(info.plans) + ", " + bytes + " in " + folder();
  if (info.usable == 0) out += " (not in use: 'fovea doctor' says why)";
  if (info.usable != 0 && info.writable == 0) out += " (not written to: 'fovea doctor' says why)";
  return out;
}

void print_cache(const CacheOptions& options, bool verify) {
  fovea_disk_cache_info info{};
  info.struct_size = sizeof info;
  std::uint32_t flags = verify ? FOVEA_DISK_CACHE_VERIFY : 0;
  if (options.json) flags |= FOVEA_DISK_CACHE_JSON;
  const std::string text = report_of(fovea_disk_cache_list, flags, &info);
  if (options.json || info.plans > 0) std::cout << text;
  if (!options.json && folder().empty()) {
    std::cout << "no plans are kept on disk: 'fovea doctor' says why\n";
  } else if (!options.json) {
    std::cout << where_text(info);
    if (verify) std::cout << "; " << info.damaged << " damaged";
    std::cout << "\n";
  }
  if (verify && info.damaged > 0) {
    std::cerr << "fovea: damaged files are never used, and replaced when their plan is next built;"
                 " 'fovea cache clear' removes everything\n";
    throw Failed{};
  }
}

void clear_cache() {
  std::uint64_t plans = 0, bytes = 0;
  check(fovea_disk_cache_clear(&plans, &bytes));
  std::cout << "removed " << plans_text(plans) << ", " << size_text(bytes)
            << (folder().empty() ? "" : " from " + folder()) << "\n";
}

void run_cache(const CacheOptions& options) {
  if (options.what == "list") return print_cache(options, /*verify=*/false);
  if (options.what == "verify") return print_cache(options, /*verify=*/true);
  if (options.what == "clear") return clear_cache();
  if (options.what == "path") {
    std::cout << folder() << "\n";
    return;
  }
  throw std::invalid_argument("unknown argument '" + options.what + "' of cache" +
                              did_you_mean(options.what, "list verify clear path") +
                              " (there are list, verify, clear and path)");
}

}  // namespace

void add_cache(CLI::App& program) {
  Verb verb(program, "cache", "List, verify or clear the plans kept on disk");
  const auto options = std::make_shared<CacheOptions>();
  verb.option("WHAT", options->what, "list, verify, clear or path").tell_default();
  verb.flag("--json", options->json, "Print list and verify as JSON");
  verb.footer(
      "Engines whose plans take long to compile keep them in a folder of this user, for later\n"
      "processes. FOVEA_CACHE_DIR names another folder, or off; FOVEA_CACHE_LIMIT bounds its size\n"
      "(500M, 2G): the least recently used plans are removed first.\n"
      "Examples:\n"
      "  fovea cache                list the plans, last used first\n"
      "  fovea cache verify         read all of them; exit 1 if a file is damaged\n"
      "  fovea cache clear          remove all of them; they are built again when needed\n"
      "  du -sh $(fovea cache path)");
  verb.callback([options] { run_cache(*options); });
}

void add_diff(CLI::App& program) {
  Verb verb(program, "diff",
            "Print the derivatives of a score modifier by the score and by all it captures");
  const auto line = std::make_shared<std::string>();
  verb.option("LINE", *line, "A problem line: mod=\"...\" scalar=\"...\"; or a formula").required();
  verb.footer(
      "Examples:\n"
      "  fovea diff 'tanh(score / 20) * 20'\n"
      "  fovea diff 'mod=\"softcap*tanh(score/softcap)\" scalar=\"softcap=30\"'\n"
      "  fovea diff 'mod=\"score + bias[h, q - k + 511]\" tensor=\"bias:f32[H,1023]\"'\n"
      "A hand-written bprop=\"...\" (of score and grad) is compared with the derivative.");
  verb.callback([line] { run_diff(*line); });
}

void add_doctor(CLI::App& program) {
  Verb verb(program, "doctor", "Say what was found on this machine and what was not");
  verb.footer("Example:\n  fovea doctor");
  verb.callback(run_doctor);
}

void add_explain(CLI::App& program) {
  Verb verb(program, "explain",
            "Say which engine would run a problem line, and why the others cannot");
  const auto options = std::make_shared<ExplainOptions>();
  verb.option("LINE", options->line, "A problem line: b=2 h=8 sq=256 mod=\"...\"; or a formula")
      .required();
  verb.option(
          "--device", options->device,
          "cpu, cuda:0, a known GPU that need not be here (a100, h200, b200), or a JSON description")
      .tell_default();
  verb.option("--engine", options->engine, "As if this engine were requested");
  verb.flag("--json", options->json, "Print JSON");
  verb.flag("--prove", options->prove, "Build plans to prove support");
  verb.option("--ranks", options->ranks,
              "Instead: what each of this many ranks computes and sends, with the sequence split");
  verb.option("--strategy", options->strategy, "ring, all_gather, all_to_all or a2a+p2p")
      .tell_default();
  verb.option("--order", options->order,
              "How tokens are distributed: contiguous, zigzag or striped")
      .tell_default();
  verb.option("--head-ranks", options->head_ranks, "a2a+p2p: ranks per all-to-all");
  verb.option("--rank", options->rank, "With --json: the rank whose steps to print").tell_default();
  verb.footer(
      "Examples:\n"
      "  fovea explain 'b=2 h=8 sq=1024 dtype=bf16 mask=causal direction=both'\n"
      "  fovea explain 'sq=4096 d=320 dtype=bf16' --device h200 --json\n"
      "  fovea explain 'h=8 sq=65536 d=128 mask=causal' --ranks 8 --strategy ring --order zigzag");
  verb.callback([options] { run_explain(*options); });
}

}  // namespace fovea::cli
