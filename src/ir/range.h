// What a formula can be over a box of positions: whether a mask is empty, full or mixed over a
// tile, and whether a load is in bounds. Sound for every formula (a live tile is never called
// empty); exact for comparisons that are linear in the positions, also through // and % by
// constants. Fuzzed against eval.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/eval.h"
#include "ir/expr.h"
#include "ir/interval.h"

namespace fovea::ir {

// A box of positions, with the sizes, scalars and loaded values that hold in it. What is not said
// may be anything that its type allows.
struct Box {
  IntInterval b, h, q, k;
  IntInterval B, H, Hkv, Sq, Skv;
  std::span<const Range> scalars;  // by slot; empty: unknown
  std::span<const Range> loads;    // in the order of Ranges::loads(); empty: unknown
};

enum class TileClass : std::uint8_t { Empty, Full, Mixed };

struct RangeCode;
struct RangeStep;

// Formulas put in order once, to be bounded over many boxes. Immutable; safe from many threads,
// each with its own scratch memory.
class Ranges {
 public:
  explicit Ranges(std::span<const Expr> roots);
  explicit Ranges(const Expr& root) : Ranges(std::span(&root, 1)) {}

  const std::vector<Expr>& loads() const;  // the distinct loads in the formulas

  // What bound() works in: the caller's own memory, of step_count() values each, for those who may
  // not allocate; or a Scratch, which grows by itself.
  struct Memory {
    std::span<Range> values;  // of every step
    std::span<char> broken;   // whether some i32 sum in it may have wrapped
  };
  struct Scratch {
    std::vector<Range> values;
    std::vector<char> broken;
  };
  std::size_t step_count() const;

  void bound(const Box& box, Memory memory) const;
  void bound(const Box& box, Scratch& scratch) const;
  const Range& range(Memory memory, std::size_t root = 0) const;
  const Range& range(const Scratch& scratch, std::size_t root = 0) const;

  // The class of a tile under the mask that is the first root.
  TileClass classify(const Box& box, Memory memory) const;
  TileClass classify(const Box& box, Scratch& scratch) const;

 private:
  std::shared_ptr<const RangeCode> code_;
};

// One formula over one box.
Range bound(const Expr& expr, const Box& box);

// What the loads of a formula can read over a box: minima and maxima of the part of each captured
// tensor that its indices reach. Fills Box::loads for ir/range.
class LoadRanges {
 public:
  explicit LoadRanges(const Ranges& formula);

  // Ranges of formula.loads() over the box (whose own `loads` are not read). A part of more than
  // a million elements is not searched: its range is unknown.
  std::vector<Range> find(const Box& box, std::span<const TensorView> tensors) const;

  // The same without allocating. `steps` has step_count() values, `inner` as many as
  // the formula has loads.
  struct Memory {
    Ranges::Memory steps;
    std::span<Range> inner;
  };
  std::size_t step_count() const { return step_count_; }
  std::size_t count() const { return entries_.size(); }

  // Load number `load` alone: `found` holds the ranges of all loads before it. Unknown if more than
  // `most` elements would be searched.
  struct Question {
    std::size_t load = 0;
    std::int64_t most = std::int64_t{1} << 20;
    std::span<const TensorView> tensors;
    std::span<const Range> found;
  };
  Range find(const Question& question, const Box& box, Memory memory) const;

 private:
  struct LoadIndices {
    Expr load;
    Ranges indices;
    std::vector<std::uint32_t> inner;  // numbers of the loads inside the indices
  };
  std::vector<LoadIndices> entries_;
  std::size_t step_count_ = 0;
};

// Elements of a captured tensor with first[i] <= index[i] <= last[i], all within the extents.
struct TensorPart {
  std::array<std::int64_t, limits::rank> first{};
  std::array<std::int64_t, limits::rank> last{};
};

// Their minima and maxima: the values that formulas can read there. An empty tensor reads as 0.
Range extremes(const TensorView& tensor, const TensorPart& part);

}  // namespace fovea::ir
