// Tensors as the loops see them: rows of doubles at (batch, head, position), whatever the layout
// and the stored type. Every address is computed here.
#pragma once

#include <cstdint>
#include <span>

#include "attention/bindings.h"
#include "attention/problem.h"

namespace fovea::reference {

// One element; reading is exact, writing rounds once, to nearest even.
double read_number(const void* data, DType dtype, std::int64_t at);
void write_number(void* data, DType dtype, std::int64_t at, double value);

// One of the eight tensors.
class Rows {
 public:
  Rows(const BoundTensor& tensor, DType dtype) : tensor_(tensor), dtype_(dtype) {}

  void read(std::int64_t b, std::int64_t h, std::int64_t row, std::span<double> into) const;
  void write(std::int64_t b, std::int64_t h, std::int64_t row, std::span<const double> from) const;

 private:
  std::int64_t address(std::int64_t b, std::int64_t h, std::int64_t row) const {
    return b * tensor_.strides.b + h * tensor_.strides.h + row * tensor_.strides.s;
  }
  BoundTensor tensor_;
  DType dtype_;
};

}  // namespace fovea::reference
