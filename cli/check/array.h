// A tensor in memory for the command line: generated as test data (captured.h), or read from and
// written to .npy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

struct Array {
  std::string dtype = "f32";  // f32 f16 bf16 f64 i32 i64 u8 bool
  std::vector<std::int64_t> extents;
  std::vector<unsigned char> bytes;  // dense, last index fastest

  std::int64_t size() const;           // elements
  void set(std::int64_t i, double x);  // rounded to the element type; integers saturate
  double get(std::int64_t i) const;    // exactly, but for i64 beyond 2^53
};

int element_size(const std::string& dtype);
bool is_float(const std::string& dtype);
Array zeros(const std::string& dtype, std::vector<std::int64_t> extents);

// NumPy's format, versions 1 to 3, C order, little endian. Errors name the file and the reason.
// bf16 has no NumPy type: it is written as '<u2' and read back only if bf16 is wanted.
Array read_npy(const std::string& path);
void write_npy(const std::string& path, const Array& array);

// Writes a file under a temporary name first, so that it is there whole or not at all. Throws
// std::runtime_error "cannot write PATH: REASON". Devices and pipes are written to, symbolic links
// kept.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace fovea::cli
