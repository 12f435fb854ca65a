#include "cli/check/bound_program.h"

#include <fovea/handle.hpp>

namespace fovea::cli {
namespace {

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }

}  // namespace

std::vector<fovea_tensor_binding> bind_tensors(const CapturedData& captured) {
  std::vector<fovea_tensor_binding> out;
  for (const CapturedTensor& tensor : captured.tensors) {
    fovea_tensor_binding binding{};
    binding.name = tensor.name.c_str();
    // The interface has one struct for tensors that are read and written; these are only read.
    binding.array.data = const_cast<unsigned char*>(tensor.values.bytes.data());
    binding.array.rank = static_cast<std::int32_t>(tensor.values.extents.size());
    std::copy(tensor.values.extents.begin(), tensor.values.extents.end(), binding.array.extent);
    out.push_back(binding);
  }
  return out;
}

std::vector<fovea_scalar_binding> bind_scalars(const CapturedData& captured) {
  std::vector<fovea_scalar_binding> out;
  for (const CapturedScalar& scalar : captured.scalars) {
    out.push_back({scalar.name.c_str(), scalar.value, nullptr, nullptr});
  }
  return out;
}

BoundProgram::BoundProgram(fovea_program program, const CapturedData& captured,
                           const fovea_sizes& sizes)
    : program_(program), tensors_(bind_tensors(captured)), scalars_(bind_scalars(captured)) {
  const std::string line = report_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  mod_text_ = line_value(line, "mod");
  mask_text_ = line_value(line, "mask");
  point_.struct_size = sizeof point_;
  point_.B = narrow(sizes.b), point_.H = narrow(sizes.h), point_.Hkv = narrow(sizes.hkv);
  set_lengths(sizes.sq, sizes.skv);
  point_.tensors = tensors_.data(), point_.tensor_count = tensors_.size();
  point_.scalars = scalars_.data(), point_.scalar_count = scalars_.size();
}

bool BoundProgram::is_additive() const {
  const std::string text =
      report_of(fovea_program_differentiate, program_, "score", FOVEA_TEXT_CANONICAL);
  return text == "1" || text == "1.0" || text == "1\n";
}

void BoundProgram::set_lengths(std::int64_t sq, std::int64_t skv) {
  point_.Sq = narrow(sq), point_.Skv = narrow(skv);
}

BoundProgram::Value BoundProgram::evaluate(const Position& at, float score) const {
  fovea_point point = point_;
  point.score = static_cast<double>(score);
  point.b = narrow(at.b), point.h = narrow(at.h), point.q = narrow(at.q), point.k = narrow(at.k);
  fovea_value value{};
  value.struct_size = sizeof value;
  check(fovea_program_evaluate(program_, &point, 0, &value));
  return {value.keep != 0, static_cast<float>(value.mod)};
}

TileClass BoundProgram::classify(const Tile& tile) const {
  fovea_box box{};
  box.struct_size = sizeof box;
  box.q_first = narrow(tile.q0), box.q_last = narrow(tile.q1);
  box.k_first = narrow(tile.k0), box.k_last = narrow(tile.k1);
  box.at = point_;
  box.at.b = narrow(tile.b), box.at.h = narrow(tile.h);
  fovea_tile_class result = FOVEA_TILE_MIXED;
  check(fovea_program_classify(program_, &box, &result));
  switch (result) {
    case FOVEA_TILE_EMPTY: return TileClass::Empty;
    case FOVEA_TILE_FULL: return TileClass::Full;
    case FOVEA_TILE_MIXED: return TileClass::Mixed;
  }
  return TileClass::Mixed;
}

}  // namespace fovea::cli
