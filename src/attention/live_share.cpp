#include "attention/live_share.h"

#include <algorithm>
#include <vector>

#include "attention/extents.h"
#include "ir/range.h"

namespace fovea {
namespace {

constexpr double guess = 0.5;
constexpr int deepest = 6;  // 64 x 64 tiles
constexpr int most_boxes = 600;

class Estimate {
 public:
  Estimate(const Problem& problem) : mask_(problem.program.mask()) {
    const Sizes& s = problem.sizes;
    box_.b = {problem.b_offset, problem.b_offset + s.b - 1};
    box_.h = {problem.h_offset, problem.h_offset + s.h - 1};
    box_.B = ir::IntInterval::of(s.b);
    box_.H = ir::IntInterval::of(heads_seen(s, problem.h_global));
    box_.Hkv = ir::IntInterval::of(s.hkv);
    box_.Sq = ir::IntInterval::of(s.sq);
    box_.Skv = ir::IntInterval::of(s.skv);
    for (const ir::ScalarDecl& scalar : problem.program.scalars()) {
      ir::Range known;
      if (scalar.value && scalar.type == ir::Type::I32) {
        known.i = ir::IntInterval::of(static_cast<std::int64_t>(*scalar.value));
      } else if (scalar.value) {
        known.f = ir::RealInterval::of(static_cast<float>(*scalar.value));
      }
      scalars_.push_back(known);
    }
    box_.scalars = scalars_;
  }

  // The kept part of a rectangle of positions.
  double share(ir::IntInterval q, ir::IntInterval k, int depth) {
    box_.q = q;
    box_.k = k;
    ++boxes_;
    switch (mask_.classify(box_, scratch_)) {
      case ir::TileClass::Empty: return 0;
      case ir::TileClass::Full: return 1;
      case ir::TileClass::Mixed: break;
    }
    if (depth == 0 || boxes_ > most_boxes || q.single() || k.single()) return 1;
    const ir::IntInterval q_halves[] = {{q.lo, (q.lo + q.hi) / 2}, {(q.lo + q.hi) / 2 + 1, q.hi}};
    const ir::IntInterval k_halves[] = {{k.lo, (k.lo + k.hi) / 2}, {(k.lo + k.hi) / 2 + 1, k.hi}};
    double sum = 0;
    for (const ir::IntInterval& of_q : q_halves) {
      for (const ir::IntInterval& of_k : k_halves) sum += share(of_q, of_k, depth - 1);
    }
    return sum / 4;
  }

 private:
  ir::Ranges mask_;
  ir::Ranges::Scratch scratch_;
  ir::Box box_;
  std::vector<ir::Range> scalars_;
  int boxes_ = 0;
};

bool is_known(const Problem& problem) {
  return !any(problem.program.mask()->depends(), ir::Depends::Load) &&
         std::ranges::all_of(problem.program.scalars(),
                             [](const ir::ScalarDecl& scalar) { return scalar.value.has_value(); });
}

}  // namespace

double live_share(const Problem& problem) {
  const Sizes& s = problem.sizes;
  if (!problem.program.mask() || s.sq == 0 || s.skv == 0 || s.b == 0 || s.h == 0) return 1;
  if (!is_known(problem)) return guess;
  const std::int64_t q = problem.q_offset, k = problem.k_offset;
  return Estimate(problem).share({q, q + s.sq - 1}, {k, k + s.skv - 1}, deepest);
}

}  // namespace fovea
