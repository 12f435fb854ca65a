#include "cuda/tensor_map.h"

#include <cstring>

#include "base/error.h"
#include "cuda/driver.h"

namespace fovea::cuda {
namespace {

// Values of cuda.h.
constexpr int type_u16 = 1, type_u32 = 2, no_interleave = 0, swizzle_128 = 3, promote_256 = 3,
              fill_zeros = 0;

struct alignas(64) Encoded {
  std::array<std::byte, 128> bytes;
};

Encoded encode(const TensorMapSpec& spec) {
  if (!has_tensor_maps()) throw DeviceError("this driver makes no tensor maps");
  Encoded map;
  const std::array<std::uint32_t, 5> steps{1, 1, 1, 1, 1};
  check(driver()->encode_tensor_map(&map, spec.element_bytes == 4 ? type_u32 : type_u16, spec.rank,
                                    const_cast<void*>(spec.data), spec.extents.data(),
                                    spec.stride_bytes.data(), spec.box.data(), steps.data(),
                                    no_interleave, swizzle_128, promote_256, fill_zeros),
        "cuTensorMapEncodeTiled");
  return map;
}

struct Remembered {
  TensorMapSpec spec;
  Encoded map;
};
constexpr std::size_t most_remembered = 64;  // a power of two
thread_local std::array<Remembered, most_remembered> remembered;

std::size_t slot_of(const TensorMapSpec& spec) {
  const auto address = reinterpret_cast<std::uintptr_t>(spec.data);
  const std::uint64_t mixed =
      (address >> 4 ^ spec.extents[1] << 20 ^ spec.box[1] << 3) * 0x9e3779b97f4a7c15u;
  return mixed >> 58;
}

}  // namespace

bool has_tensor_maps() { return driver() != nullptr && driver()->encode_tensor_map != nullptr; }

void write_tensor_map(const TensorMapSpec& spec, void* to) {
  Remembered& slot = remembered[slot_of(spec)];
  if (slot.spec.data == nullptr || !(slot.spec == spec)) slot = {spec, encode(spec)};
  std::memcpy(to, &slot.map, sizeof slot.map);
}

}  // namespace fovea::cuda
