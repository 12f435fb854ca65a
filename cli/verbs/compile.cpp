// `fovea compile`: plans of problem lines, written ahead into a bundle, for a GPU that need not be
// here. Each line is compiled in one of several processes into a file of its own; at the end these
// are put together in the order of the lines, so that the same lines give the same bundle.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fovea/handle.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <thread>

#include "cli/verbs/compile_workers.h"
#include "cli/verbs/table.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

// One of the lines to compile.
struct CompileLine {
  std::string place;  // "lines.txt:12"
  std::string text;
};

std::vector<CompileLine> split(std::istream& in, const std::string& name) {
  std::vector<CompileLine> out;
  std::size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (first == std::string::npos || text[first] == '#') continue;
    const std::size_t last = text.find_last_not_of(" \t\r");
    out.push_back({name + ":" + std::to_string(number), text.substr(first, last - first + 1)});
  }
  return out;
}

void check_line(const CompileLine& line) try {
  Problem::parse(line.text);
} catch (const Error& error) {
  throw Error(error.status(), line.place + ": " + error.what());
}

// `path` may be - for standard input. Each line is checked before anything is compiled: throws with
// the place of the first that is wrong.
std::vector<CompileLine> read_compile_lines(const std::string& path) {
  std::vector<CompileLine> lines;
  if (path == "-") {
    lines = split(std::cin, "standard input");
  } else {
    std::ifstream in(path);
    if (!in) {
      throw std::invalid_argument(path + ": cannot be opened: " + std::strerror(errno));
    }
    lines = split(in, path);
    if (in.bad()) throw std::invalid_argument(path + ": cannot be read");
  }
  if (lines.empty()) throw std::invalid_argument(path + ": there is no problem line in it");
  for (const CompileLine& line : lines) check_line(line);
  return lines;
}

using Bundle = Owned<fovea_bundle, fovea_bundle_destroy>;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string lines, engine, device = "cuda:0", output;
  std::size_t jobs = 0;
  bool skip_unsupported = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Bundle create_bundle(const std::string& path) {
  fovea_bundle bundle = nullptr;
  check(fovea_bundle_create(path.c_str(), &bundle));
  return Bundle(bundle);
}

// Beside the output, removed at the end.
class Parts {
 public:
  explicit Parts(const std::string& output) : folder_(output + ".parts-XXXXXX") {
    if (::mkdtemp(folder_.data()) == nullptr) {
      throw std::invalid_argument(output + ": no folder can be made beside it");
    }
  }
  ~Parts() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  std::string path(std::size_t i) const { return folder_ + "/" + std::to_string(i); }

 private:
  std::string folder_;
};

// Both directions of a line; what the engines say of each: "cudnn built".
std::string compile(const CompileLine& line, const Options& options, const std::string& part) {
  const auto [problem, backward] = Problem::parse(line.text);
  const Where where{options.engine, options.device};
  const fovea_plan_options wanted = where.options();
  const Bundle bundle = create_bundle(part);
  std::string text = report_of(fovea_bundle_add, bundle.get(), problem.get(), &wanted);
  if (backward) {
    const std::string other = report_of(fovea_bundle_add, bundle.get(), backward->get(), &wanted);
    if (other != text) text += ", backward " + other;
  }
  check(fovea_bundle_finish(bundle.get(), nullptr, nullptr));
  return text;
}

Outcome outcome_of(fovea_status status) {
  if (status == FOVEA_UNSUPPORTED) return Outcome::Refused;
  return status == FOVEA_INVALID_ARGUMENT ? Outcome::Mistake : Outcome::Failed;
}

// In a worker.
WorkResult compile_part(const CompileLine& line, const Options& options, const std::string& part) {
  const auto start = Clock::now();
  WorkResult result;
  try {
    result.text = compile(line, options, part);
    result.outcome = Outcome::Done;
  } catch (const Error& error) {
    result.text = error.what();
    result.outcome = outcome_of(error.status());
  }
  result.seconds = seconds_since(start);
  return result;
}

// What is said while it works: a line per problem on a terminal, else only what went wrong.
class Reporter {
 public:
  explicit Reporter(std::size_t total) : total_(total), terminal_(::isatty(STDERR_FILENO) != 0) {}

  void say(const CompileLine& line, const WorkResult& result) {
    ++count_;
    if (result.outcome == Outcome::Done) {
      if (terminal_) say_done(line, result);
      return;
    }
    std::string reasons = result.text;
    while (reasons.ends_with('\n')) reasons.pop_back();
    std::cerr << line.place << ": not compiled: " << reasons << "\n";
  }

 private:
  void say_done(const CompileLine& line, const WorkResult& result) const {
    const int width = static_cast<int>(std::to_string(total_).size());
    constexpr std::size_t most = 80;
    std::string text = line.text;
    if (text.size() > most) text = text.substr(0, most - 3) + "...";
    std::fprintf(stderr, "%*zu/%zu  %6.0f ms  %s  %s\n", width, count_, total_,
                 1e3 * result.seconds, result.text.c_str(), text.c_str());
  }

  std::size_t total_, count_ = 0;
  bool terminal_;
};

struct Tally {
  std::size_t refused = 0, failed = 0;
  std::string mistake;
  std::vector<bool> compiled;
};

Tally compile_all(const std::vector<CompileLine>& lines, const Options& options,
                  const Parts& parts) {
  Tally tally;
  tally.compiled.resize(lines.size());
  Reporter reporter(lines.size());
  const auto done = [&](std::size_t i, const WorkResult& result) {
    if (result.outcome == Outcome::Mistake) {
      tally.mistake = result.text;
      return false;
    }
    reporter.say(lines[i], result);
    tally.compiled[i] = result.outcome == Outcome::Done;
    tally.refused += result.outcome == Outcome::Refused;
    tally.failed += result.outcome == Outcome::Failed;
    return true;
  };
  const auto work = [&](std::size_t i) { return compile_part(lines[i], options, parts.path(i)); };
  work_side_by_side(lines.size(), options.jobs, work, done);
  if (!tally.mistake.empty()) throw std::invalid_argument(tally.mistake);
  return tally;
}

std::string write_bundle(const Options& options, const Parts& parts, const Tally& tally) {
  const Bundle bundle = create_bundle(options.output);
  for (std::size_t i = 0; i < tally.compiled.size(); ++i) {
    if (tally.compiled[i]) check(fovea_bundle_merge(bundle.get(), parts.path(i).c_str()));
  }
  std::uint64_t plans = 0, bytes = 0;
  check(fovea_bundle_finish(bundle.get(), &plans, &bytes));
  return std::to_string(plans) + (plans == 1 ? " plan, " : " plans, ") +
         bytes_text(static_cast<double>(bytes));
}

void run(Options options) {
  const auto start = Clock::now();
  const std::vector<CompileLine> lines = read_compile_lines(options.lines);
  if (options.jobs == 0) options.jobs = std::max(1U, std::thread::hardware_concurrency());
  options.jobs = std::min(options.jobs, lines.size());
  create_bundle(options.output);  // that it can be written to is better known now
  const Parts parts(options.output);
  const Tally tally = compile_all(lines, options, parts);
  const std::size_t missing = tally.refused + tally.failed;
  if (missing == lines.size()) {
    std::cerr << "fovea: none of the " << lines.size() << " lines was compiled; " << options.output
              << " is not written\n";
    throw Failed{};
  }
  const std::string written = write_bundle(options, parts, tally);
  std::cout << options.output << ": " << written << ", from " << lines.size() - missing << " of "
            << lines.size() << " lines for " << options.device << " in "
            << time_text(seconds_since(start)) << ", " << options.jobs
            << (options.jobs == 1 ? " process" : " processes") << "\n";
  const bool bad = tally.failed > 0 || (tally.refused > 0 && !options.skip_unsupported);
  if (bad) throw Failed{};
}

}  // namespace

void add_compile(CLI::App& program) {
  Verb verb(program, "compile",
            "Compile problem lines ahead, for a GPU that need not be here, into one file");
  const auto options = std::make_shared<Options>();
  verb.option("LINES", options->lines, "A file of problem lines; - is standard input").required();
  verb.option("--device", options->device,
              "cuda:0, a known GPU that need not be here (a100, h200, b200), or a JSON description")
      .tell_default();
  verb.option("-o,--output", options->output, "The bundle to write: plans.fovea").required();
  verb.option("--engine", options->engine, "This engine alone");
  verb.option("--jobs", options->jobs, "Processes side by side; 0: one per core").tell_default();
  verb.flag("--skip-unsupported", options->skip_unsupported,
            "Exit 0 although no engine can compile some of the lines");
  verb.footer(
      "A line is what 'fovea run' takes; empty lines and those that begin with # are passed over.\n"
      "Lines that cannot be compiled are named with the reasons; the others are written, and the\n"
      "exit status is 1. Programs use the file through FOVEA_BUNDLE or fovea_bundle_load.\n"
      "Examples:\n"
      "  fovea compile lines.txt --device h200 -o plans.fovea\n"
      "  echo 'b=4 h=16 sq=4096 d=128 dtype=bf16 mask=causal' |\n"
      "    fovea compile - --device h200 -o plans.fovea\n"
      "  FOVEA_BUNDLE=plans.fovea ./program");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
