// A parallel plan as texts. The table shows work as a picture: a line per rank, a column per step.
#include <algorithm>
#include <cstdio>

#include "attention/parallel.h"

namespace fovea {
namespace {

constexpr int most_lines = 64;  // ranks that a table shows

template <class List, class Print>
std::string json_list(const List& items, Print print) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : ",") + print(item);
  return "[" + out + "]";
}

std::string count_text(std::int64_t x) { return std::to_string(x); }

std::string short_text(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", x);
  return text;
}

std::string pieces_json(const Dealt& side) {
  const auto run = [](const Run& r) {
    return "[" + count_text(r.first) + "," + count_text(r.length) + "," + count_text(r.at) + "]";
  };
  return "{\"rows\": " +
         json_list(side.rows, [](const auto& rows) { return json_list(rows, count_text); }) +
         ", \"pieces\": " +
         json_list(side.pieces, [&](const Piece& p) { return json_list(p, run); }) +
         ", \"piece_rows\": " + json_list(side.piece_rows, count_text) + "}";
}

std::string step_json(const ParallelStep& step) {
  const auto tile = [](const ParallelTile& t) {
    return "[" + count_text(t.q) + "," + count_text(t.k) + "," + short_text(t.scores) + "]";
  };
  return "{\"from\": " + count_text(step.from) + ", \"to\": " + count_text(step.to) +
         ", \"received\": " + json_list(step.received, count_text) +
         ", \"sent\": " + json_list(step.sent, count_text) +
         ", \"looking\": " + json_list(step.looking, count_text) +
         ", \"tiles\": " + json_list(step.tiles, tile) + "}";
}

std::string bytes_text(std::int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double x = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; x >= 1024 && unit + 1 < std::size(units); ++unit) x /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, x < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", x, units[unit]);
  return text;
}

std::string column(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 2), ' ');
  return text;
}

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::Ring: return "ring";
    case Strategy::AllGather: return "all_gather";
    case Strategy::AllToAll: return "all_to_all";
    case Strategy::TwoLevel: return "a2a+p2p";
  }
  return "";
}

const char* name_of(Order order) {
  switch (order) {
    case Order::Contiguous: return "contiguous";
    case Order::Zigzag: return "zigzag";
    case Order::Striped: return "striped";
  }
  return "";
}

struct Totals {
  double scores = 0, most = 0;
  std::int64_t computed = 0, tiles = 0, forward = 0, backward = 0;
};

// '#': all tiles of the step are computed, '+': some, '.': none, and nothing is sent for it.
std::string line_of(ParallelPlan& plan, int rank, Totals& totals) {
  const std::vector<ParallelStep> steps = plan.steps(rank);
  const auto each = static_cast<std::size_t>(plan.held(0).size() * plan.held(0).size());
  std::string marks;
  double scores = 0;
  for (const ParallelStep& step : steps) {
    marks += step.tiles.empty() ? '.' : step.tiles.size() == each ? '#' : '+';
    for (const ParallelTile& tile : step.tiles) scores += tile.scores;
    totals.computed += static_cast<std::int64_t>(step.tiles.size());
    totals.tiles += static_cast<std::int64_t>(each);
  }
  const ParallelPlan::Bytes bytes = plan.sent(rank, steps);
  totals.scores += scores;
  totals.most = std::max(totals.most, scores);
  totals.forward += bytes.forward;
  totals.backward += bytes.backward;
  std::string pieces;
  for (const int piece : plan.held(rank / plan.head_ranks())) {
    pieces += (pieces.empty() ? "" : ",") + count_text(piece);
  }
  return column(count_text(rank), 6) + column(pieces, 10) + column(marks, 10) +
         column(short_text(scores), 12) + column(bytes_text(bytes.forward), 12) +
         bytes_text(bytes.backward) + "\n";
}

}  // namespace

std::string to_json(ParallelPlan& plan, int rank) {
  const std::vector<ParallelStep> steps = plan.steps(rank);
  const ParallelPlan::Bytes bytes = plan.sent(rank, steps);
  return "{\"ranks\": " + count_text(plan.spec().ranks) + ", \"rank\": " + count_text(rank) +
         ", \"head_ranks\": " + count_text(plan.head_ranks()) +
         ", \"held\": " + json_list(plan.held(rank / plan.head_ranks()), count_text) +
         ",\n\"q\": " + pieces_json(plan.q()) + ",\n\"k\": " + pieces_json(plan.k()) +
         ",\n\"steps\": " + json_list(steps, step_json) +
         ",\n\"bytes\": {\"forward\": " + count_text(bytes.forward) +
         ", \"backward\": " + count_text(bytes.backward) + "}}\n";
}

std::string to_table(ParallelPlan& plan) {
  const int ranks = plan.spec().ranks;
  std::string out = std::string(name_of(plan.spec().strategy)) + " over " + count_text(ranks) +
                    " ranks, order " + name_of(plan.spec().order) + ", " +
                    count_text(static_cast<std::int64_t>(plan.q().pieces.size())) +
                    " pieces of the sequence";
  if (plan.head_ranks() > 1) {
    out += ", heads dealt out among " + count_text(plan.head_ranks()) + " ranks";
  }
  out += "\nsteps: # all tiles are computed, + some, . none (and nothing is sent)\n\n" +
         column("rank", 6) + column("pieces", 10) +
         column("steps", std::max<std::size_t>(10, static_cast<std::size_t>(plan.places()) + 2)) +
         column("scores", 12) + column("sends", 12) + "and backward\n";
  Totals totals;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string line = line_of(plan, rank, totals);
    if (rank < most_lines) out += line;
  }
  if (ranks > most_lines) out += "... and " + count_text(ranks - most_lines) + " ranks more\n";
  const double mean = totals.scores / ranks;
  return out + "\ntiles computed: " + count_text(totals.computed) + " of " +
         count_text(totals.tiles) + "; sent: " + bytes_text(totals.forward) + " forward, " +
         bytes_text(totals.backward) + " backward; the busiest rank computes " +
         short_text(mean > 0 ? totals.most / mean : 1) + " times the mean\n";
}

}  // namespace fovea
