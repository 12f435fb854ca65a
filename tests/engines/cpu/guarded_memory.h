// Memory of exactly the size that was asked for: with a zone behind it that must not be written to,
// or at the edge of a page that must not be touched.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fovea::test {

// Aligned to 64 and filled with garbage.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<unsigned char*>(::operator new(bytes + zone, std::align_val_t{64}))) {
    std::fill_n(memory_, bytes + zone, rubbish);
  }
  ~GuardedMemory() { ::operator delete(memory_, std::align_val_t{64}); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return memory_; }
  bool intact() const {
    return std::all_of(memory_ + bytes_, memory_ + bytes_ + zone,
                       [](unsigned char c) { return c == rubbish; });
  }

 private:
  static constexpr std::size_t zone = 256;
  static constexpr unsigned char rubbish = 0xcd;
  std::size_t bytes_;
  unsigned char* memory_;
};

// Between two protected pages; `bytes` end at the second or begin behind the first.
class GuardedPages {
 public:
  enum class Against { End, Start };
  GuardedPages(std::size_t bytes, Against against)
      : size_(std::max<std::size_t>((bytes + page - 1) / page, 1) * page + 2 * page),
        mapped_(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    auto* const start = static_cast<std::byte*>(mapped_) + page;
    const std::size_t inner = size_ - 2 * page;
    mprotect(start, inner, PROT_READ | PROT_WRITE);
    data_ = against == Against::End ? start + inner - bytes : start;
  }
  ~GuardedPages() { munmap(mapped_, size_); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;
  void* data() const { return data_; }

 private:
  static constexpr std::size_t page = 4096;
  std::size_t size_;
  void* mapped_;
  void* data_;
};

}  // namespace fovea::test
