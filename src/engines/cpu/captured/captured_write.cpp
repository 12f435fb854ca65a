// The last step of a call's captured gradients: lanes are added up in order, and every element is
// written once.
#include <algorithm>
#include <array>

#include "base/dtype.h"
#include "engines/cpu/captured/captured_target.h"

namespace fovea::cpu {
namespace {

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
    case Kept::Nowhere: break;
    case Kept::Private:
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        add(static_cast<const double*>(target.sums) + lane * target.lane_step + first);
      }
      break;
    case Kept::Shared: add(static_cast<const double*>(target.sums) + first); break;
    case Kept::Direct: add(static_cast<const float*>(target.sums) + first); break;
  }
}

}  // namespace

std::int64_t CapturedRun::write_tasks() const {
  std::int64_t tasks = captured_.scalars_.empty() ? 0 : 1;
  for (const CapturedTarget& target : targets_) tasks += tensor_write_tasks(target);
  return tasks;
}

std::int64_t CapturedRun::tensor_write_tasks(const CapturedTarget& target) const {
  return target.in_output() ? 0 : (target.elements + write_elements - 1) / write_elements;
}

void CapturedRun::write(std::int64_t task) const {
  for (const CapturedTarget& target : targets_) {
    const std::int64_t tasks = tensor_write_tasks(target);
    if (task < tasks) {
      write_tensor(target, task);
      return;
    }
    task -= tasks;
  }
  write_scalars();
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
      sum += lane_sums(lane)[scalar_sums_ + static_cast<std::int64_t>(i)];
    }
    store({bindings_.scalar_gradients[captured_.scalars_[i].slot], type, {}}, 0, sum);
  }
}

}  // namespace fovea::cpu
