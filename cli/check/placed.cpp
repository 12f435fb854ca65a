#include "cli/check/placed.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace fovea::cli {
namespace {

constexpr std::size_t guard = 256, alignment = 64;
constexpr unsigned char poison_byte = 0xff;  // a NaN in every float type

}  // namespace

Placement Placement::dense(std::string dtype, std::vector<std::int64_t> extents) {
  std::vector<std::int64_t> strides(extents.size());
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(extents[i], 1);
  }
  return {std::move(dtype), std::move(extents), std::move(strides)};
}

Placed::Placed(Placement placement) : placement_(std::move(placement)) {
  std::int64_t below = 0, above = 1;  // elements before and from the one at data()
  bool empty = false;
  for (std::size_t i = 0; i < placement_.extents.size(); ++i) {
    const std::int64_t reach = (placement_.extents[i] - 1) * placement_.strides[i];
    empty = empty || placement_.extents[i] == 0;
    (reach < 0 ? below : above) += std::abs(reach);
  }
  if (empty) below = above = 0;
  element_ = static_cast<std::size_t>(element_size(placement_.dtype));
  const std::size_t size = static_cast<std::size_t>(below + above) * element_;
  bytes_.assign(size + 2 * guard + 2 * alignment, poison_byte);
  // Aligned as promised and not a bit more: 64 bytes past a multiple of 128.
  const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + guard;
  const std::size_t up = (3 * alignment - address % (2 * alignment)) % (2 * alignment);
  start_ = guard + up + static_cast<std::size_t>(below) * element_;
}

Placed::Placed(Placement placement, const Array& values) : Placed(std::move(placement)) {
  each_element([&](std::size_t i, std::size_t at) {
    std::memcpy(bytes_.data() + at, values.bytes.data() + i * element_, element_);
  });
  before_ = bytes_;
}

void* Placed::data() {
  if (bytes_.empty()) return nullptr;
  return (gpu_ != nullptr ? there_ : bytes_.data()) + start_;
}

void Placed::put_on(Gpu& gpu) {
  if (bytes_.empty()) return;
  gpu_ = &gpu;
  block_ = gpu.allocate(bytes_.size() + 2 * alignment);
  // Aligned there as here.
  const auto here = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const auto there = reinterpret_cast<std::uintptr_t>(block_.get());
  const std::size_t up = (here - there) % (2 * alignment);
  there_ = static_cast<unsigned char*>(block_.get()) + up;
  send();
}

void Placed::send() {
  if (gpu_ != nullptr) gpu_->send(there_, bytes_.data(), bytes_.size());
}

void Placed::replace(const Array& values) {
  each_element([&](std::size_t i, std::size_t at) {
    std::memcpy(bytes_.data() + at, values.bytes.data() + i * element_, element_);
  });
  before_ = bytes_;
  send();
}

void Placed::fetch() {
  if (gpu_ != nullptr) gpu_->fetch(bytes_.data(), there_, bytes_.size());
}

template <class Visit>
void Placed::each_element(Visit visit) const {
  const std::size_t rank = placement_.extents.size();
  std::int64_t count = 1;
  for (const std::int64_t extent : placement_.extents) count *= extent;
  std::vector<std::int64_t> index(rank);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    visit(static_cast<std::size_t>(i),
          static_cast<std::size_t>(static_cast<std::int64_t>(start_) +
                                   offset * static_cast<std::int64_t>(element_)));
    for (std::size_t d = rank; d-- > 0;) {  // the next index, last dimension fastest
      offset += placement_.strides[d];
      if (++index[d] < placement_.extents[d]) break;
      offset -= placement_.strides[d] * placement_.extents[d];
      index[d] = 0;
    }
  }
}

Array Placed::take() const {
  Array array = zeros(placement_.dtype, placement_.extents);
  each_element([&](std::size_t i, std::size_t at) {
    std::memcpy(array.bytes.data() + i * element_, bytes_.data() + at, element_);
  });
  return array;
}

void Placed::poison() {
  each_element([&](std::size_t, std::size_t at) {
    std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), element_, poison_byte);
  });
}

bool Placed::surroundings_untouched() const {
  std::vector<unsigned char> rest = bytes_;
  each_element([&](std::size_t, std::size_t at) {
    std::fill_n(rest.begin() + static_cast<std::ptrdiff_t>(at), element_, poison_byte);
  });
  return std::ranges::all_of(rest, [](unsigned char byte) { return byte == poison_byte; });
}

bool Placed::bytes_untouched() const { return bytes_ == before_; }

bool Placed::has_unwritten_element() const {
  bool found = false;
  each_element([&](std::size_t, std::size_t at) {
    const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>(at);
    found = found || std::all_of(first, first + static_cast<std::ptrdiff_t>(element_),
                                 [](unsigned char byte) { return byte == poison_byte; });
  });
  return found;
}

}  // namespace fovea::cli
