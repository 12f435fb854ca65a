#include "tests/host_gpu/spec_memory.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "base/dtype.h"
#include "tests/engines/cudnn/step_meaning.h"

namespace fovea::cudnn::on_host {
namespace {

template <class T>
T read(const void* data, std::int64_t element) {
  T out;
  std::memcpy(&out, static_cast<const std::byte*>(data) + element * std::int64_t{sizeof(T)},
              sizeof out);
  return out;
}

template <class T>
void write(void* data, std::int64_t element, T value) {
  std::memcpy(static_cast<std::byte*>(data) + element * std::int64_t{sizeof(T)}, &value,
              sizeof value);
}

}  // namespace

std::size_t SpecMemory::place(Role role) const {
  for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
    if (spec_.tensors[i].role == role) return i;
  }
  throw std::logic_error("the Spec has no such tensor");
}

std::int64_t SpecMemory::element(const Tensor& tensor, const At& at) const {
  const Four index{at.b, at.h, at.i, at.j};
  std::int64_t out = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (tensor.dim[axis] == 1) continue;
    if (index[axis] < 0 || index[axis] >= tensor.dim[axis]) throw std::logic_error("out of bounds");
    if (axis == 0 && tensor.starts) continue;
    out += index[axis] * tensor.stride[axis];
  }
  if (!tensor.starts) return out;
  for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
    const Tensor& starts = spec_.tensors[i];
    if (starts.role != Role::Starts || starts.slot != *tensor.starts) continue;
    return out + read<std::int64_t>(data_[i], at.b);
  }
  throw std::logic_error("a packed tensor without its starts");
}

double SpecMemory::get(std::size_t i, const At& at) const {
  const Tensor& tensor = spec_.tensors[i];
  const std::int64_t place = element(tensor, at);
  switch (tensor.type) {
    case Type::F32: return read<float>(data_[i], place);
    case Type::F16: return half_to_float(read<std::uint16_t>(data_[i], place));
    case Type::BF16: return bfloat16_to_float(read<std::uint16_t>(data_[i], place));
    case Type::I32: return read<std::int32_t>(data_[i], place);
    case Type::I64:
    case Type::Bool: break;
  }
  throw std::logic_error("a type that no formula reads");
}

void SpecMemory::set(Role role, const At& at, double value) const {
  const std::size_t i = place(role);
  const std::int64_t where = element(spec_.tensors[i], at);
  const auto real = static_cast<float>(value);
  switch (spec_.tensors[i].type) {
    case Type::F32: return write(data_[i], where, real);
    case Type::F16: return write(data_[i], where, float_to_half(real));
    case Type::BF16: return write(data_[i], where, float_to_bfloat16(real));
    default: throw std::logic_error("a type that no graph writes");
  }
}

double SpecSteps::modified(double score, const At& at) {
  values_.assign(memory_.spec().steps.size(), 0);
  at_ = at;
  score_ = static_cast<float>(score);
  run(0, memory_.spec().forward_steps);
  return value(memory_.spec().modified);
}

double SpecSteps::derivative(double score, double grad, const At& at) {
  modified(score, at);
  grad_ = static_cast<float>(grad);
  run(memory_.spec().forward_steps, memory_.spec().steps.size());
  return value(*memory_.spec().bprop);
}

// In the types of the steps: decisions must come out as in f32 and i32.
void SpecSteps::run(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    const Step& step = memory_.spec().steps[i];
    const double result = apply(step);
    values_[i] = step.type == Type::F32 ? static_cast<double>(static_cast<float>(result))
                 : step.type == Type::I32
                     ? static_cast<std::int32_t>(static_cast<std::int64_t>(result))
                     : result;
  }
}

double SpecSteps::value(const Ref& ref) const {
  switch (ref.kind) {
    case Ref::Kind::Score: return score_;
    case Ref::Kind::Grad: return grad_;
    case Ref::Kind::Step: return values_[ref.index];
    case Ref::Kind::Tensor: return memory_.get(ref.index, at_);
    case Ref::Kind::Constant: {
      const Constant& constant = memory_.spec().constants[ref.index];
      return constant.type == Type::I32 ? constant.whole : static_cast<double>(constant.real);
    }
  }
  throw std::logic_error("an operand of no kind");
}

double SpecSteps::apply(const Step& s) const {
  const auto x = [&](std::size_t i) { return value(s.operands[i]); };
  const std::array<std::int64_t, 4> position{at_.b, at_.h, at_.i, at_.j};
  if (s.mode == Mode::Index) {
    return static_cast<double>(position[static_cast<std::size_t>(s.axis)]);
  }
  return meaning(s.mode, x);
}

}  // namespace fovea::cudnn::on_host
