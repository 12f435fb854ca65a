#include "cli/check/array.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace fovea::cli {
namespace {

// Round to nearest, ties to even, by the bits of a float that holds the value exactly enough.
std::uint16_t to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t to_half(float x) {
  const std::uint32_t sign = (std::bit_cast<std::uint32_t>(x) >> 16) & 0x8000u;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | 0x7e00u);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7c00u);
  int exponent = 0;
  std::frexp(magnitude, &exponent);               // magnitude = f * 2^exponent, 0.5 <= f < 1
  const int unit = std::max(exponent - 11, -24);  // the last place of the result is 2^unit
  const float places = std::nearbyint(std::ldexp(magnitude, -unit));
  const float rounded = std::ldexp(places, unit);
  if (rounded < std::ldexp(1.0f, -14)) {  // subnormal: the bits count units of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::ldexp(rounded, 24)));
  }
  const auto bits = std::bit_cast<std::uint32_t>(rounded);
  return static_cast<std::uint16_t>(sign |
                                    ((((bits >> 23) - 112u) << 10) | ((bits >> 13) & 1023u)));
}

template <class T>
T saturate(double x) {
  if (std::isnan(x)) return 0;
  const double lo = static_cast<double>(std::numeric_limits<T>::min());
  const double hi = static_cast<double>(std::numeric_limits<T>::max());
  if (x <= lo) return std::numeric_limits<T>::min();
  if (x >= hi) return std::numeric_limits<T>::max();
  return static_cast<T>(x);
}

template <class T>
void store(std::vector<unsigned char>& bytes, std::int64_t i, T value) {
  std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
}

template <class T>
T load(const std::vector<unsigned char>& bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

float from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

// ---- .npy ----

constexpr std::array<std::pair<const char*, const char*>, 8> types{{
    {"<f4", "f32"},
    {"<f2", "f16"},
    {"<f8", "f64"},
    {"<i4", "i32"},
    {"<i8", "i64"},
    {"|u1", "u8"},
    {"|b1", "bool"},
    {"<u2", "u16"},  // bf16 in disguise
}};

class NpyReader {
 public:
  explicit NpyReader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    if (!in_) fail("cannot be opened");
  }

  Array run() {
    std::array<char, 8> magic{};
    read(magic.data(), magic.size());
    if (std::memcmp(magic.data(), "\x93NUMPY", 6) != 0) fail("is not a .npy file");
    const int version = magic[6];
    if (version < 1 || version > 3) fail("has version " + std::to_string(version));
    std::array<unsigned char, 4> raw{};
    read(reinterpret_cast<char*>(raw.data()), version == 1 ? 2 : 4);
    const std::uint32_t length =
        raw[0] | raw[1] << 8 | raw[2] << 16 | static_cast<std::uint32_t>(raw[3]) << 24;
    if (length > 65536) fail("has a header of " + std::to_string(length) + " bytes");
    std::string header(length, ' ');
    read(header.data(), length);
    Array array = parse(header);
    read(reinterpret_cast<char*>(array.bytes.data()), array.bytes.size());
    return array;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("the file '" + path_ + "' " + what);
  }

  void read(char* to, std::size_t count) {
    in_.read(to, static_cast<std::streamsize>(count));
    if (static_cast<std::size_t>(in_.gcount()) != count) fail("ends too early");
  }

  // What stands after 'key': in the header, a Python dictionary.
  std::string_view value(std::string_view header, const std::string& key) const {
    const std::size_t at = header.find("'" + key + "':");
    if (at == std::string_view::npos) fail("has no '" + key + "' in its header");
    header.remove_prefix(at + key.size() + 3);
    while (!header.empty() && header.front() == ' ') header.remove_prefix(1);
    return header;
  }

  Array parse(const std::string& header) const {
    if (!value(header, "fortran_order").starts_with("False")) fail("is in Fortran order");
    const std::string_view descr = value(header, "descr");
    std::string dtype;
    for (const auto& [numpy, ours] : types) {
      if (descr.substr(1, 3) == numpy) dtype = ours;
    }
    if (dtype.empty()) fail("has elements of type " + std::string(descr.substr(0, 6)));
    std::vector<std::int64_t> extents;
    std::string_view shape = value(header, "shape");
    shape = shape.substr(0, shape.find(')'));
    while (!shape.empty()) {
      const bool digit = shape.front() >= '0' && shape.front() <= '9';
      if (!digit) {
        shape.remove_prefix(1);
        continue;
      }
      std::int64_t extent = 0;
      const auto [end, error] = std::from_chars(shape.data(), shape.data() + shape.size(), extent);
      if (error != std::errc{}) fail("has an extent out of range");
      extents.push_back(extent);
      shape.remove_prefix(static_cast<std::size_t>(end - shape.data()));
    }
    Array array = zeros(dtype == "u16" ? "bf16" : dtype, std::move(extents));
    array.dtype = dtype;
    return array;
  }

  std::string path_;
  std::ifstream in_;
};

}  // namespace

bool is_float(const std::string& dtype) {
  return dtype == "f32" || dtype == "f16" || dtype == "bf16" || dtype == "f64";
}

int element_size(const std::string& dtype) {
  if (dtype == "f64" || dtype == "i64") return 8;
  if (dtype == "f32" || dtype == "i32") return 4;
  if (dtype == "f16" || dtype == "bf16") return 2;
  if (dtype == "u8" || dtype == "bool") return 1;
  throw std::invalid_argument("unknown element type '" + dtype + "'");
}

std::int64_t Array::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

void Array::set(std::int64_t i, double x) {
  if (dtype == "f64") return store(bytes, i, x);
  if (dtype == "f32") return store(bytes, i, static_cast<float>(x));
  if (dtype == "f16") return store(bytes, i, to_half(static_cast<float>(x)));
  if (dtype == "bf16") return store(bytes, i, to_bfloat16(static_cast<float>(x)));
  if (dtype == "i32") return store(bytes, i, saturate<std::int32_t>(x));
  if (dtype == "i64") return store(bytes, i, saturate<std::int64_t>(x));
  if (dtype == "u8") return store(bytes, i, saturate<std::uint8_t>(x));
  store(bytes, i, static_cast<unsigned char>(x != 0));
}

double Array::get(std::int64_t i) const {
  if (dtype == "f64") return load<double>(bytes, i);
  if (dtype == "f32") return load<float>(bytes, i);
  if (dtype == "f16") return from_half(load<std::uint16_t>(bytes, i));
  if (dtype == "bf16") return from_bfloat16(load<std::uint16_t>(bytes, i));
  if (dtype == "i32") return load<std::int32_t>(bytes, i);
  if (dtype == "i64") return static_cast<double>(load<std::int64_t>(bytes, i));
  return load<std::uint8_t>(bytes, i);
}

Array zeros(const std::string& dtype, std::vector<std::int64_t> extents) {
  constexpr std::int64_t most = std::int64_t{1} << 32;  // elements: more is a slip of the hand
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) {
    if (extent < 0 || (extent > 0 && count > most / extent)) {
      throw std::invalid_argument("an array of more than 2^32 elements was asked for");
    }
    count *= extent;
  }
  Array array{dtype, std::move(extents), {}};
  array.bytes.resize(static_cast<std::size_t>(count * element_size(dtype)));
  return array;
}

Array read_npy(const std::string& path) { return NpyReader(path).run(); }

void write_npy(const std::string& path, const Array& array) {
  std::string descr;
  for (const auto& [numpy, ours] : types) {
    if (array.dtype == ours || (array.dtype == "bf16" && std::string(ours) == "u16")) descr = numpy;
  }
  std::string shape;
  for (const std::int64_t extent : array.extents) shape += std::to_string(extent) + ", ";
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const std::size_t unpadded = 10 + header.size() + 1;
  header += std::string((64 - unpadded % 64) % 64, ' ') + "\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  write_file(path, bytes);
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw std::runtime_error("cannot write " + path + ": " + reason);
}

// Returns 0 or the errno of the first step that failed.
int write_bytes(const std::string& path, const char* mode, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return errno;
  int error = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) error = errno;
  // A full disk often shows only when the last buffer goes out.
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  if (path.empty()) throw std::runtime_error("cannot write a file: the path is empty");
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) fail(path, std::strerror(EISDIR));

  // Pipes and devices such as /dev/stdout must be written to, never replaced by a file.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (const int error = write_bytes(path, "wb", bytes)) fail(path, std::strerror(error));
    return;
  }
  // A symbolic link stays one: the file it names is replaced.
  const std::string target = fs::is_regular_file(status) ? fs::canonical(path).string() : path;
  const std::string temporary = target + ".tmp" + std::to_string(::getpid());
  const int error = write_bytes(temporary, "wbx", bytes);
  if (error == EEXIST) fail(path, "the temporary file " + temporary + " is in the way");
  if (error != 0) {
    std::remove(temporary.c_str());
    fail(path, std::strerror(error));
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    fail(path, std::strerror(reason));
  }
}

}  // namespace fovea::cli
