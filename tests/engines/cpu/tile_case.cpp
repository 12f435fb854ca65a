#include "tests/engines/cpu/tile_case.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "ir/eval.h"
#include "ir/print.h"
#include "tests/engines/cpu/guarded_memory.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr float infinity = std::numeric_limits<float>::infinity();

std::int32_t wrap(std::int64_t x) { return static_cast<std::int32_t>(x); }

struct Truth {
  bool seen = false;     // some score is kept and can be more than -inf
  bool all_kept = true;  // by the mask
};

class BruteForce {
 public:
  explicit BruteForce(const TileCase& test) : test_(test) {
    if (test.program.mask()) mask_.emplace(test.program.mask());
    if (test.program.mod()) mod_.emplace(test.program.mod());
    const cpu::KeySequence& s = test.sequence;
    point_.b = s.b, point_.B = s.B, point_.H = s.H, point_.Hkv = s.Hkv;
    point_.Sq = s.Sq, point_.Skv = s.Skv;
    point_.scalars = s.scalars, point_.tensors = s.tensors;
  }

  Truth tile(int number) {
    Truth truth;
    const cpu::KeySequence& s = test_.sequence;
    const std::int64_t first = std::int64_t{number} * test_.tile_columns;
    const std::int64_t last = std::min(first + test_.tile_columns, s.k_length);
    for (std::int64_t h = test_.block.h_first; h <= test_.block.h_last; ++h) {
      for (int i = 0; i < test_.rows; ++i) {
        for (std::int64_t k = first; k < last; ++k) {
          point_.h = wrap(h);
          point_.q = wrap(std::int64_t{test_.block.q_first} + i);
          point_.k = wrap(s.k_offset + k);
          look(truth);
        }
      }
    }
    return truth;
  }

 private:
  void look(Truth& truth) {
    if (mask_) {
      (*mask_)(point_);
      if (!mask_->value().b) {
        truth.all_kept = false;
        return;
      }
    }
    if (truth.seen) return;
    truth.seen = !mod_;
    for (const float score : {0.0f, 1.5f, -2.0f, infinity, -infinity, std::nanf("")}) {
      if (truth.seen) return;
      point_.score = score;
      (*mod_)(point_);
      truth.seen = mod_->value().f != -infinity;
    }
  }

  const TileCase& test_;
  std::optional<Evaluator<float>> mask_, mod_;
  Point<float> point_;
};

void count(TileResult& result, BruteForce& brute, const cpu::Tile* given, int number) {
  const Truth truth = brute.tile(number);
  ++result.tiles;
  const std::string name = "tile " + std::to_string(number);
  if (given == nullptr) {
    if (truth.seen) result.failure = name + " is seen, but was not given";
    return;
  }
  ++result.given;
  result.full += given->full ? 1 : 0;
  result.vague += truth.seen ? 0 : 1;
  result.missed_full += truth.all_kept && !given->full ? 1 : 0;
  if (given->full && !truth.all_kept) result.failure = name + " is not full";
}

}  // namespace

TileResult run_tile_case(const TileCase& test) {
  const cpu::TileMap map(test.program, test.tile_columns);
  const GuardedMemory scratch(map.scratch_bytes());
  const GuardedMemory table(map.table_bytes(test.sequence.k_length));
  map.fill_table(test.sequence, table.data(), scratch.data());
  cpu::TileWalk walk(map, scratch.data());
  walk.start(test.sequence, table.data(), test.block);
  std::vector<cpu::Tile> given;
  for (cpu::Tile tile; given.size() < 1000 && walk.next(tile);) given.push_back(tile);

  TileResult result;
  BruteForce brute(test);
  std::size_t at = 0;
  const std::int64_t all = (test.sequence.k_length + test.tile_columns - 1) / test.tile_columns;
  const auto last = static_cast<int>(std::min<std::int64_t>(test.block.last_tile, all));
  for (int number = test.block.first_tile; number < last && result.failure.empty(); ++number) {
    const bool hit = at < given.size() && given[at].number == number;
    count(result, brute, hit ? &given[at] : nullptr, number);
    at += hit ? 1 : 0;
  }
  if (result.failure.empty() && at != given.size()) result.failure = "tiles out of order";
  if (!scratch.intact() || !table.intact()) result.failure = "wrote past its memory";
  result.visited = static_cast<long>(walk.visited());
  if (!result.failure.empty()) result.failure += "\n" + print(test.program);
  return result;
}

}  // namespace fovea::test
