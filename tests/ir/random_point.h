// Random values for the captured names of random_declarations(), and random points. Also what it
// means that two values are the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "ir/range.h"
#include "tests/ir/random_program.h"

namespace fovea::test {

// Sizes small enough that all positions can be tried, all different so that none is mistaken for
// another.
struct Sizes {
  std::int32_t B = 2, H = 3, Hkv = 1, Sq = 5, Skv = 4;
};

enum class Values { Tame, Any };  // near 1, or everything that a float or an integer can be

class RandomCaptured {
 public:
  RandomCaptured(Random& random, Values kind, Sizes sizes = {});

  std::span<const ir::TensorView> tensors() const { return views_; }
  std::span<const ir::ScalarValue> scalars() const { return scalars_; }
  std::span<const std::int64_t> extents(std::uint32_t slot) const;

  // A position inside the sizes, or (kind Any) now and then far outside.
  template <class Real>
  ir::Point<Real> point(Random& random) const;

  // An f32 tensor's element or a scalar, to be changed by finite differences.
  float& element(std::uint32_t slot, std::size_t i);
  std::size_t elements(std::uint32_t slot) const { return storage_[slot].size() / 8; }
  ir::ScalarValue& scalar(std::uint32_t slot) { return scalars_[slot]; }

  // The ranges that hold every scalar; what a box says about it.
  std::vector<ir::Range> scalar_ranges() const;
  ir::Box box() const;  // sizes alone

 private:
  void fill(Random& random, std::uint32_t slot);

  Values kind_;
  Sizes sizes_;
  std::vector<std::vector<std::uint8_t>> storage_;  // 8 bytes for each element
  std::vector<ir::TensorView> views_;
  std::vector<ir::ScalarValue> scalars_;
};

// Bit for bit, but any NaN equals any NaN.
template <class Real>
bool same_value(ir::Type type, const ir::Cell<Real>& a, const ir::Cell<Real>& b);

bool holds(ir::Type type, const ir::Range& range, const ir::Cell<float>& value);

template <class Real>
std::string value_text(ir::Type type, const ir::Cell<Real>& cell);

template <class Real>
std::string point_text(const ir::Point<Real>& point);

}  // namespace fovea::test
