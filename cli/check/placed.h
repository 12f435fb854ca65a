// A tensor as an engine will find it: with any strides, in memory that is NaN everywhere else, with
// guards on both sides. What lies between and around its elements must be unchanged after a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/check/array.h"

namespace fovea::cli {

// Memory of a GPU, through the driver, loaded when it is first asked for: tensors of `run`, `bench`
// and the tests on device cuda:N. The program sees include/ only, so it has its own few calls.
class Gpu {
 public:
  // The GPU of `cuda:N`; null for any other device. Throws std::runtime_error if there is none.
  static Gpu* find(const std::string& device);

  using Block = std::shared_ptr<void>;  // frees itself
  Block allocate(std::size_t bytes);
  void send(void* to, const void* from, std::size_t bytes);
  void fetch(void* to, const void* from, std::size_t bytes);
  void wait();  // for all that was enqueued

 private:
  explicit Gpu(int ordinal);
  void check(int result, const char* call) const;

  struct Driver;
  std::shared_ptr<Driver> driver_;
};

struct Placement {
  std::string dtype = "f32";
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;  // elements, by dimension; 0 repeats

  static Placement dense(std::string dtype, std::vector<std::int64_t> extents);
};

class Placed {
 public:
  Placed() = default;                                // no memory: data() is null
  explicit Placed(Placement placement);              // to be written: every byte poisoned
  Placed(Placement placement, const Array& values);  // to be read
  Placed(Placed&&) = default;
  Placed& operator=(Placed&&) = default;

  // From here on data() is on the GPU. send() copies there, fetch() back, guards included.
  void put_on(Gpu& gpu);
  void send();
  void replace(const Array& values);  // of an input, where it lies
  void fetch();

  void* data();
  const Placement& placement() const { return placement_; }
  Array take() const;  // the elements, dense

  void poison();  // the elements only
  bool surroundings_untouched() const;
  bool bytes_untouched() const;        // nothing at all was written since it was made
  bool has_unwritten_element() const;  // the poison is still there

 private:
  // Elements that lie one behind the other, here and in an array that is dense.
  struct Run {
    std::size_t dense = 0, at = 0, bytes = 0;  // where it begins in that array and in bytes_
  };
  template <class Visit>
  void each_run(Visit visit) const;  // visit(const Run&)

  Placement placement_;
  std::vector<unsigned char> bytes_, before_;
  std::size_t start_ = 0, element_ = 1;
  Gpu* gpu_ = nullptr;
  Gpu::Block block_;
  unsigned char* there_ = nullptr;  // where bytes_ are on the GPU
};

}  // namespace fovea::cli
