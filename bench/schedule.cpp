// How well the CPU engine's work divides among more processors than this machine has. A call is run
// on one thread with an executor that says it has N: the engine then cuts the work as it would for
// N, and every task is timed where it runs. A simulation deals the tasks to N workers in the
// engine's own order: whoever is free takes the next, and a region ends with its last task.
//
// In the numbers: how evenly work is cut, what small tasks cost more, what no task shares. Not in
// them: memory that many processors read at once, their clocks, and the time to wake threads
// (--start: microseconds that every region costs; default 0).
//
//   fovea_schedule [--workers 2-8,16] [--explain] [--start US] [--repeats N] LINE...
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "attention/cpu.h"
#include "engines/cpu/engine.h"
#include "tests/attention/bound_call.h"

namespace {

using namespace fovea;

// Of this thread: what else runs on the machine is not counted.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A look at this clock takes no call of the system, which would cost more than what a call of the
// engine does between regions. What else runs on the machine is in it: the least of many counts.
double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of_a_look() {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double before = processor_seconds();
    least = std::min(least, processor_seconds() - before);
  }
  return least;
}

struct Region {
  bool shared = false;        // false: done by the caller alone
  std::vector<double> tasks;  // seconds, by number
};
using Regions = std::vector<Region>;

class Recorder final : public Executor {
 public:
  explicit Recorder(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }

  // The first worker finds all tasks there; the others would find none.
  void run(std::size_t, const std::function<void(std::size_t)>& task) override {
    if (!each_task_) {
      const double before = wall_seconds();
      for (volatile char& other : own_caches_) other = static_cast<char>(other + 1);
      shared_ += wall_seconds() - before;
      return;
    }
    ends();
    regions_.push_back({true, {}});
    regions_.back().tasks.reserve(4096);
    inside_ = true;
    last_ = processor_seconds();
    task(0);
    ends();
    inside_ = false;
  }
  void begins(std::int64_t task) override {
    if (!each_task_) return;
    ends();
    if (!inside_ && task == 0) regions_.emplace_back();
    current_ = task;
  }
  Regions take() {
    ends();
    return std::exchange(regions_, {});
  }
  // False: no task is run, so that what lies between regions can be timed. Of many workers the
  // caller does few tasks, which leave its own caches full of other things; so does this.
  void time_each_task(bool each) { each_task_ = each; }
  double take_shared_seconds() { return std::exchange(shared_, 0.0); }

 private:
  void ends() {
    // One look at the clock ends a task and begins the next. That look takes time too.
    const double now = processor_seconds(), began = std::exchange(last_, now);
    if (current_ < 0) return;
    std::vector<double>& tasks = regions_.back().tasks;
    const auto at = static_cast<std::size_t>(current_);
    if (tasks.size() <= at) tasks.resize(at + 1, 0.0);
    tasks[at] = std::max(0.0, now - began - clock_);
    current_ = -1;
  }

  int threads_;
  Regions regions_;
  bool inside_ = false;
  std::int64_t current_ = -1;
  double last_ = 0;
  double shared_ = 0;
  std::vector<char> own_caches_ = std::vector<char>(1 << 20);
  bool each_task_ = true;
  const double clock_ = seconds_of_a_look();
};

// A line's call, as an engine on a machine with so many processors would run it.
class TimedCall {
 public:
  TimedCall(const std::string& line, int threads) : bound_(line), recorder_(threads) {
    Device device = cpu_device();
    device.threads = threads;
    const Baking baking = cpu_engine().bake(bound_.problem, device);
    plan_ = cpu_engine().compile(baking.baked, cpu_engine().judge(baking.baked, device), device);
    literals_ = baking.literals;
    bound_.bind(*plan_, literals_);
    bound_.bindings.executor = &recorder_;
  }

  // Keeps the least that was seen of each task, and of what is done outside of shared regions. A
  // run before that brings its code into the caches: else the first task of a region takes half as
  // long again, which no worker that calls again and again would see.
  void measure() {
    recorder_.time_each_task(true);
    plan_->run(bound_.bindings);
    recorder_.take();
    plan_->run(bound_.bindings);
    const Regions now = recorder_.take();
    if (regions_.empty()) regions_ = now;
    for (std::size_t r = 0; r < now.size(); ++r) {
      for (std::size_t t = 0; t < now[r].tasks.size(); ++t) {
        regions_[r].tasks[t] = std::min(regions_[r].tasks[t], now[r].tasks[t]);
      }
    }
    recorder_.time_each_task(false);
    for (int again = 0; again < 8; ++again) {
      const double before = wall_seconds();
      plan_->run(bound_.bindings);
      const double alone = wall_seconds() - before - recorder_.take_shared_seconds();
      alone_ = runs_++ == 0 ? alone : std::min(alone_, alone);
    }
  }

  double on_workers(int workers, double start) const {
    double end = alone_;
    for (const auto& [shared, tasks] : regions_) {
      if (!shared) continue;  // in alone_
      std::priority_queue<double, std::vector<double>, std::greater<>> free;
      for (int i = 0; i < workers; ++i) free.push(end + start);
      double last = end;
      for (const double task : tasks) {
        const double done = free.top() + task;
        free.pop();
        free.push(done);
        last = std::max(last, done);
      }
      end = last;
    }
    return end;
  }
  double in_tasks() const {
    double sum = 0;
    for (const Region& region : regions_) {
      for (const double task : region.tasks) sum += task;
    }
    return sum;
  }
  // Where the time goes: what no task has part in, and for each region its end and its longest
  // task.
  void explain(int workers) const {
    std::printf("      alone %.1f us;", 1e6 * alone_);
    for (const Region& region : regions_) {
      double sum = 0, longest = 0;
      for (const double task : region.tasks) sum += task, longest = std::max(longest, task);
      std::printf(" [%s %zu tasks, %.1f us / %d, longest %.1f]", region.shared ? "shared" : "alone",
                  region.tasks.size(), 1e6 * sum, workers, 1e6 * longest);
    }
    std::printf("\n");
  }
  std::size_t tasks() const {
    std::size_t most = 0;
    for (const Region& region : regions_) most = std::max(most, region.tasks.size());
    return most;
  }

 private:
  test::BoundCall bound_;
  Recorder recorder_;
  std::unique_ptr<Plan> plan_;
  std::vector<float> literals_;
  Regions regions_;
  double alone_ = 0;
  int runs_ = 0;
};

struct Options {
  std::vector<std::string> lines;
  std::vector<int> workers{2, 4, 8, 12, 16, 24, 32, 48, 64, 80, 96, 112, 128};
  bool explain = false;
  double start = 0;
  int repeats = 5;
};

Options read(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const bool more = i + 1 < count;
    if (word == "--workers" && more) {
      options.workers = parse_cpus(words[++i]);
    } else if (word == "--explain") {
      options.explain = true;
    } else if (word == "--start" && more) {
      options.start = 1e-6 * std::atof(words[++i]);
    } else if (word == "--repeats" && more) {
      options.repeats = std::max(1, std::atoi(words[++i]));
    } else {
      options.lines.push_back(word);
    }
  }
  return options;
}

void report(const std::string& line, const Options& options) {
  std::printf("%s\n", line.c_str());
  double worst = 2;
  int at_worst = 0;
  // Beside each number of workers one worker is measured too: the machine's pace changes.
  for (const int workers : options.workers) {
    TimedCall one(line, 1), many(line, workers);
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
      one.measure();
      many.measure();
    }
    const double time = many.on_workers(workers, options.start);
    const double efficiency = one.in_tasks() / (time * workers);
    if (efficiency < worst) worst = efficiency, at_worst = workers;
    std::printf("%4d workers: %5.1f %%  (%zu tasks, %.3f ms of %.3f alone, tasks together %.3f)\n",
                workers, 100 * efficiency, many.tasks(), 1e3 * time, 1e3 * one.in_tasks(),
                1e3 * many.in_tasks());
    if (options.explain) many.explain(workers);
    std::fflush(stdout);
  }
  std::printf("worst: %.1f %% with %d workers\n\n", 100 * worst, at_worst);
}

}  // namespace

int main(int count, char** words) {
  const Options options = read(count, words);
  for (const std::string& line : options.lines) report(line, options);
  return options.lines.empty() ? 2 : 0;
}
