#include "attention/live_share.h"

#include <algorithm>

#include "attention/extents.h"

namespace fovea {
namespace {

constexpr double guess = 0.5;
constexpr int deepest = 6;  // 64 x 64 tiles
constexpr int most_boxes = 600;

bool is_known(const Problem& problem) {
  return !any(problem.program.mask()->depends(), ir::Depends::Load) &&
         std::ranges::all_of(problem.program.scalars(),
                             [](const ir::ScalarDecl& scalar) { return scalar.value.has_value(); });
}

// `bound` is the value of a call, or null.
ir::Range known_range(const ir::ScalarDecl& scalar, const ir::ScalarValue* bound) {
  ir::Range known;
  if (scalar.type == ir::Type::I32) {
    if (bound != nullptr) {
      known.i = ir::IntInterval::of(bound->i);
    } else if (scalar.value) {
      known.i = ir::IntInterval::of(static_cast<std::int64_t>(*scalar.value));
    }
  } else if (bound != nullptr) {
    known.f = ir::RealInterval::of(bound->f);
  } else if (scalar.value) {
    known.f = ir::RealInterval::of(static_cast<float>(*scalar.value));
  }
  return known;
}

}  // namespace

LiveShare::LiveShare(const Problem& problem, const ir::Expr& keep,
                     std::span<const ir::TensorView> tensors,
                     std::span<const std::optional<ir::ScalarValue>> scalars)
    : tensors_(tensors) {
  if (keep) mask_.emplace(keep);
  const Sizes& s = problem.sizes;
  box_.h = {problem.h_offset, problem.h_offset + s.h - 1};
  box_.B = ir::IntInterval::of(s.b);
  box_.H = ir::IntInterval::of(heads_seen(s, problem.h_global));
  box_.Hkv = ir::IntInterval::of(s.hkv);
  for (std::size_t slot = 0; slot < problem.program.scalars().size(); ++slot) {
    const bool is_bound = slot < scalars.size() && scalars[slot].has_value();
    scalars_.push_back(
        known_range(problem.program.scalars()[slot], is_bound ? &*scalars[slot] : nullptr));
  }
  box_.scalars = scalars_;
  if (!mask_ || tensors.empty() || mask_->loads().empty()) return;
  load_ranges_.emplace(*mask_);
  loads_.resize(load_ranges_->count());
  inner_.resize(load_ranges_->count());
  steps_.resize(load_ranges_->step_count());
  broken_.resize(load_ranges_->step_count());
}

double LiveShare::of(const Rectangle& rectangle, int depth) {
  if (!mask_) return 1;
  box_.b = rectangle.b;
  box_.Sq = ir::IntInterval::of(rectangle.Sq);
  box_.Skv = ir::IntInterval::of(rectangle.Skv);
  boxes_ = 0;
  return share(rectangle.q, rectangle.k, depth);
}

ir::TileClass LiveShare::classify() {
  box_.loads = {};
  if (load_ranges_) {
    for (std::size_t load = 0; load < loads_.size(); ++load) {
      const bool known = tensors_[mask_->loads()[load]->slot()].data != nullptr;
      loads_[load] = !known
                         ? ir::Range{}
                         : load_ranges_->find({.load = load, .tensors = tensors_, .found = loads_},
                                              box_, {{steps_, broken_}, inner_});
    }
    box_.loads = loads_;
  }
  return mask_->classify(box_, scratch_);
}

// The kept part of a rectangle of positions.
double LiveShare::share(ir::IntInterval q, ir::IntInterval k, int depth) {
  box_.q = q;
  box_.k = k;
  ++boxes_;
  switch (classify()) {
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

double live_share(const Problem& problem) {
  const Sizes& s = problem.sizes;
  if (!problem.program.mask() || s.sq == 0 || s.skv == 0 || s.b == 0 || s.h == 0) return 1;
  if (!is_known(problem)) return guess;
  const std::int64_t b = problem.b_offset, q = problem.q_offset, k = problem.k_offset;
  return LiveShare(problem, problem.program.mask())
      .of({{b, b + s.b - 1}, {q, q + s.sq - 1}, {k, k + s.skv - 1}, s.sq, s.skv}, deepest);
}

}  // namespace fovea
