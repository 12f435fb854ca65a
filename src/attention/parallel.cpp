#include "attention/parallel.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/words.h"
#include "ir/build.h"
#include "ir/modifier.h"

namespace fovea {
namespace {

constexpr int depth = 4;  // 16 x 16 tiles of a pair of pieces: enough to see how work is shared
constexpr std::int64_t most_sequences = 4096;  // looked at one by one

// In the order of the enumerators.
const std::vector<std::string> strategies{"ring", "all_gather", "all_to_all", "a2a+p2p"};
const std::vector<std::string> orders{"contiguous", "zigzag", "striped"};

template <class Enum>
Enum one_named(const std::string& name, const char* argument,
               const std::vector<std::string>& known) {
  const auto found = std::ranges::find(known, name);
  if (found != known.end()) return static_cast<Enum>(found - known.begin());
  throw InvalidArgument(std::string(argument) + "=" + name.substr(0, 64) + ": must be one of " +
                        joined(known) + did_you_mean(name, known));
}

// A mask, and what a modifier turns into -inf.
ir::Expr kept(const ir::Program& program) {
  ir::Expr keep = program.mask();
  if (!program.mod()) return keep;
  const ir::Expr hidden = ir::not_(ir::always_minus_infinity(program.mod()));
  return keep ? ir::and_(keep, hidden) : hidden;
}

// Where part `i` of `parts` of n rows begins; the first ones are longer by one if there is a rest.
std::int64_t cut(std::int64_t n, int i, int parts) {
  return i * (n / parts) + std::min<std::int64_t>(i, n % parts);
}

std::int64_t true_length(const SequenceValues& side, std::size_t sequence, std::int64_t padded) {
  return side.lengths.empty() ? padded : std::min<std::int64_t>(side.lengths[sequence], padded);
}

// How many rows there are of each sequence, and the sequences that differ.
struct Cutter {
  const SequenceValues& side;
  int parts, group;  // pieces of ranks, and how many of them make a piece of a step
  Dealt dealt;

  // A line of n rows, cut without regard to what it holds: what_is_in(first, last) says that.
  template <class WhatIsIn>
  void line(std::int64_t n, const WhatIsIn& what_is_in) {
    for (int i = 0; i < parts; ++i) {
      dealt.rows.push_back({cut(n, i + 1, parts) - cut(n, i, parts)});
    }
    for (int i = 0; i < parts; i += group) {
      const std::int64_t first = cut(n, i, parts), last = cut(n, i + group, parts);
      dealt.pieces.push_back(what_is_in(first, last));
      dealt.piece_rows.push_back(last - first);
    }
  }

  // Sequences of one length, beside each other.
  void dense(std::int64_t length) {
    line(length, [&](std::int64_t first, std::int64_t last) {
      Piece piece(std::max<std::size_t>(side.lengths.size(), 1));
      for (std::size_t s = 0; s < piece.size(); ++s) {
        piece[s] = {first, std::clamp(true_length(side, s, length), first, last) - first, 0};
      }
      return piece;
    });
  }

  // All sequences, one behind the other.
  void packed_line() {
    line(side.starts.back(), [&](std::int64_t first, std::int64_t last) {
      Piece piece;
      for (std::size_t s = 0; s + 1 < side.starts.size(); ++s) {
        const std::int64_t start = side.starts[s];
        const std::int64_t begin = std::clamp(start, first, last);
        const std::int64_t end = start + true_length(side, s, side.starts[s + 1] - start);
        const std::int64_t length = std::max<std::int64_t>(std::min(end, last) - begin, 0);
        piece.push_back({length > 0 ? begin - start : 0, length, begin - first});
      }
      return piece;
    });
  }

  // Each sequence cut for itself.
  void packed_each() {
    dealt.rows.resize(static_cast<std::size_t>(parts));
    dealt.pieces.resize(static_cast<std::size_t>(parts / group));
    dealt.piece_rows.resize(dealt.pieces.size());
    for (std::size_t s = 0; s + 1 < side.starts.size(); ++s) {
      const std::int64_t padded = side.starts[s + 1] - side.starts[s];
      const std::int64_t length = true_length(side, s, padded);
      for (int i = 0; i < parts; ++i) {
        dealt.rows[static_cast<std::size_t>(i)].push_back(cut(padded, i + 1, parts) -
                                                          cut(padded, i, parts));
      }
      for (int i = 0; i < parts; i += group) {
        const auto at = static_cast<std::size_t>(i / group);
        const std::int64_t first = cut(padded, i, parts), last = cut(padded, i + group, parts);
        const std::int64_t end = std::clamp(length, first, last);
        dealt.pieces[at].push_back({first, end - first, dealt.piece_rows[at]});
        dealt.piece_rows[at] += last - first;
      }
    }
  }
};

Dealt deal(const Problem& problem, const SequenceValues& side, const ParallelSpec& spec,
           int head_ranks, std::int64_t length) {
  const int parts = spec.ranks * (spec.order == TokenOrder::Zigzag ? 2 : 1);
  Cutter cutter{side, parts, head_ranks, {}};
  if (problem.layout != Layout::Thd) {
    cutter.dense(length);
  } else if (spec.order == TokenOrder::Zigzag) {
    cutter.packed_each();
  } else {
    cutter.packed_line();
  }
  return std::move(cutter.dealt);
}

int checked_head_ranks(const Problem& problem, const ParallelValues& values,
                       const ParallelSpec& spec) {
  if (spec.ranks < 1 || spec.ranks > 1 << 20) {
    throw InvalidArgument("ranks=" + std::to_string(spec.ranks) + ": must be 1 to 1048576");
  }
  int head_ranks = spec.strategy == Strategy::AllToAll ? spec.ranks : 1;
  if (spec.strategy == Strategy::TwoLevel) head_ranks = spec.head_ranks;
  if (head_ranks < 1 || spec.ranks % head_ranks != 0) {
    throw InvalidArgument("head_ranks=" + std::to_string(head_ranks) + ": must divide the " +
                          std::to_string(spec.ranks) + " ranks");
  }
  const Sizes& s = problem.sizes;
  if (s.hkv % head_ranks != 0 || s.h % head_ranks != 0) {
    throw InvalidArgument("an all-to-all among " + std::to_string(head_ranks) +
                          " ranks deals out heads, and " + std::to_string(s.hkv) +
                          " heads of keys can't be dealt out evenly; use ring, " +
                          "all_gather, or a2a+p2p with a smaller group");
  }
  const bool cut =
      problem.layout == Layout::Thd || !values.q.lengths.empty() || !values.k.lengths.empty();
  if (spec.order == TokenOrder::Striped && (head_ranks > 1 || cut)) {
    throw InvalidArgument(
        "order=striped: goes with ring and all_gather, and with sequences of one length");
  }
  if (problem.layout == Layout::Thd) {
    const auto wanted = static_cast<std::size_t>(s.b) + 1;
    if (values.q.starts.size() != wanted || values.k.starts.size() != wanted) {
      throw InvalidArgument(
          "packed sequences are dealt out by where they begin: cu_q and cu_k must be known");
    }
  }
  return head_ranks;
}

}  // namespace

Strategy strategy_of(const std::string& name) {
  return one_named<Strategy>(name, "strategy", strategies);
}

TokenOrder order_of(const std::string& name) {
  return one_named<TokenOrder>(name, "order", orders);
}

ParallelPlan::ParallelPlan(const Problem& problem, const ParallelValues& values,
                           const ParallelSpec& spec)
    : problem_(problem),
      values_(values),
      spec_(spec),
      head_ranks_(checked_head_ranks(problem, values, spec)),
      q_(deal(problem, values.q, spec, head_ranks_, problem.sizes.sq)),
      k_(deal(problem, values.k, spec, head_ranks_, problem.sizes.skv)),
      share_(problem, kept(problem.program), values.tensors, values.scalars) {
  const ir::Expr keep = kept(problem.program);
  const bool varies = keep && any(keep->depends(), ir::Depends::B | ir::Depends::Load);
  by_sequence_ = problem.layout == Layout::Thd || !values.q.lengths.empty() ||
                 !values.k.lengths.empty() || (varies && problem.sizes.b <= most_sequences);
}

std::vector<int> ParallelPlan::held(int place) const {
  if (spec_.order != TokenOrder::Zigzag) return {place};
  return {place, 2 * places() - 1 - place};
}

double ParallelPlan::scores(int q_piece, int k_piece) {
  const Piece& of_q = q_.pieces[static_cast<std::size_t>(q_piece)];
  const Piece& of_k = k_.pieces[static_cast<std::size_t>(k_piece)];
  const auto run = [](const Piece& piece, std::int64_t s) {
    return piece[piece.size() == 1 ? 0 : static_cast<std::size_t>(s)];
  };
  const auto interval = [&](const Run& r, int piece, std::int64_t offset) -> ir::IntInterval {
    if (spec_.order != TokenOrder::Striped)
      return {offset + r.first, offset + r.first + r.length - 1};
    return {offset + piece, offset + piece + (r.length - 1) * spec_.ranks};
  };
  const auto whole = [&](const SequenceValues& side, std::int64_t s, std::int64_t padded) {
    const auto at = static_cast<std::size_t>(s);
    if (!side.starts.empty()) padded = side.starts[at + 1] - side.starts[at];
    return true_length(side, at, padded);
  };
  const std::int64_t together = by_sequence_ ? 1 : problem_.sizes.b;
  double sum = 0;
  for (std::int64_t s = 0; s < problem_.sizes.b; s += together) {
    const Run q = run(of_q, s), k = run(of_k, s);
    if (q.length == 0 || k.length == 0) continue;
    const LiveShare::Rectangle box{{problem_.b_offset + s, problem_.b_offset + s + together - 1},
                                   interval(q, q_piece, problem_.q_offset),
                                   interval(k, k_piece, problem_.k_offset),
                                   whole(values_.q, s, problem_.sizes.sq),
                                   whole(values_.k, s, problem_.sizes.skv)};
    sum += share_.of(box, depth) * static_cast<double>(q.length * k.length * together);
  }
  return sum;
}

std::vector<ParallelTile> ParallelPlan::tiles(int place, int source) {
  std::vector<ParallelTile> out;
  for (const int q : held(place)) {
    for (const int k : held(source)) {
      if (const double kept = scores(q, k); kept > 0) out.push_back({q, k, kept});
    }
  }
  return out;
}

std::vector<ParallelStep> ParallelPlan::steps(int rank) {
  const int ring = places(), place = rank / head_ranks_, member = rank % head_ranks_;
  const auto pieces_of = [](const std::vector<ParallelTile>& tiles, int ParallelTile::* side) {
    std::vector<int> out;
    for (const ParallelTile& tile : tiles) out.push_back(tile.*side);
    std::ranges::sort(out);
    out.erase(std::ranges::unique(out).begin(), out.end());
    return out;
  };
  std::vector<ParallelStep> out;
  for (int i = 0; i < ring; ++i) {
    const int source = (place - i + ring) % ring, target = (place + i) % ring;
    ParallelStep step;
    step.from = source * head_ranks_ + member;
    step.to = target * head_ranks_ + member;
    step.tiles = tiles(place, source);
    if (i > 0) {
      const std::vector<ParallelTile> of_target = tiles(target, place);
      step.received = pieces_of(step.tiles, &ParallelTile::k);
      step.sent = pieces_of(of_target, &ParallelTile::k);
      step.looking = pieces_of(of_target, &ParallelTile::q);
    }
    out.push_back(std::move(step));
  }
  return out;
}

// Of the pieces of queries that a step computes.
std::int64_t ParallelPlan::rows_of_queries(const ParallelStep& step) const {
  std::int64_t rows = 0;
  int last = -1;  // tiles are sorted by q
  for (const ParallelTile& tile : step.tiles) {
    if (tile.q != last) rows += q_.piece_rows[static_cast<std::size_t>(tile.q)];
    last = tile.q;
  }
  return rows;
}

ParallelPlan::Bytes ParallelPlan::sent(int rank, const std::vector<ParallelStep>& steps) const {
  const Sizes& s = problem_.sizes;
  const std::int64_t element = dtype_size(problem_.q.dtype),
                     batch = problem_.layout == Layout::Thd ? 1 : s.b;
  // Gradients that are added up elsewhere travel as f32, or f64 if all is f64.
  const std::int64_t part = std::max<std::int64_t>(element, 4);
  const std::int64_t of_keys = s.hkv / head_ranks_ * (s.d + s.dv) * batch;
  const bool queries_travel = spec_.strategy == Strategy::AllGather && problem_.deterministic;
  Bytes bytes;
  for (const ParallelStep& step : steps) {
    if (queries_travel && !step.received.empty()) {
      // Whoever has the keys gets q, o, do and lse of all that looked at them.
      const std::int64_t of_queries = s.h * ((s.d + 2 * s.dv) * element + part) * batch;
      bytes.backward += rows_of_queries(step) * of_queries;
    }
    for (const int k : step.sent) {
      const std::int64_t numbers = k_.piece_rows[static_cast<std::size_t>(k)] * of_keys;
      bytes.forward += numbers * element;
      bytes.backward += numbers * element;
    }
    for (const int k : step.received) {
      if (queries_travel) break;
      bytes.backward += k_.piece_rows[static_cast<std::size_t>(k)] * of_keys * part;
    }
  }
  if (head_ranks_ > 1) {
    const auto rows_of = [&](const Dealt& side) {
      std::int64_t rows = 0;
      const int parts = static_cast<int>(side.rows.size());
      for (int i = 0; i < parts; ++i) {
        if (i != rank && (spec_.order != TokenOrder::Zigzag || i != parts - 1 - rank)) continue;
        for (const std::int64_t n : side.rows[static_cast<std::size_t>(i)]) rows += n;
      }
      return rows;
    };
    // q, k, v and o on the way there and back; their gradients on the way back and there.
    const std::int64_t numbers = (rows_of(q_) * s.h + rows_of(k_) * s.hkv) * (s.d + s.dv) * batch;
    const std::int64_t away = numbers / head_ranks_ * (head_ranks_ - 1) * element;
    bytes.forward += away;
    bytes.backward += away;
  }
  return bytes;
}

// A parallel plan as texts. The table shows work as a picture: a line per rank, a column per step.
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
  std::string out =
      strategies[static_cast<std::size_t>(plan.spec().strategy)] + " over " + count_text(ranks) +
      " ranks, order " + orders[static_cast<std::size_t>(plan.spec().order)] + ", " +
      count_text(static_cast<std::int64_t>(plan.q().pieces.size())) + " pieces of the sequence";
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
