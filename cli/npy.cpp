// The .npy half of array.h.
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "array.h"
#include "file.h"

namespace fovea::cli {
namespace {

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

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
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

Array read_npy(const std::string& path) { return Reader(path).run(); }

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

}  // namespace fovea::cli
