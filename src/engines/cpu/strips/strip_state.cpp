#include "engines/cpu/strips/strip_state.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace fovea::cpu {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t cell = sizeof(float);

constexpr std::size_t up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
constexpr std::size_t number(ir::Stage stage) { return static_cast<std::size_t>(stage); }
constexpr std::size_t number(Storage storage) { return static_cast<std::size_t>(storage); }

}  // namespace

StripLayout layout_of(const StripCode& code, int rows, int columns) {
  const auto width = static_cast<std::size_t>(code.kernels.panel_width);
  const auto row_count = static_cast<std::size_t>(rows);
  StripLayout out;
  out.row_pitch = up(up(row_count, width) * cell, alignment);
  out.column_pitch = up(up(static_cast<std::size_t>(columns), width) * cell, alignment);
  out.element_pitch = static_cast<std::size_t>(code.kernels.strip_rows) * width * cell;
  out.row_at_pitch = up(row_count * sizeof(std::int64_t), alignment);
  out.uniform = up(sizeof(StripState), alignment);
  out.views = up(out.uniform + code.registers[number(ir::Stage::Uniform)] * cell, alignment);
  out.row_at = up(out.views + code.element_loads * sizeof(LoadView), alignment);
  out.row = out.row_at + code.element_loads * out.row_at_pitch;
  out.column = out.row + code.registers[number(ir::Stage::Row)] * out.row_pitch;
  out.element = out.column + code.registers[number(ir::Stage::Column)] * out.column_pitch;
  out.total = out.element + code.registers[number(ir::Stage::Element)] * out.element_pitch;
  return out;
}

StorageBases StripState::lines(ir::Stage stage) const {
  StorageBases out;
  out.base[number(Storage::Uniform)] = at(layout.uniform);
  out.base[number(Storage::Row)] = at(layout.row);
  out.base[number(Storage::Column)] = at(layout.column);
  out.pitch = {cell, layout.row_pitch, layout.column_pitch};
  out.row_step[number(static_cast<Storage>(stage))] = panel_width();
  return out;
}

StorageBases StripState::strip() const {
  StorageBases out = lines(ir::Stage::Uniform);
  out.base[number(Storage::Element)] = at(layout.element);
  out.pitch[number(Storage::Element)] = layout.element_pitch;
  const std::int64_t width = panel_width();
  out.row_step = {0, 1, 0, width, width, 0, width};
  return out;
}

void StripState::move_to(const StripRun::Strip& to) {
  bases.base[number(Storage::Row)] = at(layout.row + static_cast<std::size_t>(to.row) * cell);
  bases.base[number(Storage::Column)] =
      at(layout.column + static_cast<std::size_t>(to.column) * cell);
  bases.base[number(Storage::Score)] = reinterpret_cast<const std::byte*>(to.score);
  bases.base[number(Storage::Grad)] = reinterpret_cast<const std::byte*>(to.grad);
}

namespace {

using Form = LoadIndex::Form;
using ir::TensorView;

static_assert(static_cast<int>(DType::F32) == 0 && static_cast<int>(DType::F16) == 1 &&
              static_cast<int>(DType::BF16) == 2 && static_cast<int>(DType::F64) == 3 &&
              static_cast<int>(DType::I32) == 4 && static_cast<int>(DType::I64) == 5 &&
              static_cast<int>(DType::U8) == 6 && static_cast<int>(DType::Bool) == 7);

constexpr int block = 64;            // points that are read together
constexpr int most_strip_rows = 32;  // of any instruction set

bool is_empty(const TensorView& tensor, std::size_t rank) {
  for (std::size_t i = 0; i < rank; ++i) {
    if (tensor.extent[i] <= 0) return true;
  }
  return tensor.data == nullptr;
}

std::int32_t wrapped(std::int64_t x) { return static_cast<std::int32_t>(x); }

// Whether the indices first, first + slope ... of `count` positions all lie in [0, extent).
bool lies_inside(std::int32_t first, std::int32_t slope, int count, std::int64_t extent) {
  const std::int64_t last = first + std::int64_t{slope} * (count - 1);
  return std::min<std::int64_t>(first, last) >= 0 && std::max<std::int64_t>(first, last) < extent;
}

// The index that is not fixed, if there is exactly one; else null.
const LoadIndex* only_moving(std::span<const LoadIndex> indices) {
  const LoadIndex* found = nullptr;
  for (const LoadIndex& index : indices) {
    if (index.form == Form::Fixed) continue;
    if (found != nullptr) return nullptr;
    found = &index;
  }
  return found;
}

// The values of an index along a row: a vector, or a line.
struct MovingIndex {
  const std::int32_t* values = nullptr;  // Free
  std::int32_t first = 0, slope = 0;     // Line
  std::int64_t extent = 0, stride = 0;
  std::int64_t at(int c) const {
    const std::int32_t index =
        values != nullptr ? values[c] : wrapped(first + std::int64_t{slope} * c);
    return ir::clamp_index(index, extent) * stride;
  }
};

// Reads `count` elements one by one.
void read_points(const StripState& state, const TensorView& tensor, std::int64_t start,
                 std::span<const MovingIndex> moving, int first, int count, std::int32_t* out) {
  std::array<std::int64_t, block> at;
  for (int c = 0; c < count; ++c) {
    at[static_cast<std::size_t>(c)] = start;
    for (const MovingIndex& index : moving) at[static_cast<std::size_t>(c)] += index.at(first + c);
  }
  state.code->kernels.strips->points[static_cast<std::size_t>(tensor.dtype)](
      {out, tensor.data, at.data(), count});
}

}  // namespace

void prepare_load(StripState& state, const StripLoad& load, int rows) {
  const TensorView& tensor = state.leaves.tensors[load.slot];
  std::int64_t* const starts = state.row_at(load.element);
  std::fill_n(starts, rows, 0);
  const StorageBases corner = state.strip();
  for (std::size_t i = 0; i < load.indices; ++i) {
    const LoadIndex& index = state.indices(load)[i];
    if (index.form != Form::Fixed) continue;
    const StripValue value = state.find(index.source, corner);
    for (int r = 0; r < rows; ++r) {
      starts[r] +=
          ir::clamp_index(value.i32()[r * value.row_step], tensor.extent[i]) * tensor.stride[i];
    }
  }
  LoadView& seen = state.view(load.element);
  seen.row_distance = rows > 1 ? starts[1] - starts[0] : 0;
  seen.even = true;
  for (int r = 1; r < rows; ++r) {
    seen.even = seen.even && starts[r] - starts[r - 1] == seen.row_distance;
  }
}

void load_line(StripState& state, const StripLoad& load, int count) {
  const TensorView& tensor = state.leaves.tensors[load.slot];
  const StorageBases vectors = state.lines(load.stage);
  auto* const out =
      static_cast<std::int32_t*>(const_cast<void*>(state.find(load.target, vectors).data));
  const int width = (count + state.panel_width() - 1) / state.panel_width() * state.panel_width();
  if (is_empty(tensor, load.indices)) {
    std::fill_n(out, width, 0);
    return;
  }
  std::int64_t start = 0;
  std::array<MovingIndex, ir::limits::rank> moving;
  std::size_t moves = 0;
  for (std::size_t i = 0; i < load.indices; ++i) {
    const LoadIndex& index = state.indices(load)[i];
    const std::int32_t* const value = state.find(index.source, vectors).i32();
    if (index.form == Form::Fixed) {
      start += ir::clamp_index(*value, tensor.extent[i]) * tensor.stride[i];
    } else {
      const bool line = index.form == Form::Line;
      moving[moves++] = {line ? nullptr : value, *value, index.slope, tensor.extent[i],
                         tensor.stride[i]};
    }
  }
  const MovingIndex& first = moving[0];
  if (moves == 1 && first.values == nullptr &&
      lies_inside(first.first, first.slope, count, first.extent)) {
    start += first.first * first.stride;
    state.code->kernels.strips->rows[static_cast<std::size_t>(tensor.dtype)](
        {out, tensor.data, &start, 1, count, first.slope * first.stride});
    return;
  }
  for (int c = 0; c < count; c += block) {
    read_points(state, tensor, start, {moving.data(), moves}, c, std::min(block, count - c),
                out + c);
  }
  std::fill(out + count, out + width, 0);
}

namespace {

// One Element load on one strip.
class StripReader {
 public:
  StripReader(StripState& state, const StripLoad& load, const StripRun::Strip& strip)
      : state_(state),
        load_(load),
        strip_(strip),
        tensor_(state.leaves.tensors[load.slot]),
        bases_(state.bases),
        starts_(state.row_at(load.element) + strip.row),
        own_(state.find(load.target, bases_)),
        width_(state.panel_width()) {}

  void run() {
    LoadView& view = state_.view(load_.element);
    view.data = own_.data;
    view.row_step = own_.row_step;
    if (is_empty(tensor_, load_.indices)) {
      std::fill_n(out(), strip_.rows * width_, 0);
      return;
    }
    const LoadIndex* const moving = only_moving(indices());
    if (moving != nullptr && moving->form == Form::Line) {
      if (stay_in_tensor(*moving, view) || copy_rows(*moving)) return;
    } else if (moving != nullptr && gather(*moving)) {
      return;
    }
    for (int r = 0; r < strip_.rows; ++r) read_row(r);
  }

 private:
  std::span<const LoadIndex> indices() const { return state_.indices(load_); }
  std::int32_t* out() const { return static_cast<std::int32_t*>(const_cast<void*>(own_.data)); }
  bool has_cells() const { return tensor_.dtype == DType::F32 || tensor_.dtype == DType::I32; }

  // The indices of a line at the first column of every row: numbers of rows, all shifted alike.
  struct LineStarts {
    const std::int32_t* rest;
    std::int64_t step;
    std::int64_t shift;
    std::int32_t of(int r) const { return wrapped(rest[r * step] + shift); }
  };
  LineStarts starts_of(const LoadIndex& index) const {
    static constexpr std::int32_t zero = 0;
    const std::int64_t shift =
        index.slope * (std::int64_t{state_.k_first} + std::int64_t{strip_.column});
    if (!index.has_source) return {&zero, 0, shift};
    const StripValue value = state_.find(index.source, bases_);
    return {value.i32(), value.row_step, shift};
  }
  std::size_t number(const LoadIndex& index) const {
    return static_cast<std::size_t>(&index - indices().data());
  }

  // If the tensor has the whole strip in rows of contiguous cells, the strip is used there, and
  // nothing is copied.
  bool stay_in_tensor(const LoadIndex& index, LoadView& view) const {
    const std::size_t i = number(index);
    if (!has_cells() || !view.even || index.slope * tensor_.stride[i] != 1 ||
        strip_.columns != width_ || (index.has_source && index.source.storage == Storage::Row)) {
      return false;
    }
    const std::int32_t first = starts_of(index).of(0);
    if (!lies_inside(first, index.slope, width_, tensor_.extent[i])) return false;
    view.data = static_cast<const float*>(tensor_.data) + (starts_[0] + first * tensor_.stride[i]);
    view.row_step = view.row_distance;
    return true;
  }

  // If every row lies inside the tensor, rows are read as vectors if their strides allow it.
  bool copy_rows(const LoadIndex& index) const {
    const std::size_t i = number(index);
    const LineStarts firsts = starts_of(index);
    const std::int64_t extent = tensor_.extent[i], stride = tensor_.stride[i];
    const std::int64_t reach = std::int64_t{index.slope} * (strip_.columns - 1);
    std::array<std::int64_t, most_strip_rows> at;
    std::int64_t lowest = 0, highest = 0;
    for (int r = 0; r < strip_.rows; ++r) {
      const std::int64_t first = firsts.of(r);
      lowest = std::min({lowest, first, first + reach});
      highest = std::max({highest, first, first + reach});
      at[static_cast<std::size_t>(r)] = starts_[r] + first * stride;
    }
    if (lowest < 0 || highest >= extent) return false;
    state_.code->kernels.strips->rows[static_cast<std::size_t>(tensor_.dtype)](
        {out(), tensor_.data, at.data(), strip_.rows, strip_.columns, index.slope * stride});
    return true;
  }

  // One index is a vector of any numbers, and every offset fits in 32 bits.
  bool gather(const LoadIndex& index) const {
    std::int64_t reach = 0;
    for (std::size_t i = 0; i < load_.indices; ++i) {
      reach += (tensor_.extent[i] - 1) * std::abs(tensor_.stride[i]);
    }
    if (!has_cells() || reach > std::numeric_limits<std::int32_t>::max()) return false;
    const std::size_t i = number(index);
    const StripValue value = state_.find(index.source, bases_);
    state_.code->kernels.strips->gather({out(), value.i32(), value.row_step, tensor_.data, starts_,
                                         wrapped(tensor_.stride[i]), wrapped(tensor_.extent[i] - 1),
                                         strip_.rows, strip_.columns});
    return true;
  }

  void read_row(int r) const {
    std::array<MovingIndex, ir::limits::rank> moving;
    std::size_t moves = 0;
    for (std::size_t i = 0; i < load_.indices; ++i) {
      const LoadIndex& index = indices()[i];
      if (index.form == Form::Fixed) continue;
      MovingIndex& next = moving[moves++];
      next = {nullptr, 0, index.slope, tensor_.extent[i], tensor_.stride[i]};
      if (index.form == Form::Line) {
        next.first = starts_of(index).of(r);
      } else {
        const StripValue value = state_.find(index.source, bases_);
        next.values = value.i32() + r * value.row_step;
      }
    }
    std::int32_t* const row = out() + std::ptrdiff_t{r} * width_;
    read_points(state_, tensor_, starts_[r], {moving.data(), moves}, 0, strip_.columns, row);
    std::fill(row + strip_.columns, row + width_, 0);
  }

  StripState& state_;
  const StripLoad& load_;
  const StripRun::Strip& strip_;
  const TensorView& tensor_;
  const StorageBases& bases_;
  const std::int64_t* const starts_;
  const StripValue own_;
  const int width_;
};

}  // namespace

void load_strip(StripState& state, const StripLoad& load, const StripRun::Strip& strip) {
  StripReader(state, load, strip).run();
}

}  // namespace fovea::cpu
