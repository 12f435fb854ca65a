// `fovea compile`: plans of problem lines, compiled ahead into a bundle, for a GPU that need not be
// here. Each line is compiled in one of several processes into its own file; at the end these are
// put together in the order of the lines, so that the same lines give the same bundle.
#include <unistd.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fovea/handle.hpp>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "cli/verbs/table.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

// ---- processes side by side ----
//
// Each does one piece of work after the other, and one that dies costs its piece alone. Libraries
// that compile are not made to do so in many threads, and abort at times.

enum class Outcome : std::uint8_t {
  Done,
  Refused,  // an answer, not a fault
  Failed,
  Mistake,  // of the user: there is no point in going on
};

struct WorkResult {
  Outcome outcome = Outcome::Failed;
  double seconds = 0;
  std::string text;  // at most 32 KiB come through
};

constexpr std::size_t most_text = std::size_t{32} << 10;
using Work = std::function<WorkResult(std::size_t)>;

volatile std::sig_atomic_t stop_signal = 0;
void note_signal(int signal) { stop_signal = signal; }

// While it lives, a first Ctrl-C ends the work in good order.
class SignalGuard {
 public:
  SignalGuard() {
    stop_signal = 0;
    struct sigaction action{};
    action.sa_handler = note_signal;  // without SA_RESTART: poll() shall return
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~SignalGuard() { restore(); }
  void restore() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }

 private:
  struct sigaction interrupt_{}, terminate_{};
};

// What goes through a socket that keeps packets apart.
struct Packet {
  Outcome outcome;
  double seconds;
};

void send_result(int socket, const WorkResult& result) {
  const Packet head{result.outcome, result.seconds};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof head);
  bytes += result.text.substr(0, most_text);
  ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// False: the other side is gone.
bool receive_result(int socket, WorkResult& result) {
  std::string bytes(sizeof(Packet) + most_text, '\0');
  const ssize_t size = ::recv(socket, bytes.data(), bytes.size(), 0);
  if (size < static_cast<ssize_t>(sizeof(Packet))) return false;
  Packet head{};
  std::memcpy(&head, bytes.data(), sizeof head);
  result = {head.outcome, head.seconds,
            bytes.substr(sizeof head, static_cast<std::size_t>(size) - sizeof head)};
  return true;
}

[[noreturn]] void serve(int socket, const Work& work) {
  for (std::size_t i = 0; ::recv(socket, &i, sizeof i, 0) == sizeof i;) {
    WorkResult result;
    try {
      result = work(i);
    } catch (const std::exception& error) {
      result = {Outcome::Failed, 0, error.what()};
    }
    send_result(socket, result);
  }
  ::_exit(0);  // nothing of the parent's is to be destroyed here
}

class Worker {
 public:
  bool is_busy() const { return pid_ > 0; }
  int socket() const { return socket_; }
  std::size_t piece() const { return piece_; }

  void give(std::size_t piece) {
    piece_ = piece;
    ::send(socket_, &piece, sizeof piece, MSG_NOSIGNAL);  // if it died, recv() will tell
  }

  // How it ended.
  std::string finish() {
    ::close(socket_);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    if (!WIFSIGNALED(status)) return "exit status " + std::to_string(WEXITSTATUS(status));
    return "signal " + std::to_string(WTERMSIG(status)) + ", " + ::strsignal(WTERMSIG(status));
  }
  void kill() { ::kill(pid_, SIGKILL); }

  void start(const Work& work, const std::vector<Worker>& all, SignalGuard& signals) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      throw std::runtime_error(std::string("no socket for a worker: ") + std::strerror(errno));
    }
    std::cout.flush();
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error(std::string("no process: ") + std::strerror(errno));
    if (pid_ == 0) {
      signals.restore();
      ::close(ends[0]);
      // Else a worker would not see that this process has ended.
      for (const Worker& other : all) {
        if (&other != this && other.is_busy()) ::close(other.socket());
      }
      serve(ends[1], work);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }

 private:
  pid_t pid_ = 0;
  int socket_ = -1;
  std::size_t piece_ = 0;
};

struct Crew {
  std::vector<Worker> workers;
  SignalGuard signals;
  ~Crew() {
    for (Worker& worker : workers) {
      if (!worker.is_busy()) continue;
      worker.kill();
      worker.finish();
    }
  }
};

std::vector<pollfd> sockets_of(const std::vector<Worker>& workers) {
  std::vector<pollfd> out;
  for (const Worker& worker : workers) {
    out.push_back({worker.is_busy() ? worker.socket() : -1, POLLIN, 0});  // -1 is passed over
  }
  return out;
}

// work(i) for each i < count, in at most `jobs` processes; done(i, result) here, as they come.
// False from done() stops the rest. Throws std::runtime_error if a signal asks to stop.
void work_side_by_side(std::size_t count, std::size_t jobs, const Work& work,
                       const std::function<bool(std::size_t, const WorkResult&)>& done) {
  Crew crew{std::vector<Worker>(std::max<std::size_t>(1, std::min(jobs, count))), {}};
  std::size_t next = 0, finished = 0;
  // A worker is started when it gets its first piece, and again if it died.
  const auto give_next = [&](Worker& worker) {
    if (next == count) {
      if (worker.is_busy()) worker.finish();
      return;
    }
    if (!worker.is_busy()) worker.start(work, crew.workers, crew.signals);
    worker.give(next++);
  };
  for (Worker& worker : crew.workers) give_next(worker);
  while (finished < count) {
    std::vector<pollfd> sockets = sockets_of(crew.workers);
    const int ready = ::poll(sockets.data(), sockets.size(), -1);
    if (stop_signal != 0) throw std::runtime_error("stopped; nothing was written");
    if (ready < 0 && errno != EINTR) throw std::runtime_error(std::strerror(errno));
    for (std::size_t i = 0; i < sockets.size() && ready > 0; ++i) {
      if (sockets[i].revents == 0) continue;
      Worker& worker = crew.workers[i];
      WorkResult result;
      if (!receive_result(worker.socket(), result)) {
        result = {Outcome::Failed, 0, "the process that compiled it ended: " + worker.finish()};
      }
      ++finished;
      if (!done(worker.piece(), result)) return;
      give_next(worker);
    }
  }
}

// ---- lines and bundles ----

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
            "Compile problem lines into a bundle, for a GPU that need not be here");
  const auto options = std::make_shared<Options>();
  verb.option("LINES", options->lines, "A file of problem lines; - is standard input").required();
  verb.option("--device", options->device,
              "cuda:0, a known GPU that need not be here (a100, h200, b200), or a JSON description")
      .tell_default();
  verb.option("-o,--output", options->output, "The bundle to write: plans.fovea").required();
  verb.option("--engine", options->engine, "Compile only for this engine");
  verb.option("--jobs", options->jobs, "Number of processes; 0: one per core").tell_default();
  verb.flag("--skip-unsupported", options->skip_unsupported,
            "Exit 0 even if no engine can compile some of the lines");
  verb.footer(
      "A line is what 'fovea run' takes; empty lines and lines that begin with # are skipped. If a line\n"
      "cannot be compiled, the reasons are printed, the other lines are written, and the exit status\n"
      "is 1. Programs use the file through FOVEA_BUNDLE or fovea_bundle_load.\n"
      "Examples:\n"
      "  fovea compile lines.txt --device h200 -o plans.fovea\n"
      "  echo 'b=4 h=16 sq=4096 d=128 dtype=bf16 mask=causal' |\n"
      "    fovea compile - --device h200 -o plans.fovea\n"
      "  FOVEA_BUNDLE=plans.fovea ./program");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
