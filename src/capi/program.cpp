#include "capi/program.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/words.h"
#include "capi/captured.h"
#include "capi/report.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/print.h"
#include "ir/range.h"
#include "ir/simplify.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

std::string extents_text(const ir::TensorDecl& tensor) {
  std::string out;
  for (const ir::Extent& extent : tensor.extents) {
    out += (out.empty() ? "" : ",") + ir::extent_text(extent);
  }
  return out;
}

void check_index(std::size_t i, std::size_t count, const char* what) {
  if (i < count) return;
  throw InvalidArgument("i is " + std::to_string(i) + ", but the program captures " +
                        std::to_string(count) + " " + what);
}

constexpr StructName info_name{"info", "fovea_capture_info"};

// The default of a scalar as it was written: f32 problems round it, f64 problems do not.
double written_value(const fovea_program_s& program, const std::string& name) {
  const ir::Program written = program.with_literals(ir::Literals::F64);
  for (const ir::ScalarDecl& scalar : written.scalars()) {
    if (scalar.name == name) return scalar.value.value_or(0);
  }
  return 0;
}

std::string bprop_text(const ir::BpropCheck& check) {
  char numbers[160];
  std::snprintf(numbers, sizeof numbers,
                "largest relative error %.3g at %d random points (seed %llu): bprop gives %.9g, "
                "the derivative %.9g",
                check.worst_error, check.points, static_cast<unsigned long long>(check.seed),
                check.hand, check.derived);
  return std::string(numbers) + " at " + check.worst_point;
}

}  // namespace

fovea_program_s::fovea_program_s(const char* line)
    : literals(ir::Literals::F32), text(line), program(ir::parse_program(line)) {
  describe_extents();
}

fovea_program_s::fovea_program_s(ir::Program made, ir::Literals kind)
    : literals(kind), program(std::move(made)) {
  describe_extents();
}

ir::Program fovea_program_s::with_literals(ir::Literals kind) const {
  if (kind == literals) return program;
  return ir::parse_program(text.empty() ? ir::print(program, literals) : text, kind);
}

void fovea_program_s::describe_extents() {
  for (const ir::TensorDecl& tensor : program.tensors()) extents.push_back(extents_text(tensor));
}

fovea_status fovea_program_parse(const char* line, fovea_program* program) {
  return create(program, "program", [&] {
    need(line, "line");
    return new fovea_program_s(line);
  });
}

void fovea_program_destroy(fovea_program program) { delete program; }

fovea_status fovea_program_print(fovea_program program, fovea_text_form form,
                                 fovea_report* report) {
  return report_text(report, "report", [&] {
    const fovea_program_s& printed = content(program, "program");
    switch (to_enum<fovea_text_form>(form, 3, "form", "fovea_text_form")) {
      case FOVEA_TEXT_CANONICAL: return ir::print(printed.program, printed.literals);
      case FOVEA_TEXT_INDENTED: return ir::print_indented(printed.program);
      case FOVEA_TEXT_DOUBLE:
        return ir::print(printed.with_literals(ir::Literals::F64), ir::Literals::F64);
    }
    return std::string();
  });
}

int fovea_program_equal(fovea_program a, fovea_program b) {
  return a != nullptr && b != nullptr && a->program == b->program ? 1 : 0;
}

fovea_status fovea_program_check_bprop(fovea_program program, uint64_t seed, int points,
                                       double* error, fovea_report* report) {
  return guarded([&] {
    if (report != nullptr) *report = nullptr;
    const ir::Program& checked = content(program, "program").program;
    need(error, "error");
    constexpr int most_points = 10'000'000;
    if (points < 1 || points > most_points) {
      throw InvalidArgument("points is " + std::to_string(points) + "; it must be 1 to " +
                            std::to_string(most_points));
    }
    const ir::BpropCheck check = ir::check_bprop(checked, seed, points);
    if (report != nullptr) *report = new_report(bprop_text(check));
    *error = check.worst_error;
  });
}

size_t fovea_program_tensor_count(fovea_program program) {
  return program == nullptr ? 0 : program->program.tensors().size();
}

size_t fovea_program_scalar_count(fovea_program program) {
  return program == nullptr ? 0 : program->program.scalars().size();
}

fovea_status fovea_program_tensor(fovea_program program, size_t i, fovea_capture_info* info) {
  return guarded([&] {
    const fovea_program_s& asked = content(program, "program");
    clear_struct(info, info_name);
    check_index(i, asked.program.tensors().size(), "tensors");
    const ir::TensorDecl& tensor = asked.program.tensors()[i];
    info->name = tensor.name.c_str();
    info->dtype = from_dtype(tensor.dtype);
    info->rank = static_cast<std::int32_t>(tensor.extents.size());
    info->extents = asked.extents[i].c_str();
    info->data = tensor.data.c_str();
  });
}

fovea_status fovea_program_scalar(fovea_program program, size_t i, fovea_capture_info* info) {
  return guarded([&] {
    const fovea_program_s& asked = content(program, "program");
    clear_struct(info, info_name);
    check_index(i, asked.program.scalars().size(), "scalars");
    const ir::ScalarDecl& scalar = asked.program.scalars()[i];
    info->name = scalar.name.c_str();
    info->dtype = scalar.type == ir::Type::F32 ? FOVEA_F32 : FOVEA_I32;
    info->extents = info->data = "";
    info->has_value = scalar.value.has_value() ? 1 : 0;
    info->value = scalar.value.has_value() ? written_value(asked, scalar.name) : 0;
  });
}

namespace {

struct Printing {
  const ir::Declarations& names;
  bool indented;

  std::string operator()(const ir::Expr& derivative) const {
    const ir::Expr simple = ir::simplify(derivative);
    return indented ? ir::print_indented(simple, names) : ir::print(simple, names);
  }
};

std::string by_tensor(const ir::Gradients& gradients, std::size_t slot, const Printing& text) {
  std::string out;
  for (const ir::LoadGradient& one : gradients.loads) {
    if (one.load->slot() != slot) continue;
    const std::string load = ir::print(one.load, text.names);
    if (text.indented) {
      out += load + " =>\n" + text(one.gradient);
    } else {
      out += (out.empty() ? "" : "\n") + load + " => " + text(one.gradient);
    }
  }
  return out;
}

std::string by_scalar(const ir::Gradients& gradients, std::size_t slot, const Printing& text) {
  for (const ir::ScalarGradient& one : gradients.scalars) {
    if (one.slot == slot) return text(one.gradient);
  }
  return text(ir::constant(0.0f));
}

std::string by_name(const ir::Program& program, const std::string& by, const Printing& text) {
  const ir::Gradients gradients = ir::differentiate(program.mod());
  if (by == "score") return text(gradients.score);
  std::vector<std::string> known{"score"};
  for (std::size_t slot = 0; slot < program.tensors().size(); ++slot) {
    const ir::TensorDecl& tensor = program.tensors()[slot];
    known.push_back(tensor.name);
    if (tensor.name != by) continue;
    if (ir::loaded_type(tensor.dtype) == ir::Type::F32) return by_tensor(gradients, slot, text);
    throw InvalidArgument("by is '" + by + "', a tensor of " +
                          std::string(dtype_name(tensor.dtype)) +
                          "; only float tensors have derivatives");
  }
  for (std::size_t slot = 0; slot < program.scalars().size(); ++slot) {
    const ir::ScalarDecl& scalar = program.scalars()[slot];
    known.push_back(scalar.name);
    if (scalar.name != by) continue;
    if (scalar.type == ir::Type::F32) return by_scalar(gradients, slot, text);
    throw InvalidArgument("by is '" + by + "', a scalar of i32; only f32 scalars have derivatives");
  }
  throw InvalidArgument("by is '" + by.substr(0, 64) +
                        "', which is neither score nor captured by the program" +
                        did_you_mean(by, known));
}

// A hand-written bprop beside the derived one.
std::string bprop_paragraph(const ir::Program& program, const Printing& text) {
  constexpr std::uint64_t seed = 1;
  const ir::BpropCheck check = ir::check_bprop(program, seed);
  char error[32];
  std::snprintf(error, sizeof error, "%.3g", check.worst_error);
  std::string out = "\nbprop (hand-written)\n" + ir::print_indented(program.bprop(), text.names);
  if (check.agrees()) {
    return out + "  agrees with the derivative at " + std::to_string(check.points) +
           " random points (largest relative error " + error + ")\n";
  }
  return out + "  DIFFERS from the derivative: relative error " + error + " at " +
         check.worst_point + ": bprop gives " + std::to_string(check.hand) + ", the derivative " +
         std::to_string(check.derived) + "\n";
}

std::string in_paragraphs(const ir::Program& program, Printing text) {
  text.indented = true;
  std::string out = "mod\n" + ir::print_indented(program.mod(), text.names);
  const auto paragraph = [&](const std::string& by, const ir::Expr& derivative) {
    out += "\nd mod / d " + by + "\n" + text(derivative);
  };
  const ir::Gradients gradients = ir::differentiate(program.mod());
  paragraph("score", gradients.score);
  for (const ir::LoadGradient& one : gradients.loads) {
    paragraph(ir::print(one.load, text.names), one.gradient);
  }
  for (const ir::ScalarGradient& one : gradients.scalars) {
    paragraph(text.names.scalars[one.slot].name, one.gradient);
  }
  if (program.bprop()) out += bprop_paragraph(program, text);
  return out;
}

}  // namespace

fovea_status fovea_program_differentiate(fovea_program program, const char* by,
                                         fovea_text_form form, fovea_report* report) {
  return report_text(report, "report", [&] {
    const ir::Program& formulas = content(program, "program").program;
    const bool indented = to_enum<int>(form, 2, "form", "fovea_text_form") == FOVEA_TEXT_INDENTED;
    if (!formulas.mod()) {
      throw InvalidArgument("there is nothing to differentiate: give mod=\"...\"" +
                            std::string(formulas.mask() ? " (a mask has no derivative)" : ""));
    }
    const Printing text{formulas.declarations(), indented};
    return by == nullptr ? in_paragraphs(formulas, text) : by_name(formulas, by, text);
  });
}

// ---- at a point and over a tile ----

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
                 {.argument = argument,
                  .tensors = at.tensors,
                  .tensor_count = at.tensor_count,
                  .scalars = at.scalars,
                  .scalar_count = at.scalar_count,
                  .reals = handle.literals},
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
