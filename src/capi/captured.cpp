#include "capi/captured.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/extents.h"
#include "base/error.h"
#include "base/words.h"
#include "capi/arguments.h"

namespace fovea::capi {
namespace {

template <class Decl>
std::vector<std::string> names_of(const std::vector<Decl>& declared) {
  std::vector<std::string> names;
  for (const Decl& one : declared) names.push_back(one.name);
  return names;
}

// Puts a list of bindings into the order of the declarations. Names are built for errors only: a
// call with a few captured things allocates nothing.
template <class Decl>
struct Matching {
  const std::vector<Decl>& declared;
  const char* argument;  // "bindings"
  const char* list;      // "tensors"
  const char* kind;      // "tensor"
  InlineVector<char, 32> bound{declared.size()};

  ArgumentPlace at(std::size_t i, const char* field = "") const {
    return {argument, list, i, field};
  }
  std::size_t slot(std::size_t i, const char* name) {
    if (name == nullptr) at(i).refuse(".name is NULL");
    const auto found =
        std::ranges::find_if(declared, [&](const Decl& one) { return one.name == name; });
    if (found == declared.end()) {
      const std::string shown = std::string(name).substr(0, 64);
      at(i).refuse(std::string(": the program captures no ") + kind + " '" + shown + "'" +
                   did_you_mean(shown, names_of(declared)));
    }
    const auto index = static_cast<std::size_t>(found - declared.begin());
    if (bound[index] != 0) at(i).refuse(": '" + found->name + "' is bound twice");
    bound[index] = 1;
    return index;
  }
};

void need_list(const void* list, std::size_t count, const char* argument, const char* name) {
  if (list != nullptr || count == 0) return;
  throw InvalidArgument(std::string(argument) + "." + name + " is NULL, but its count is " +
                        std::to_string(count));
}

// The extents and strides of an array that has those of `otherwise` unless it says so itself.
struct Shape {
  int rank = 0;
  std::array<std::int64_t, ir::limits::rank> extent{}, stride{};
};

void set_strides(Shape& shape, const fovea_array& array) {
  const auto rank = static_cast<std::size_t>(shape.rank);
  const std::span<const std::int64_t> given(array.stride, rank);
  if (read_strides(given, shape.stride)) return;
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    shape.stride[i] = stride;
    if (__builtin_mul_overflow(stride, std::max<std::int64_t>(shape.extent[i], 1), &stride)) {
      stride = std::numeric_limits<std::int64_t>::max();  // refused by whoever checks extents
    }
  }
}

Shape tensor_shape(const fovea_array& array, const ir::TensorDecl& declared,
                   const CapturedSizes& sizes, const ArgumentPlace& place) {
  Shape shape;
  shape.rank = static_cast<int>(declared.extents.size());
  if (array.rank == 0 && shape.rank != 0) {  // nothing said: as declared
    shape.extent = resolved_extents(declared, sizes.sizes, sizes.h_global).extent;
  } else if (array.rank != shape.rank) {
    place.refuse(".array.rank is " + std::to_string(array.rank) + ", but '" + declared.name +
                 "' is declared with " + std::to_string(shape.rank) + " dimensions");
  } else {
    std::copy_n(array.extent, shape.rank, shape.extent.begin());
  }
  for (int i = 0; i < shape.rank; ++i) {
    const std::int64_t extent = shape.extent[static_cast<std::size_t>(i)];
    if (extent < 0) {
      place.refuse(".array.extent[" + std::to_string(i) + "] is " + std::to_string(extent) +
                   "; it must be 0 or more");
    }
  }
  set_strides(shape, array);
  return shape;
}

bool has_elements(const Shape& shape) {
  return std::all_of(shape.extent.begin(), shape.extent.begin() + shape.rank,
                     [](std::int64_t extent) { return extent > 0; });
}

BoundGradient bound_gradient(const fovea_array& gradient, const Shape& tensor, DType dtype,
                             const ArgumentPlace& place) {
  BoundGradient out;
  if (gradient.data == nullptr) return out;
  Shape shape = tensor;
  if (gradient.rank != 0 && gradient.rank != tensor.rank) {
    place.refuse(".gradient.rank is " + std::to_string(gradient.rank) +
                 "; it must be 0 or that of the array, " + std::to_string(tensor.rank));
  }
  for (int i = 0; i < gradient.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (gradient.extent[at] == tensor.extent[at] || gradient.extent[at] == 0) continue;
    place.refuse(".gradient.extent[" + std::to_string(i) + "] is " +
                 std::to_string(gradient.extent[at]) + "; it must be 0 or that of the array, " +
                 std::to_string(tensor.extent[at]));
  }
  set_strides(shape, gradient);
  out.data = gradient.data;
  out.dtype =
      to_dtype(gradient.dtype,
               ArgumentPlace{place.argument, place.list, place.index, ".gradient.dtype"}, dtype);
  out.stride = shape.stride;
  return out;
}

ir::ScalarValue to_real(double value, ir::Literals reals) {
  const SplitDouble split = split_double(value);
  return {split.f, 0, reals == ir::Literals::F64 ? split.rest : 0};
}

ir::ScalarValue to_scalar(double value, const ir::ScalarDecl& scalar, ir::Literals reals,
                          const ArgumentPlace& place) {
  if (scalar.type == ir::Type::F32) return to_real(value, reals);
  const bool fits = value >= std::numeric_limits<std::int32_t>::min() &&
                    value <= std::numeric_limits<std::int32_t>::max();
  if (!fits || value != std::trunc(value)) {
    place.refuse(".value is " + std::to_string(value) + ", but '" + scalar.name +
                 "' is declared i32");
  }
  return {0, static_cast<std::int32_t>(value), 0};
}

}  // namespace

CapturedBindings::CapturedBindings(const ir::Program& program, const CapturedArguments& given,
                                   const CapturedSizes& sizes)
    : tensors_(program.tensors().size()),
      tensor_gradients_(program.tensors().size()),
      scalars_(program.scalars().size()),
      scalar_gradients_(program.scalars().size()) {
  bind_tensors(program, given, sizes);
  bind_scalars(program, given);
}

void CapturedBindings::bind_tensors(const ir::Program& program, const CapturedArguments& given,
                                    const CapturedSizes& sizes) {
  need_list(given.tensors, given.tensor_count, given.argument, "tensors");
  Matching<ir::TensorDecl> matching{program.tensors(), given.argument, "tensors", "tensor"};
  for (std::size_t i = 0; i < given.tensor_count; ++i) {
    const fovea_tensor_binding& binding = given.tensors[i];
    const std::size_t slot = matching.slot(i, binding.name);
    const ir::TensorDecl& declared = program.tensors()[slot];
    const ArgumentPlace place = matching.at(i);
    const Shape shape = tensor_shape(binding.array, declared, sizes, place);
    const DType dtype =
        to_dtype(binding.array.dtype, matching.at(i, ".array.dtype"), declared.dtype);
    if (dtype != declared.dtype) {
      place.refuse(".array.dtype is " + std::string(dtype_name(dtype)) + ", but '" + declared.name +
                   "' is declared " + std::string(dtype_name(declared.dtype)));
    }
    if (binding.array.data == nullptr && has_elements(shape)) {
      place.refuse(".array.data is NULL ('" + declared.name + "')");
    }
    tensors_[slot] = {binding.array.data, dtype, shape.rank, shape.extent, shape.stride};
    tensor_gradients_[slot] = bound_gradient(binding.gradient, shape, dtype, place);
  }
  for (std::size_t slot = 0; slot < program.tensors().size(); ++slot) {
    if (matching.bound[slot] != 0 || given.may_lack) continue;
    throw InvalidArgument(std::string(given.argument) + ".tensors: the captured tensor '" +
                          program.tensors()[slot].name + "' is not bound");
  }
}

void CapturedBindings::bind_scalars(const ir::Program& program, const CapturedArguments& given) {
  need_list(given.scalars, given.scalar_count, given.argument, "scalars");
  Matching<ir::ScalarDecl> matching{program.scalars(), given.argument, "scalars", "scalar"};
  for (std::size_t i = 0; i < given.scalar_count; ++i) {
    const fovea_scalar_binding& binding = given.scalars[i];
    const std::size_t slot = matching.slot(i, binding.name);
    scalar_gradients_[slot] = binding.gradient;
    if (binding.device != nullptr) {
      // One number of the declared type lies there; engines know not to read a pair.
      scalars_[slot].device = static_cast<const ir::ScalarValue*>(binding.device);
    } else {
      scalars_[slot].value =
          to_scalar(binding.value, program.scalars()[slot], given.reals, matching.at(i));
    }
  }
  for (std::size_t slot = 0; slot < program.scalars().size(); ++slot) {
    if (matching.bound[slot] != 0 || given.are_tangents) continue;
    const ir::ScalarDecl& declared = program.scalars()[slot];
    if (!declared.value && given.may_lack) continue;
    if (!declared.value) {
      throw InvalidArgument(std::string(given.argument) + ".scalars: the captured scalar '" +
                            declared.name + "' is not bound and has no default");
    }
    scalars_[slot].value = to_scalar(*declared.value, declared, given.reals, {});
  }
}

void CapturedBindings::read_pointers(const ir::Program& program, ir::Literals reals) {
  for (std::size_t slot = 0; slot < program.scalars().size(); ++slot) {
    PerCall<ir::ScalarValue>& scalar = scalars_[slot];
    if (scalar.device == nullptr) continue;
    if (program.scalars()[slot].type == ir::Type::F32 && reals == ir::Literals::F64) {
      double value = 0;
      std::memcpy(&value, scalar.device, sizeof value);
      scalar.value = to_real(value, reals);
    } else if (program.scalars()[slot].type == ir::Type::F32) {
      std::memcpy(&scalar.value.f, scalar.device, sizeof scalar.value.f);
    } else {
      std::memcpy(&scalar.value.i, scalar.device, sizeof scalar.value.i);
    }
    scalar.device = nullptr;
  }
}

}  // namespace fovea::capi
