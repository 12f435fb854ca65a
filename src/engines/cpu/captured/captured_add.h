// Adds one strip of gradients to a captured tensor's sums, in the form that the indices allow: one
// sum for the strip, for a row or for a column; whole rows side by side; or one score at a time.
// Used by captured_run alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "engines/cpu/captured/captured_target.h"
#include "engines/cpu/strips/strip.h"

namespace fovea::cpu {

inline constexpr int most_strip_columns = 64;

// The gradients of a strip, row by row, 0 if a score is not alive.
class LiveStrip {
 public:
  LiveStrip(StripValue value, const StripRun::Strip& strip, const std::uint64_t* live)
      : value_(value), live_(live), rows_(strip.rows), columns_(strip.columns) {}

  int rows() const { return rows_; }
  int columns() const { return columns_; }
  // Columns of a row side by side, valid until the next call; null if nothing in it is alive.
  const float* row(int r);
  // Of each column, over all rows.
  std::array<float, most_strip_columns> column_sums();
  double sum();

 private:
  StripValue value_;
  const std::uint64_t* live_;
  int rows_, columns_;
  std::array<float, most_strip_columns> masked_;
};

// One index of a load: its values over the strip, and how they change from column to column if that
// is known.
struct StripIndex {
  StripValue value;
  std::optional<std::int32_t> slope{};
};

// The element that the indices of a strip's row name, if none of them changes along the row.
std::int64_t element_of(const CapturedTarget& target, std::span<const StripIndex> index, int row);
void add_element(const CapturedTarget& target, std::int64_t at, double x);  // of lane 0

// `sums` is the target's memory of this lane.
void add_strip(const CapturedTarget& target, void* sums, std::span<const StripIndex> index,
               LiveStrip& strip);

}  // namespace fovea::cpu
