// A vector that holds a few elements in place and asks for memory only beyond them, so that a call
// with a few captured things allocates nothing. Unused capacity is not initialised.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace fovea {

template <class T, std::size_t in_place>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  InlineVector() = default;
  explicit InlineVector(std::size_t size) {
    if (size > in_place) grow(size);
    for (size_ = 0; size_ < size; ++size_) std::construct_at(data_ + size_);
  }
  InlineVector(const InlineVector&) = delete;  // spans of it are handed out
  InlineVector& operator=(const InlineVector&) = delete;

  void push_back(const T& value) {
    if (size_ == capacity_) grow(2 * capacity_);
    std::construct_at(data_ + size_, value);
    ++size_;
  }

  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  void grow(std::size_t capacity) {
    std::unique_ptr<Slot[]> larger(new Slot[capacity]);  // unset
    auto* const to = reinterpret_cast<T*>(larger.get());
    std::uninitialized_copy_n(data_, size_, to);
    large_ = std::move(larger);
    data_ = to;
    capacity_ = capacity;
  }

  struct alignas(T) Slot {
    std::byte bytes[sizeof(T)];
  };
  Slot small_[in_place];  // unset
  std::unique_ptr<Slot[]> large_;
  T* data_ = reinterpret_cast<T*>(small_);
  std::size_t size_ = 0, capacity_ = in_place;
};

}  // namespace fovea
