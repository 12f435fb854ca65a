// Programs at a point and over a tile.
#include "base/error.h"
#include "capi/captured.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "ir/eval.h"
#include "ir/load_range.h"
#include "ir/range.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

std::int32_t size_or_one(std::int32_t size, const std::string& name) {
  if (size < 0) {
    throw InvalidArgument(name + " is " + std::to_string(size) + "; it must be 0 or more");
  }
  return size == 0 ? 1 : size;
}

// A point with what is captured there. `argument` is its name in errors.
struct BoundPoint {
  fovea_point at;
  CapturedBindings captured;
  std::vector<ir::ScalarValue> scalars;

  BoundPoint(const fovea_program_s& handle, const fovea_point& given, const char* argument)
      : at(with_sizes(given, argument)),
        captured(handle.program,
                 {argument, at.tensors, at.tensor_count, at.scalars, at.scalar_count, false,
                  handle.literals},
                 {{at.B, at.H, at.Hkv, at.Sq, at.Skv, 1, 1, 0, 0}, 0}) {
    captured.read_pointers(handle.program, handle.literals);
    for (const auto& scalar : captured.scalars()) scalars.push_back(scalar.value);
  }

  static fovea_point with_sizes(fovea_point point, const std::string& argument) {
    point.B = size_or_one(point.B, argument + ".B");
    point.H = size_or_one(point.H, argument + ".H");
    point.Hkv = size_or_one(point.Hkv, argument + ".Hkv");
    point.Sq = size_or_one(point.Sq, argument + ".Sq");
    point.Skv = size_or_one(point.Skv, argument + ".Skv");
    return point;
  }
};

template <class Real>
void evaluate(const ir::Program& program, const BoundPoint& bound, fovea_value& value) {
  const fovea_point& at = bound.at;
  const ir::Point<Real> point{static_cast<Real>(at.score),
                              static_cast<Real>(at.grad),
                              at.b,
                              at.h,
                              at.q,
                              at.k,
                              at.B,
                              at.H,
                              at.Hkv,
                              at.Sq,
                              at.Skv,
                              bound.scalars,
                              bound.captured.tensors()};
  value.mod = program.mod() ? static_cast<double>(ir::evaluate(program.mod(), point).f)
                            : static_cast<double>(point.score);
  value.bprop = program.bprop() ? static_cast<double>(ir::evaluate(program.bprop(), point).f) : 0;
  value.keep = !program.mask() || ir::evaluate(program.mask(), point).b ? 1 : 0;
}

void check_interval(std::int32_t first, std::int32_t last, const std::string& name) {
  if (first <= last) return;
  throw InvalidArgument(name + "_first is " + std::to_string(first) + " and " + name + "_last is " +
                        std::to_string(last) +
                        "; a tile is first <= x < last, so last must not be less");
}

std::vector<ir::Range> ranges_of(std::span<const ir::ScalarValue> scalars) {
  std::vector<ir::Range> out;
  for (const ir::ScalarValue& scalar : scalars) {
    out.push_back({ir::IntInterval::of(scalar.i), ir::RealInterval::of(scalar.f), {}});
  }
  return out;
}

fovea_tile_class classify(const fovea_program_s& handle, const fovea_box& box) {
  const ir::Program& program = handle.program;
  const BoundPoint bound(handle, box.at, "box.at");
  if (box.q_first == box.q_last || box.k_first == box.k_last) return FOVEA_TILE_EMPTY;
  if (!program.mask()) return FOVEA_TILE_FULL;
  const fovea_point& at = bound.at;
  const std::vector<ir::Range> scalars = ranges_of(bound.scalars);
  const auto only = [](std::int32_t x) { return ir::IntInterval::of(x); };
  ir::Box tile{only(at.b),
               only(at.h),
               {box.q_first, std::int64_t{box.q_last} - 1},
               {box.k_first, std::int64_t{box.k_last} - 1},
               only(at.B),
               only(at.H),
               only(at.Hkv),
               only(at.Sq),
               only(at.Skv),
               scalars,
               {}};
  const ir::Ranges mask(program.mask());
  const std::vector<ir::Range> loads = ir::LoadRanges(mask).find(tile, bound.captured.tensors());
  tile.loads = loads;
  ir::Ranges::Scratch scratch;
  switch (mask.classify(tile, scratch)) {
    case ir::TileClass::Empty: return FOVEA_TILE_EMPTY;
    case ir::TileClass::Full: return FOVEA_TILE_FULL;
    case ir::TileClass::Mixed: return FOVEA_TILE_MIXED;
  }
  throw InternalError("a tile of no class");
}

}  // namespace

fovea_status fovea_program_evaluate(fovea_program program, const fovea_point* point, int in_double,
                                    fovea_value* value) {
  return guarded([&] {
    const fovea_program_s& handle = content(program, "program");
    const ir::Program& formulas = handle.program;
    const auto known = read_struct(point, {"point", "fovea_point"});
    clear_struct(value, {"value", "fovea_value"});
    const BoundPoint bound(handle, known, "point");
    if (in_double != 0) {
      evaluate<double>(formulas, bound, *value);
    } else {
      evaluate<float>(formulas, bound, *value);
    }
  });
}

fovea_status fovea_program_classify(fovea_program program, const fovea_box* box,
                                    fovea_tile_class* tile) {
  return guarded([&] {
    const fovea_program_s& handle = content(program, "program");
    const auto known = read_struct(box, {"box", "fovea_box"});
    if (known.at.struct_size != sizeof(fovea_point)) {
      throw InvalidArgument("box.at.struct_size is " + std::to_string(known.at.struct_size) +
                            "; set it to sizeof(fovea_point), " +
                            std::to_string(sizeof(fovea_point)) + " here");
    }
    need(tile, "tile");
    check_interval(known.q_first, known.q_last, "box.q");
    check_interval(known.k_first, known.k_last, "box.k");
    *tile = classify(handle, known);
  });
}
