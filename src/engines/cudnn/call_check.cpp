// What a plan baked and a call must not change.
#include "attention/refuse.h"
#include "engines/cudnn/call.h"

namespace fovea::cudnn {
namespace {

template <class T>
void refuse_device_value(const char* name, const PerCall<T>& value) {
  if (value.device == nullptr) return;
  refuse(name, "a device pointer",
         "this plan takes it from the host, when the call is enqueued; a problem with "
         "values=device takes it from either");
}

void check_strides(const Tensor& tensor, const BoundTensor& bound) {
  if (bound.data == nullptr) return;
  const Strides& s = bound.strides;
  const Four given{s.b, s.h, s.s, s.d};
  for (std::size_t i = 0; i < 4; ++i) {
    if (given[i] == tensor.stride[i] || tensor.dim[i] == 1) continue;
    if (i == 0 && tensor.starts) continue;  // packed: there is no batch to step through
    refuse("strides", given[i],
           "differ from those that this plan was made for (" + std::to_string(tensor.stride[i]) +
               "): engine cudnn bakes strides; make a problem with these");
  }
  if (reinterpret_cast<std::uintptr_t>(bound.data) % 16 != 0) {
    refuse("data", reinterpret_cast<std::uintptr_t>(bound.data),
           "cuDNN wants q, k, v, o and their gradients at multiples of 16 bytes");
  }
}

}  // namespace

void check_call(const Problem& baked, const Lowered& lowered, const Bindings& b) {
  Sizes sizes = b.sizes;
  sizes.t_q = baked.sizes.t_q;  // rows of packed tensors are not baked
  sizes.t_k = baked.sizes.t_k;
  if (!(sizes == baked.sizes)) {
    refuse("sizes", b.sizes.b,
           "differ from those that this plan was made for: engine cudnn bakes sizes; make a "
           "problem with these (graphs are shared where only the batch differs)");
  }
  for (const Tensor& tensor : lowered.spec.tensors) {
    if (const BoundTensor* bound = bound_tensor(b, tensor.role)) check_strides(tensor, *bound);
  }
  if (b.b_offset.device != nullptr) {
    refuse("b_offset", "a device pointer", "engine cudnn takes it from the host");
  }
  if (!baked.device_values) {
    refuse_device_value("scale", b.scale);
    refuse_device_value("h_offset", b.h_offset);
    refuse_device_value("q_offset", b.q_offset);
    refuse_device_value("k_offset", b.k_offset);
    for (const PerCall<ir::ScalarValue>& scalar : b.scalars) refuse_device_value("scalar", scalar);
  }
  const bool formulas = baked.program.mod() || baked.program.mask();
  const auto fixed = [&](const char* name, const PerCall<std::int32_t>& bound,
                         std::int32_t allowed) {
    const bool moves = bound.device != nullptr || bound.value != 0;
    if (!formulas || !moves || allowed != 0) return;
    refuse(
        name, bound.device != nullptr ? "a device pointer" : std::to_string(bound.value),
        "this plan was made for 0: engine cudnn adds offsets only where the problem has one that "
        "is not 0 (any value will do; other values are then bound without a new plan)");
  };
  if (lowered.computes_with_b) fixed("b_offset", b.b_offset, baked.b_offset);
  fixed("h_offset", b.h_offset, baked.h_offset);
  fixed("q_offset", b.q_offset, baked.q_offset);
  fixed("k_offset", b.k_offset, baked.k_offset);
}

}  // namespace fovea::cudnn
