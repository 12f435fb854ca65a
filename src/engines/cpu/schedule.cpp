#include "engines/cpu/schedule.h"

#include <algorithm>

#include "engines/cpu/blocks.h"

namespace fovea::cpu {

namespace {

// How many rounds of `tasks` tasks (one for each worker) are given out before the rest is cut in
// half. If there are several, a quarter of one is left at least, so that those who were held up can
// be helped. Uneven tasks may take twice as long as the mean: then it takes two rounds to balance
// them.
std::int64_t rounds_of(std::int64_t tasks, std::int64_t workers, bool even) {
  if (!even) return tasks < 2 * workers ? 0 : (2 * tasks - workers) / (2 * workers);
  const std::int64_t rounds = tasks / workers;
  return rounds > 1 && tasks % workers <= workers / 4 ? rounds - 1 : rounds;
}

}  // namespace

// At the end workers wait for one part of the smallest size, but small parts cost more. Of the
// depths that take about the same time the deepest is taken.
void WaveSchedule::Node::share(const Shape& shape, std::int64_t workers) {
  if (workers == 1) {
    whole = shape.whole_heads ? heads : 0;
    pieces[0] = shared() * shape.pieces;
    return;
  }
  if (shape.whole_heads) whole = std::max<std::int64_t>(0, heads / workers - 1) * workers;
  int deepest = 0;
  while ((2 << deepest) <= shape.most_cuts) ++deepest;
  if (!shape.even && cut_in_pairs(shape, workers, deepest)) return;
  std::int64_t least = cut_in_rounds(shape, workers, deepest);
  if (!shape.even) return;
  for (int depth = deepest - 1; depth >= 0; --depth) {
    least = std::min(least, cut_in_rounds(shape, workers, depth));
  }
  while (cut_in_rounds(shape, workers, deepest) > least + least / 32) --deepest;
}

// Uneven tasks of one size, of which nobody does more than two: the longer the first one is that
// somebody takes, the shorter the second. False: no size has a little less than two for each.
bool WaveSchedule::Node::cut_in_pairs(const Shape& shape, std::int64_t workers, int deepest) {
  for (int level = 0; level <= deepest; ++level) {
    const std::int64_t tasks = (shared() * shape.pieces) << level;
    if (tasks > 2 * workers || 5 * tasks < 8 * workers) continue;
    pieces = {};
    pieces[static_cast<std::size_t>(level)] = shared() * shape.pieces;
    return true;
  }
  return false;
}

// Whole rounds of pieces, then of halves and so on; all that is left in parts of the last size.
// Returns about how long that takes.
std::int64_t WaveSchedule::Node::cut_in_rounds(const Shape& shape, std::int64_t workers,
                                               int deepest) {
  constexpr std::int64_t piece = 192, besides = 8;  // what a task costs besides: 4 rows of 96
  std::int64_t left = shared() * shape.pieces, time = 0;
  pieces = {};
  for (int level = 0; level <= deepest; ++level) {
    const std::int64_t tasks = left << level;
    const std::int64_t rounds =
        level == deepest ? ceil_div(tasks, workers) : rounds_of(tasks, workers, shape.even);
    const std::int64_t here = level == deepest ? left : (rounds * workers) >> level;
    pieces[static_cast<std::size_t>(level)] = here;
    left -= here;
    time += rounds * ((piece >> level) + besides);
  }
  return time;
}

std::int64_t WaveSchedule::Node::tasks() const {
  std::int64_t count = whole;
  for (std::size_t level = 0; level < levels; ++level) count += pieces[level] << level;
  return count;
}

// Pieces of one number are taken of all heads before those of the next.
WaveSchedule::Task WaveSchedule::Node::find(std::int64_t task) const {
  Task out;
  if (task < whole) {
    out.head = first_head + task;
    out.whole = true;
    return out;
  }
  task -= whole;
  std::int64_t piece = 0;  // of all
  for (std::size_t level = 0; level < levels; ++level) {
    const std::int64_t here = pieces[level] << level;
    if (task < here) {
      piece += task >> level;
      out.cuts = 1 << level;
      out.cut = static_cast<int>(task) & (out.cuts - 1);
      break;
    }
    task -= here;
    piece += pieces[level];
  }
  out.head = first_head + whole + piece % shared();
  out.piece = piece / shared();
  return out;
}

WaveSchedule::WaveSchedule(const Shape& shape, int workers, int nodes) {
  const std::int64_t most = std::min<std::int64_t>({nodes, workers, shape.heads, most_homes});
  nodes_ = static_cast<int>(std::max<std::int64_t>(1, most));
  for (int n = 0; n < nodes_; ++n) {
    Node& node = node_[static_cast<std::size_t>(n)];
    node.first_head = shape.heads * n / nodes_;
    node.heads = shape.heads * (n + 1) / nodes_ - node.first_head;
    node.share(shape, std::max(1, workers / nodes_));
    first_task_[static_cast<std::size_t>(n) + 1] =
        first_task_[static_cast<std::size_t>(n)] + node.tasks();
  }
}

WaveSchedule::Task WaveSchedule::find(std::int64_t task) const {
  std::size_t n = 0;
  while (task >= first_task_[n + 1]) ++n;
  return node_[n].find(task - first_task_[n]);
}

bool WaveSchedule::is_whole(std::int64_t head) const {
  return std::ranges::any_of(
      std::span(node_).first(static_cast<std::size_t>(nodes_)), [&](const Node& node) {
        return head >= node.first_head && head < node.first_head + node.whole;
      });
}

std::int64_t WaveSchedule::shared_heads() const {
  std::int64_t count = 0;
  for (const Node& node : node_) count += node.shared();
  return count;
}

}  // namespace fovea::cpu
