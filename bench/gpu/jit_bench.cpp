// Engine jit's kernels alone, without Python: milliseconds and TFLOP/s of problem lines on the
// first GPU, beside stored times of peers. Starts in a second; made for tuning (--help says how).
// bench/jit_gpu.py measures the peers too.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/device_line.h"
#include "fovea/fovea.h"

namespace fovea::bench {
namespace {

// The rows of bench/gpu/<tier>_rows.txt: problem lines with a peer's time, and the share of it that
// ours may take.
struct Goal {
  std::optional<double> peer_ms, bar;
};

struct BenchRow {
  std::string name, peer, line;
  Goal forward, backward;
};

// In the current folder, since the program is carried to another machine, or where it was built.
std::string path_of(const std::string& tier) {
  const std::string here = "bench/gpu/" + tier + "_rows.txt";
  return std::filesystem::exists(here) ? here : FOVEA_SOURCE_DIR "/" + here;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

Goal read_goal(const std::string& text) {
  std::istringstream in(text);
  std::string ms, bar;
  in >> ms >> bar;
  const auto number = [](const std::string& word) {
    return word.empty() || word == "-" ? std::nullopt : std::optional(std::stod(word));
  };
  return {number(ms), number(bar)};
}

// Throws std::runtime_error that names the line.
std::vector<BenchRow> read_rows(const std::string& tier) {
  const std::string path = path_of(tier);
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<BenchRow> rows;
  for (std::string text; std::getline(in, text);) {
    if (text.empty() || text.front() == '#') continue;
    std::istringstream line(text);
    std::vector<std::string> fields(4);
    for (std::string& field : fields) std::getline(line, field, '|');
    std::string problem;  // may have a | of its own
    std::getline(line, problem);
    if (trimmed(problem).empty()) throw std::runtime_error(path + ": five fields in: " + text);
    rows.push_back({trimmed(fields[0]), trimmed(fields[1]), trimmed(problem), read_goal(fields[2]),
                    read_goal(fields[3])});
  }
  return rows;
}

// Those that are named; `causal*` names all that start with causal. All of them if none is.
std::vector<BenchRow> rows_named(const std::string& tier, const std::vector<std::string>& wanted) {
  const std::vector<BenchRow> all = read_rows(tier);
  if (wanted.empty()) return all;
  std::vector<BenchRow> out;
  for (const std::string& name : wanted) {
    const std::size_t before = out.size();
    const std::string start = name.substr(0, name.find('*'));
    for (const BenchRow& row : all) {
      if (start == name ? row.name == name : row.name.starts_with(start)) out.push_back(row);
    }
    if (out.size() == before) throw std::runtime_error("no row '" + name + "' in " + path_of(tier));
  }
  return out;
}

struct Options {
  std::string engine = "jit", tier = "hopper", json;
  int rounds = 15;
  bool check = true, host_times = false, first_calls = false, first_lines = false;
  std::vector<std::string> names, lines;
};

struct Measurement {
  std::string row, direction;
  double ms = 0, tflops = 0;
  Goal goal;
  bool missed() const { return goal.peer_ms && goal.bar && !(ms <= *goal.peer_ms * *goal.bar); }
};

double median_ms(const std::function<void()>& enqueue, int rounds) {
  const int calls = time_ms(enqueue, 2) < 2 ? 4 : 2;  // short ones need more to hide the start
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) times.push_back(time_ms(enqueue, calls));
  return median(times);
}

class RowBench {
 public:
  explicit RowBench(const Options& options) : options_(options), copy_(copy_bandwidth()) {
    std::printf("%-17s %-9s %9s %8s %9s %6s %6s  %s\n", "row", "direction", "ours ms", "TFLOP/s",
                "peer ms", "ratio", "bar", "");
  }

  void run(const BenchRow& row) {
    try {
      measure(row);
    } catch (const std::exception& error) {
      std::printf("%-17s %s\n", row.name.c_str(), error.what());
      ++failures_;
    }
    std::fflush(stdout);
  }

  int finish() const {
    std::printf("device-to-device copy: %.2f TB/s\n", copy_ / 1e12);
    write_json();
    return failures_ == 0 ? 0 : 1;
  }

 private:
  void measure(const BenchRow& row) {
    DeviceLine line(row.line, options_.engine);
    for (std::size_t i = 0; i < line.sets(); ++i) line.forward();
    wait();
    const double error = options_.check ? error_of_sampled_rows(line) : -1;
    const fovea_sizes& s = line.config().sizes;
    const double share = kept_share(line);
    const double flops = 2.0 * share * static_cast<double>(s.b * s.h) *
                         static_cast<double>(s.sq * s.skv) * static_cast<double>(s.d + s.dv);
    const double ms = median_ms([&] { line.forward(); }, options_.rounds);
    report({row.name, "forward", ms, flops / ms / 1e9, goal_of(row, row.forward, line, false)});
    std::printf("%s, plans in %.2f s", line.engine_name().c_str(), line.plan_seconds());
    if (error >= 0) std::printf(", error %.1e", error);
    constexpr double far = 0.02;  // of bf16: three times what rounding does
    const bool wrong = error > far || std::isnan(error);
    std::printf("%s\n", wrong ? "  WRONG" : "");
    failures_ += wrong ? 1 : 0;
    if (!line.has_backward()) return;
    const double back = median_ms([&] { line.backward(); }, options_.rounds);
    report({row.name, "backward", back, 2.5 * flops / back / 1e9,
            goal_of(row, row.backward, line, true)});
    std::printf("\n");
  }

  // If the peer is another row of ours, or a copy, its time is known only now.
  Goal goal_of(const BenchRow& row, Goal goal, const DeviceLine& line, bool backward) const {
    if (row.peer == "copy") {
      goal.peer_ms = static_cast<double>(line.key_value_bytes()) / copy_ * 1000;
    } else if (!goal.peer_ms) {
      for (const Measurement& one : measured_) {
        const bool same = (one.direction == "backward") == backward;
        if (one.row == row.peer && same) goal.peer_ms = one.ms;
      }
    }
    return goal;
  }

  void report(const Measurement& one) {
    measured_.push_back(one);
    std::printf("%-17s %-9s %9.3f %8.0f ", one.row.c_str(), one.direction.c_str(), one.ms,
                one.tflops);
    if (one.goal.peer_ms) {
      std::printf("%9.3f %6.3f ", *one.goal.peer_ms, one.ms / *one.goal.peer_ms);
    } else {
      std::printf("%9s %6s ", "-", "-");
    }
    if (one.goal.bar && one.goal.peer_ms) {
      std::printf("%6.3f  %-6s ", *one.goal.bar, one.missed() ? "MISSED" : "ok");
    } else {
      std::printf("%6s  %-6s ", "-", "");
    }
  }

  void write_json() const {
    if (options_.json.empty()) return;
    std::ofstream out(options_.json);
    out << "{\"copy\": " << copy_ / 1e12;
    for (const Measurement& one : measured_) {
      out << ", \"" << one.row << " " << one.direction << "\": " << one.ms;
    }
    out << "}\n";
  }

  const Options& options_;
  double copy_;
  std::vector<Measurement> measured_;
  int failures_ = 0;
};

int host_times(const Options& options) {
  constexpr double forward_bar = 8, backward_bar = 16;
  std::printf("%-10s %12s %13s\n", "case", "forward us", "backward us");
  const std::pair<const char*, const char*> cases[] = {
      {"none", ""},
      {"causal", "mask=causal"},
      {"softcap", "mod=softcap(20) mask=causal"},
      {"slopes", "mod=\"score + t[h]*(k-q)\" tensor=\"t:f32[H]\" grads=q,k,v,t"},
      {"documents", "mask=\"doc[b,q] == doc[b,k]\" tensor=\"doc:i32[B,Sq]=docs(5)\""}};
  bool within = true;
  for (const auto& [name, words] : cases) {
    DeviceLine line("b=1 h=1 sq=128 d=64 dtype=bf16 direction=both " + std::string(words),
                    options.engine);
    for (std::size_t i = 0; i < line.sets(); ++i) line.forward();
    const double forward = host_us({[&] { line.forward(); }}).front();
    const double backward = host_us({[&] { line.backward(); }}).front();
    const bool good = forward <= forward_bar && backward <= backward_bar;
    within = within && good;
    std::printf("%-10s %12.2f %13.2f  %s\n", name, forward, backward, good ? "ok" : "MISSED");
  }
  return within ? 0 : 1;
}

struct FirstCall {
  const char* name;
  std::string line;
};

std::vector<FirstCall> first_lines() {
  const std::string sizes = "b=2 h=4 sq=512 d=64 dtype=bf16 ";
  return {{"nothing (loads the libraries)", sizes + "direction=forward mod=\"score * 0.5\""},
          {"forward", sizes + "direction=forward mod=\"20*tanh(score/20) + t[h]*(k-q)\" "
                              "mask=\"q >= k && doc[b,q] == doc[b,k]\" tensor=\"t:f32[H]\" "
                              "tensor=\"doc:i32[B,Sq]=docs(5)\""},
          {"forward + backward",
           sizes + "direction=both mod=\"score + t[h, clamp(k-q, -64, 64) + 64]\" "
                   "mask=sliding(200) tensor=\"t:f32[H,129]\" grads=q,k,v,t"},
          {"forward, stock", sizes + "direction=forward mask=causal"},
          {"forward + backward, stock", sizes + "direction=both mod=softcap(20)"}};
}

// From wherever the environment lets kernels come: compiled, from the disk cache, from a bundle.
int first_calls(const Options& options) {
  using Clock = std::chrono::steady_clock;
  for (const FirstCall& one : first_lines()) {
    DeviceLine line(one.line, options.engine);
    const auto start = Clock::now();
    line.forward();
    if (line.has_backward()) line.backward();
    wait();
    const double ran = std::chrono::duration<double>(Clock::now() - start).count();
    std::printf("  %9.1f ms plan, %7.1f ms first run  %s\n", line.plan_seconds() * 1e3, ran * 1e3,
                one.name);
  }
  return 0;
}

void add_options(CLI::App& app, Options& out) {
  app.add_option("rows", out.names, "rows of bench/gpu/TIER_rows.txt; causal*: all that begin so");
  app.add_option("--tier", out.tier, "hopper, or general: the kernels for sm_80 and newer");
  app.add_option("--line", out.lines, "any problem line instead")->allow_extra_args(false);
  app.add_option("--engine", out.engine, "jit unless told");
  app.add_option("--rounds", out.rounds, "of which the median counts")->check(CLI::PositiveNumber);
  app.add_option("--json", out.json, "a file for the results");
  app.add_flag("--no-check{false}", out.check, "do not compute sampled rows on the host");
  app.add_flag("--host-times", out.host_times, "what a cached call costs the host");
  app.add_flag("--first-calls", out.first_calls, "how long the first call of a formula takes");
  app.add_flag("--first-lines", out.first_lines, "of which lines, for a bundle; needs no GPU");
}

int run(const Options& options) {
  if (options.first_lines) {
    for (const FirstCall& one : first_lines()) std::puts(one.line.c_str());
    return 0;
  }
  if (options.tier == "general") setenv("FOVEA_JIT_TIER", "general", 1);
  start_device();
  if (options.host_times) return host_times(options);
  if (options.first_calls) return first_calls(options);
  RowBench rows(options);
  if (options.lines.empty()) {
    for (const BenchRow& row : rows_named(options.tier, options.names)) rows.run(row);
  }
  for (std::size_t i = 0; i < options.lines.size(); ++i) {
    rows.run({"line " + std::to_string(i + 1), "", options.lines[i], {}, {}});
  }
  return rows.finish();
}

}  // namespace
}  // namespace fovea::bench

int main(int argc, char** argv) {
  fovea::bench::Options options;
  CLI::App app("Engine jit's kernels beside stored times of their peers");
  fovea::bench::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    return fovea::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fovea_bench_jit: %s\n", error.what());
    return 2;
  }
}
