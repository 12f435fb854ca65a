// Memory of exactly the size that was asked for, aligned to 64, filled with garbage, with a zone
// behind it that must not be written to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace fovea::test {

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

}  // namespace fovea::test
