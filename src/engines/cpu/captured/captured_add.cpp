#include "engines/cpu/captured/captured_add.h"

#include <algorithm>
#include <bit>

#include "base/dtype.h"
#include "base/error.h"
#include "ir/eval.h"

namespace fovea::cpu {
namespace {

// Sums in float have few terms each: eight side by side, then added up in double.
double sum_of(const float* x, int count) {
  constexpr int width = 8;
  std::array<float, width> parts{};
  double sum = 0;
  int i = 0;
  for (; i + width <= count; i += width) {
    for (int j = 0; j < width; ++j) parts[static_cast<std::size_t>(j)] += x[i + j];
  }
  for (; i < count; ++i) sum += static_cast<double>(x[i]);
  for (const float part : parts) sum += static_cast<double>(part);
  return sum;
}

// Sums of 16 bits: only of elements that hardly ever get a second term.
struct HalfSum {
  std::uint16_t bits;
  void operator+=(double x) {
    bits = float_to_half(static_cast<float>(static_cast<double>(half_to_float(bits)) + x));
  }
};
struct BFloatSum {
  std::uint16_t bits;
  void operator+=(double x) {
    bits = float_to_bfloat16(static_cast<float>(static_cast<double>(bfloat16_to_float(bits)) + x));
  }
};

void add(float& sum, double x) { sum = static_cast<float>(static_cast<double>(sum) + x); }
void add(double& sum, double x) { sum += x; }
void add(HalfSum& sum, double x) { sum += x; }
void add(BFloatSum& sum, double x) { sum += x; }
void add(float& sum, float x) { sum += x; }
template <class T>
void add(T& sum, float x) {
  add(sum, static_cast<double>(x));
}

std::int32_t index_at(const StripIndex& index, int row, int column) {
  const StripValue& value = index.value;
  return value.i32()[std::int64_t{row} * value.row_step + std::int64_t{column} * value.column_step];
}

// The indices of a row of scores along one dimension: first, first + step, ... if `regular`, all
// modulo 2^32.
struct Progression {
  std::int64_t first = 0, step = 0;
  bool regular = true;

  Progression(const StripIndex& index, int row, int columns) : first(index_at(index, row, 0)) {
    if (index.slope) {
      step = *index.slope;
      return;
    }
    if (columns < 2) return;
    const auto at = [&](int c) { return static_cast<std::uint32_t>(index_at(index, row, c)); };
    const std::uint32_t start = at(0), difference = at(1) - start;
    step = static_cast<std::int32_t>(difference);
    std::uint32_t wrong = 0;
    for (int c = 2; c < columns; ++c) {
      wrong |= at(c) ^ (start + static_cast<std::uint32_t>(c) * difference);
    }
    regular = wrong == 0;
  }

  // Nothing is clamped, and so nothing has wrapped.
  bool within(int columns, std::int64_t extent) const {
    const std::int64_t last = first + step * (columns - 1);
    return regular && std::min(first, last) >= 0 && std::max(first, last) < extent;
  }
};

// Elements side by side, forwards or backwards. Blocks of fixed length become vector code; a strip
// never overlaps a gradient.
template <class T>
void add_forwards(T* __restrict at, const float* __restrict row, int columns) {
  constexpr int block = 8;
  for (; columns >= block; columns -= block, at += block, row += block) {
    for (int i = 0; i < block; ++i) add(at[i], row[i]);
  }
  for (int i = 0; i < columns; ++i) add(at[i], row[i]);
}

template <class T>
void add_backwards(T* at, const float* row, int columns) {
  std::array<float, most_strip_columns> turned;
  for (int c = 0; c < columns; ++c) turned[static_cast<std::size_t>(columns - 1 - c)] = row[c];
  add_forwards(at - (columns - 1), turned.data(), columns);
}

template <class T>
class StripAdder {
 public:
  StripAdder(const CapturedTarget& target, T* sums, std::span<const StripIndex> index,
             LiveStrip& strip)
      : shape_(target.shape), sums_(sums), index_(index), strip_(strip) {
    for (std::size_t d = 0; d < index.size(); ++d) {
      varies_by_row_ = varies_by_row_ || index[d].value.row_step != 0;
      if (index[d].value.column_step == 0) continue;
      ++varying_columns_;
      column_index_ = d;
    }
  }

  void run() {
    if (varying_columns_ == 0) {
      add_sums();
    } else if (!varies_by_row_) {
      const auto sums = strip_.column_sums();
      add_row(0, sums.data());
    } else {
      for (int r = 0; r < strip_.rows(); ++r) {
        const float* const row = strip_.row(r);
        if (row != nullptr) add_row(r, row);
      }
    }
  }

 private:
  // The element by the indices that do not change along a row, all but number `but`.
  T* row_start(int row, std::size_t but) const {
    T* at = sums_;
    for (std::size_t d = 0; d < index_.size(); ++d) {
      if (d != but) at += clamped(d, index_at(index_[d], row, 0)) * shape_.stride[d];
    }
    return at;
  }

  std::int64_t clamped(std::size_t d, std::int64_t i) const {
    return ir::clamp_index(i, shape_.extent[d]);
  }

  // No index changes along a row.
  void add_sums() {
    const std::size_t all = index_.size();
    if (!varies_by_row_) {
      add(*row_start(0, all), strip_.sum());
      return;
    }
    for (int r = 0; r < strip_.rows(); ++r) {
      const float* const row = strip_.row(r);
      if (row != nullptr) add(*row_start(r, all), sum_of(row, strip_.columns()));
    }
  }

  void add_row(int r, const float* row) {
    if (varying_columns_ > 1) {
      for (int c = 0; c < strip_.columns(); ++c) add_score(r, c, row[c]);
      return;
    }
    const std::size_t d = column_index_;
    const int columns = strip_.columns();
    const Progression indices(index_[d], r, columns);
    T* const start = row_start(r, d);
    if (indices.regular && indices.step == 0) {
      add(start[clamped(d, indices.first) * shape_.stride[d]], sum_of(row, columns));
    } else if (indices.within(columns, shape_.extent[d])) {
      add_side_by_side(start + indices.first * shape_.stride[d], indices.step * shape_.stride[d],
                       row);
    } else {
      for (int c = 0; c < columns; ++c) {
        add(start[clamped(d, index_at(index_[d], r, c)) * shape_.stride[d]], row[c]);
      }
    }
  }

  void add_side_by_side(T* at, std::int64_t step, const float* row) const {
    const int columns = strip_.columns();
    if (step == 1) {
      add_forwards(at, row, columns);
    } else if (step == -1) {
      add_backwards(at, row, columns);
    } else {
      for (int c = 0; c < columns; ++c) add(at[c * step], row[c]);
    }
  }

  void add_score(int r, int c, float gradient) const {
    T* at = sums_;
    for (std::size_t d = 0; d < index_.size(); ++d) {
      at += clamped(d, index_at(index_[d], r, c)) * shape_.stride[d];
    }
    add(*at, gradient);
  }

  const ElementShape& shape_;
  T* sums_;
  std::span<const StripIndex> index_;
  LiveStrip& strip_;
  bool varies_by_row_ = false;
  int varying_columns_ = 0;
  std::size_t column_index_ = 0;  // that changes along a row, if there is one
};

constexpr std::array<std::array<std::uint32_t, 4>, 16> kept_by_bits = [] {
  std::array<std::array<std::uint32_t, 4>, 16> table{};
  for (std::size_t bits = 0; bits < 16; ++bits) {
    for (std::size_t i = 0; i < 4; ++i) table[bits][i] = (bits >> i & 1) != 0 ? ~0u : 0u;
  }
  return table;
}();

}  // namespace

const float* LiveStrip::row(int r) {
  const std::uint64_t all = columns_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << columns_) - 1;
  const std::uint64_t alive = live_ == nullptr ? all : live_[r] & all;
  const float* const from = value_.f32() + std::int64_t{r} * value_.row_step;
  if (alive == 0) return nullptr;
  if (alive == all && value_.column_step == 1) return from;
  // Four columns at a time, by a table of what four bits keep.
  std::array<std::uint32_t, most_strip_columns> cells;
  for (int c = 0; c < columns_; ++c) {
    cells[static_cast<std::size_t>(c)] =
        std::bit_cast<std::uint32_t>(from[std::int64_t{c} * value_.column_step]);
  }
  for (std::size_t c = 0; c < static_cast<std::size_t>(columns_); c += 4) {
    const std::array<std::uint32_t, 4>& keep = kept_by_bits[alive >> c & 15];
    for (std::size_t i = 0; i < 4; ++i) cells[c + i] &= keep[i];
  }
  masked_ = std::bit_cast<decltype(masked_)>(cells);
  return masked_.data();
}

std::array<float, most_strip_columns> LiveStrip::column_sums() {
  std::array<float, most_strip_columns> sums{};
  for (int r = 0; r < rows_; ++r) {
    const float* const from = row(r);
    if (from == nullptr) continue;
    for (int c = 0; c < columns_; ++c) sums[static_cast<std::size_t>(c)] += from[c];
  }
  return sums;
}

double LiveStrip::sum() {
  const auto sums = column_sums();
  return sum_of(sums.data(), columns_);
}

std::int64_t element_of(const CapturedTarget& target, std::span<const StripIndex> index, int row) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) {
    at += ir::clamp_index(index_at(index[d], row, 0), target.shape.extent[d]) *
          target.shape.stride[d];
  }
  return at;
}

namespace {

// Calls body(sums) with the type that elements are added up as.
template <class Body>
void with_type(const CapturedTarget& target, void* sums, const Body& body) {
  switch (target.type) {
    case DType::F32: return body(static_cast<float*>(sums));
    case DType::F64: return body(static_cast<double*>(sums));
    case DType::F16: return body(static_cast<HalfSum*>(sums));
    case DType::BF16: return body(static_cast<BFloatSum*>(sums));
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  throw InternalError("a gradient that is not of a float type");
}

}  // namespace

void add_element(const CapturedTarget& target, std::int64_t at, double x) {
  with_type(target, target.sums, [&](auto* to) { add(to[at], x); });
}

void add_strip(const CapturedTarget& target, void* sums, std::span<const StripIndex> index,
               LiveStrip& strip) {
  with_type(target, sums, [&](auto* to) { StripAdder(target, to, index, strip).run(); });
}

}  // namespace fovea::cpu
