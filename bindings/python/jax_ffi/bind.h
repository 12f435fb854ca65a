// Buffers of a custom call into the bindings of a plan, by their roles.
// Called by handlers.cpp for every call; looks at no data but host scalars.
#pragma once

#include <fovea/fovea.h>
#include <vector>

#include <xla/ffi/api/ffi.h>
#include "roles.h"

namespace fovea_jax {

// Where the buffers of a call live: per-call values are read now, or by the device later.
enum class Memory { host, device };

class Binder {
 public:
  explicit Binder(Memory memory);

  void bind(const Slot& slot, xla::ffi::AnyBuffer buffer);  // an operand or a result

  // The bindings; valid as long as this object, and until the next call of bind().
  fovea_bindings& bindings();

 private:
  void bind_scalar(fovea_scalar_binding& bound, xla::ffi::AnyBuffer buffer) const;

  Memory memory_;
  fovea_bindings bindings_{};
  std::vector<fovea_tensor_binding> tensors_;
  std::vector<fovea_scalar_binding> scalars_;
  std::vector<fovea_tensor_binding> tensor_tangents_;
  std::vector<fovea_scalar_binding> scalar_tangents_;
};

}  // namespace fovea_jax
