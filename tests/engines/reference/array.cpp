#include <algorithm>
#include <cstring>

#include "engines/reference/rows.h"
#include "tests/engines/reference/example.h"

namespace fovea::test {
namespace {

constexpr std::size_t zone = 128;
constexpr std::byte zone_byte{0xa5};
constexpr std::byte poison_byte{0xff};  // NaN in f16, bf16, f32 and f64

bool is_float(DType type) { return ir::loaded_type(type) == ir::Type::F32; }

}  // namespace

GuardedBytes::GuardedBytes(std::size_t size) : bytes_(size + 2 * zone + 64), size_(size) {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + zone;
  start_ = zone + (64 - address % 64) % 64;
  std::ranges::fill(bytes_, zone_byte);
  poison();
}

void GuardedBytes::poison() {
  std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(start_), size_, poison_byte);
}

bool GuardedBytes::zones_intact() const {
  const auto is_zone = [](std::byte byte) { return byte == zone_byte; };
  const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(start_);
  return std::all_of(bytes_.begin(), first, is_zone) &&
         std::all_of(first + static_cast<std::ptrdiff_t>(size_), bytes_.end(), is_zone);
}

Array::Array(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides)
    : dtype(type), extents(std::move(shape)), strides(std::move(element_strides)) {
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) elements += (extents[i] - 1) * strides[i];
  if (std::ranges::find(extents, 0) != extents.end()) elements = 0;
  memory = GuardedBytes(static_cast<std::size_t>(elements * dtype_size(dtype)));
}

Array Array::dense(DType type, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return {type, std::move(shape), std::move(strides)};
}

double Array::get(std::span<const std::int64_t> index) const {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
  if (is_float(dtype)) return reference::read_number(memory.data(), dtype, at);
  const std::size_t size = static_cast<std::size_t>(dtype_size(dtype));
  std::int64_t out = 0;  // small and not negative in these tests
  std::memcpy(&out, memory.data() + static_cast<std::size_t>(at) * size, size);
  return static_cast<double>(out);
}

void Array::set(std::span<const std::int64_t> index, double value) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < index.size(); ++i) at += index[i] * strides[i];
  if (is_float(dtype)) return reference::write_number(memory.data(), dtype, at, value);
  const std::size_t size = static_cast<std::size_t>(dtype_size(dtype));
  const auto whole = static_cast<std::int64_t>(value);
  std::memcpy(memory.data() + static_cast<std::size_t>(at) * size, &whole, size);
}

std::size_t Array::count() const {
  std::size_t count = 1;
  for (const std::int64_t extent : extents) count *= static_cast<std::size_t>(extent);
  return count;
}

std::vector<std::int64_t> Array::index_of(std::size_t i) const {
  std::vector<std::int64_t> index(extents.size());
  for (std::size_t d = extents.size(); d-- > 0;) {
    const auto extent = static_cast<std::size_t>(extents[d]);
    index[d] = static_cast<std::int64_t>(i % extent);
    i /= extent;
  }
  return index;
}

std::vector<double> Array::numbers() const {
  std::vector<double> out(count());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = number(i);
  return out;
}

void Array::assign(const std::vector<double>& numbers) {
  for (std::size_t i = 0; i < count(); ++i) put(i, numbers.at(i));
}

void Array::fill_normal(std::mt19937_64& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  for (std::size_t i = 0; i < count(); ++i) {
    put(i, is_float(dtype) ? normal(random) : static_cast<double>(random() % 3));
  }
}

}  // namespace fovea::test
