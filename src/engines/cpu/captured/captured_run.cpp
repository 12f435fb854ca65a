#include "engines/cpu/captured/captured_run.h"

#include <algorithm>
#include <array>

#include "attention/extents.h"
#include "base/dtype.h"
#include "base/error.h"
#include "engines/cpu/blocks.h"
#include "engines/cpu/captured/captured_add.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t clear_elements = std::int64_t{1} << 16;  // of one task

ElementShape shape_of(const ir::TensorView& view, const Indices& stride) {
  return {view.rank, view.extent, stride};
}

// Where elements are added to, in this call.
void bind(CapturedTarget& target, const ir::TensorView& view, const BoundGradient& gradient) {
  const auto rank = static_cast<std::size_t>(view.rank);
  target.gradient = gradient;
  target.out = shape_of(view, gradient.stride);
  const std::span extents = std::span(view.extent).first(rank);
  target.shape = shape_of(view, ir::TensorView::dense(nullptr, view.dtype, extents).stride);
  target.elements = view.data == nullptr ? 0 : target.out.elements();
  if (target.kept != SumPlace::Direct) return;
  const bool narrow = gradient.dtype == DType::F16 || gradient.dtype == DType::BF16;
  if (narrow && target.sums != nullptr) return;
  target.type = gradient.dtype;
  target.sums = gradient.data;
  target.shape = target.out;
}

// All bits of a zero are 0, in every type.
void clear_elements_of(const CapturedTarget& target, std::int64_t first, std::int64_t last) {
  const std::int64_t bytes = dtype_size(target.type);
  auto* const sums = static_cast<std::byte*>(target.sums);
  const std::int64_t step =
      target.shape.rank == 0 ? 1
                             : target.shape.stride[static_cast<std::size_t>(target.shape.rank - 1)];
  for_runs(target.shape, first, last, [&](std::int64_t, std::int64_t at, std::int64_t count) {
    if (step == 1) {
      std::fill_n(sums + at * bytes, count * bytes, std::byte{0});
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      std::fill_n(sums + (at + i * step) * bytes, bytes, std::byte{0});
    }
  });
}

// The indices of a load, from the root of the first of them on.
struct LoadIndices {
  LoadIndices(const StripRun& run, std::size_t first,
              std::span<const std::optional<std::int32_t>> slopes)
      : rank(slopes.size()) {
    for (std::size_t i = 0; i < rank; ++i) all[i] = {run.value(first + i), slopes[i]};
  }
  std::span<const StripIndex> span() const { return {all.data(), rank}; }

  std::array<StripIndex, ir::limits::rank> all;
  std::size_t rank;
};

constexpr std::int64_t write_elements = std::int64_t{1} << 13;  // of one task

void store(const BoundGradient& gradient, std::int64_t at, double value) {
  switch (gradient.dtype) {
    case DType::F32: static_cast<float*>(gradient.data)[at] = static_cast<float>(value); return;
    case DType::F64: static_cast<double*>(gradient.data)[at] = value; return;
    case DType::F16:
      static_cast<std::uint16_t*>(gradient.data)[at] = float_to_half(static_cast<float>(value));
      return;
    case DType::BF16:
      static_cast<std::uint16_t*>(gradient.data)[at] = float_to_bfloat16(static_cast<float>(value));
      return;
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
}

// The sums of elements [first, first + into.size()), lane after lane.
void total(const CapturedTarget& target, std::int64_t lanes, std::int64_t first,
           std::span<double> into) {
  std::ranges::fill(into, 0.0);
  const auto add = [&](const auto* from) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += static_cast<double>(from[i]);
  };
  switch (target.kept) {
    case SumPlace::Nowhere: break;
    case SumPlace::Private:
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        add(static_cast<const double*>(target.sums) + lane * target.lane_step + first);
      }
      break;
    case SumPlace::Shared: add(static_cast<const double*>(target.sums) + first); break;
    case SumPlace::Direct: add(static_cast<const float*>(target.sums) + first); break;
  }
}

// How many tasks clear a target directly, and how many write it.
std::int64_t clear_tasks_of(const CapturedTarget& target) {
  const bool owned = target.kept == SumPlace::Shared || target.kept == SumPlace::Direct;
  return owned ? ceil_div(target.elements, clear_elements) : 0;
}
std::int64_t write_tasks_of(const CapturedTarget& target) {
  return target.in_output() ? 0 : ceil_div(target.elements, write_elements);
}

// The target that has the task, which then counts from its first one; null: none has.
const CapturedTarget* find_target(std::span<const CapturedTarget> targets, std::int64_t& task,
                                  std::int64_t (*tasks_of)(const CapturedTarget&)) {
  for (const CapturedTarget& target : targets) {
    const std::int64_t tasks = tasks_of(target);
    if (task < tasks) return &target;
    task -= tasks;
  }
  return nullptr;
}

}  // namespace

CapturedRun::CapturedRun(const CapturedGradients& captured, const Bindings& bindings,
                         const ChunkCounts& counts, void* memory)
    : captured_(captured),
      bindings_(bindings),
      layout_(captured.lay_out(bindings.sizes, counts, memory)),
      lanes_(lanes_of_call(layout_.plan, captured.baked_, bindings, captured.tensors_)) {
  for (std::size_t i = 0; i < layout_.targets.size(); ++i) {
    const std::uint32_t slot = captured.tensors_[i].slot;
    bind(layout_.targets[i], bindings.tensors[slot], bindings.tensor_gradients[slot]);
    if (layout_.targets[i].elements > declared_elements(captured.baked_, bindings.sizes, slot)) {
      throw InvalidArgument("tensor '" + captured.baked_.program.tensors()[slot].name +
                            "' is bound with more elements than its declared extents have");
    }
  }
}

double CapturedRun::numbers() const {
  double count = static_cast<double>(layout_.lane_step) * static_cast<double>(lanes_.count);
  for (const CapturedTarget& target : layout_.targets)
    count += static_cast<double>(target.elements);
  return count;
}

std::int64_t CapturedRun::clear_tasks() const {
  std::int64_t tasks = layout_.lane_step == 0 ? 0 : lanes_.count;
  for (const CapturedTarget& target : layout_.targets) tasks += clear_tasks_of(target);
  return tasks;
}

void CapturedRun::clear(std::int64_t task) const {
  if (layout_.lane_step != 0) {
    if (task < lanes_.count) {
      std::fill_n(lane_sums(task), layout_.lane_step, 0.0);
      return;
    }
    task -= lanes_.count;
  }
  if (const CapturedTarget* const target = find_target(layout_.targets, task, clear_tasks_of)) {
    const std::int64_t first = task * clear_elements;
    clear_elements_of(*target, first, std::min(first + clear_elements, target->elements));
  }
}

void CapturedRun::add(std::int64_t lane, const StripRun& run, std::size_t first_root,
                      const StripRun::Strip& strip, const std::uint64_t* live) const {
  for (const CapturedGradients::WantedLoad& load : captured_.loads_) {
    const CapturedTarget& target = layout_.targets[load.tensor];
    if (target.elements == 0) continue;
    const LoadIndices index(run, first_root + load.root + 1, load.slopes);
    LiveStrip gradient(run.value(first_root + load.root), strip, live);
    void* const sums = target.kept == SumPlace::Private
                           ? static_cast<double*>(target.sums) + lane * target.lane_step
                           : target.sums;
    add_strip(target, sums, index.span(), gradient);
  }
  double* scalar = lane_sums(lane) + layout_.scalar_sums;
  for (const CapturedGradients::WantedScalar& of : captured_.scalars_) {
    if (of.root) *scalar += LiveStrip(run.value(first_root + *of.root), strip, live).sum();
    ++scalar;
  }
}

void CapturedRun::balance(const StripRun& run, std::size_t first_root, const StripRun::Strip& strip,
                          const BlockRows& block) const {
  const auto& terms = captured_.row_terms_;
  const auto sums = [&](std::size_t which) { return block.sums.of(which, block.row); };
  block.kernels.add_two_rows(strip.grad, block.p, strip.rows, strip.columns,
                             sums(BalanceSums::gradients), sums(BalanceSums::probabilities));
  for (std::size_t i = 0; i < terms.size(); ++i) {
    block.kernels.add_rows(block.p, strip.rows, strip.columns,
                           run.value(first_root + terms[i].weight),
                           sums(BalanceSums::first_term + i));
    const int last = block.row + strip.rows - 1;
    if (block.sums.at(i, block.row) >= 0 && block.sums.at(i, last) >= 0) continue;
    find_elements(run, first_root, i, strip.rows, &block.sums.at(i, block.row));
  }
}

void CapturedRun::find_elements(const StripRun& run, std::size_t first_root, std::size_t term,
                                int rows, std::int64_t* to) const {
  const CapturedGradients::RowGradient& of = captured_.row_terms_[term];
  if (of.is_scalar) {
    std::fill_n(to, rows, 0);
    return;
  }
  const CapturedGradients::WantedLoad& load = captured_.loads_[of.number];
  const LoadIndices index(run, first_root + load.root + 1, load.slopes);
  const CapturedTarget& target = layout_.targets[load.tensor];
  const bool alike = std::ranges::all_of(
      index.span(), [](const StripIndex& one) { return one.value.row_step == 0; });
  std::fill_n(to, rows, element_of(target, index.span(), 0));
  for (int r = 1; r < rows && !alike; ++r) to[r] = element_of(target, index.span(), r);
}

void CapturedRun::add_to_row_term(std::size_t term, std::int64_t at, double x) const {
  const CapturedGradients::RowGradient& of = captured_.row_terms_[term];
  if (of.is_scalar) {
    lane_sums(0)[layout_.scalar_sums + static_cast<std::int64_t>(of.number)] += x;
    return;
  }
  const CapturedTarget& target = layout_.targets[captured_.loads_[of.number].tensor];
  if (target.elements != 0) add_element(target, at, x);
}

// --- lanes are added up in order, and every element is written once ---

std::int64_t CapturedRun::write_tasks() const {
  std::int64_t tasks = captured_.scalars_.empty() ? 0 : 1;
  for (const CapturedTarget& target : layout_.targets) tasks += write_tasks_of(target);
  return tasks;
}

void CapturedRun::write(std::int64_t task) const {
  if (const CapturedTarget* const target = find_target(layout_.targets, task, write_tasks_of)) {
    write_tensor(*target, task);
  } else {
    write_scalars();
  }
}

void CapturedRun::write_tensor(const CapturedTarget& target, std::int64_t task) const {
  constexpr std::int64_t at_once = 512;
  std::array<double, at_once> sums;
  const std::int64_t end = std::min((task + 1) * write_elements, target.elements);
  const std::int64_t step =
      target.out.rank == 0 ? 1 : target.out.stride[static_cast<std::size_t>(target.out.rank - 1)];
  for (std::int64_t first = task * write_elements; first < end; first += at_once) {
    const std::int64_t last = std::min(first + at_once, end);
    total(target, lanes_.count, first,
          std::span(sums).first(static_cast<std::size_t>(last - first)));
    for_runs(target.out, first, last,
             [&](std::int64_t number, std::int64_t at, std::int64_t count) {
               for (std::int64_t i = 0; i < count; ++i) {
                 store(target.gradient, at + i * step,
                       sums[static_cast<std::size_t>(number - first + i)]);
               }
             });
  }
}

void CapturedRun::write_scalars() const {
  const DType type = captured_.baked_.q.dtype == DType::F64 ? DType::F64 : DType::F32;
  for (std::size_t i = 0; i < captured_.scalars_.size(); ++i) {
    double sum = 0;
    for (std::int64_t lane = 0; lane < lanes_.count; ++lane) {
      sum += lane_sums(lane)[layout_.scalar_sums + static_cast<std::int64_t>(i)];
    }
    store({bindings_.scalar_gradients[captured_.scalars_[i].slot], type, {}}, 0, sum);
  }
}

}  // namespace fovea::cpu
