#include "captured.h"

#include <array>
#include <stdexcept>

namespace fovea::cli {
namespace {

constexpr std::array<const char*, 9> dtype_names{"f32", "f32", "f16", "bf16", "f64",
                                                 "i32", "i64", "u8",  "bool"};

std::int64_t extent_of(const std::string& word, const fovea_sizes& sizes) {
  if (word == "B") return sizes.b;
  if (word == "H") return sizes.h;
  if (word == "Hkv") return sizes.hkv;
  if (word == "Sq") return sizes.sq;
  if (word == "Skv") return sizes.skv;
  return std::stoll(word);
}

}  // namespace

std::string dtype_name(fovea_dtype dtype) { return dtype_names.at(dtype); }

fovea_dtype dtype_from_name(const std::string& name) {
  for (std::size_t i = 1; i < dtype_names.size(); ++i) {
    if (name == dtype_names[i]) return static_cast<fovea_dtype>(i);
  }
  throw std::invalid_argument("unknown element type '" + name + "'");
}

std::vector<std::int64_t> extents_of(const std::string& text, const fovea_sizes& sizes) {
  std::vector<std::int64_t> extents;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    extents.push_back(extent_of(text.substr(at, comma - at), sizes));
    at = comma + 1;
  }
  return extents;
}

std::uint64_t seed_for(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u);  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

Captured make_captured(fovea_program program, const fovea_sizes& sizes, std::uint64_t seed) {
  Captured out;
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    const DataRequest request{info.name,
                              dtype_name(info.dtype),
                              info.data,
                              extents_of(info.extents, sizes),
                              seed_for(seed, info.name),
                              index_bound(program, info.name, sizes)};
    out.tensors.push_back({info.name, make_data(request)});
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(program); ++i) {
    check(fovea_program_scalar(program, i, &info));
    if (info.has_value == 0) {
      throw std::invalid_argument("scalar '" + std::string(info.name) +
                                  "' needs a value, as in scalar=\"" + info.name + "=1\"");
    }
    out.scalars.push_back({info.name, info.value, info.dtype == FOVEA_F32});
  }
  return out;
}

}  // namespace fovea::cli
