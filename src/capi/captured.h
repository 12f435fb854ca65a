// Captured tensors and scalars of one call, which C callers bind by name, put into the order of the
// Program's slots, with defaults filled in.
#pragma once

#include <cstddef>
#include <span>

#include "attention/bindings.h"
#include "base/inline_vector.h"
#include "fovea/fovea.h"
#include "ir/program.h"

namespace fovea::capi {

struct CapturedArguments {
  const char* argument = "";  // "bindings": errors say "bindings.tensors[1]"
  const fovea_tensor_binding* tensors = nullptr;
  std::size_t tensor_count = 0;
  const fovea_scalar_binding* scalars = nullptr;
  std::size_t scalar_count = 0;
  bool may_lack = false;                   // tensors that are missing have no data
  bool are_tangents = false;               // scalars that are missing are 0
  ir::Literals reals = ir::Literals::F32;  // what scalars of floats are
};

// What extents that are not given are resolved with.
struct CapturedSizes {
  Sizes sizes;
  std::int32_t h_global = 0;
};

class CapturedBindings {
 public:
  static constexpr std::size_t in_place = 8;

  // Throws InvalidArgument: a name that is unknown, given twice or missing; a rank or an element
  // type other than declared.
  CapturedBindings(const ir::Program& program, const CapturedArguments& given,
                   const CapturedSizes& sizes);

  std::span<const ir::TensorView> tensors() const { return tensors_.span(); }
  std::span<const PerCall<ir::ScalarValue>> scalars() const { return scalars_.span(); }
  std::span<const BoundGradient> tensor_gradients() const { return tensor_gradients_.span(); }
  std::span<void* const> scalar_gradients() const { return scalar_gradients_.span(); }

  // For the CPU, whose "device" is the host: reads every scalar that is bound as a pointer.
  void read_pointers(const ir::Program& program, ir::Literals reals);

 private:
  void bind_tensors(const ir::Program& program, const CapturedArguments& given,
                    const CapturedSizes& sizes);
  void bind_scalars(const ir::Program& program, const CapturedArguments& given);

  InlineVector<ir::TensorView, in_place> tensors_;
  InlineVector<BoundGradient, in_place> tensor_gradients_;
  InlineVector<PerCall<ir::ScalarValue>, in_place> scalars_;
  InlineVector<void*, in_place> scalar_gradients_;
};

}  // namespace fovea::capi
