// Programs: parsed, printed, differentiated and evaluated; and problems.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <fovea/handle.hpp>

#include <algorithm>
#include <cstring>

#include "arguments.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

const char* dtype_name(fovea_dtype dtype) {
  switch (dtype) {
    case FOVEA_DTYPE_DEFAULT: return "";
    case FOVEA_F32: return "f32";
    case FOVEA_F16: return "f16";
    case FOVEA_BF16: return "bf16";
    case FOVEA_F64: return "f64";
    case FOVEA_I32: return "i32";
    case FOVEA_I64: return "i64";
    case FOVEA_U8: return "u8";
    case FOVEA_BOOL: return "bool";
  }
  return "";
}

fovea_capture_info capture(const fovea::Program& program, std::size_t i,
                           decltype(&fovea_program_tensor) ask) {
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  fovea::check(ask(program.get(), i, &info));
  return info;
}

nb::tuple tensors(const fovea::Program& program) {
  nb::list out;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program.get()); ++i) {
    const fovea_capture_info info = capture(program, i, fovea_program_tensor);
    out.append(nb::make_tuple(info.name, dtype_name(info.dtype), info.extents, info.data));
  }
  return nb::tuple(out);
}

nb::tuple scalars(const fovea::Program& program) {
  nb::list out;
  for (std::size_t i = 0; i < fovea_program_scalar_count(program.get()); ++i) {
    const fovea_capture_info info = capture(program, i, fovea_program_scalar);
    const nb::object value = info.has_value != 0 ? nb::object(nb::float_(info.value)) : nb::none();
    out.append(nb::make_tuple(info.name, dtype_name(info.dtype), value));
  }
  return nb::tuple(out);
}

std::string derivative(const fovea::Program& program, const std::optional<std::string>& by,
                       bool indented) {
  return fovea::report_of(fovea_program_differentiate, program.get(), by ? by->c_str() : nullptr,
                          indented ? FOVEA_TEXT_INDENTED : FOVEA_TEXT_CANONICAL);
}

std::pair<double, std::string> check_bprop(const fovea::Program& program, std::uint64_t seed,
                                           int points) {
  double error = 0;
  fovea_report report = nullptr;
  fovea::check(fovea_program_check_bprop(program.get(), seed, points, &error, &report));
  return {error, fovea::Report(report).text()};
}

// (b, h, q, k) and (B, H, Hkv, Sq, Skv) of one point.
fovea_point point_at(const nb::tuple& at, const nb::tuple& sizes) {
  if (at.size() != 4) throw BadArgument("at must be (b, h, q, k)");
  if (sizes.size() != 5) throw BadArgument("sizes must be (B, H, Hkv, Sq, Skv)");
  fovea_point point{};
  point.struct_size = sizeof point;
  std::int32_t* const positions[] = {&point.b, &point.h, &point.q, &point.k};
  std::int32_t* const extents[] = {&point.B, &point.H, &point.Hkv, &point.Sq, &point.Skv};
  for (std::size_t i = 0; i < 4; ++i) *positions[i] = nb::cast<std::int32_t>(at[i]);
  for (std::size_t i = 0; i < 5; ++i) *extents[i] = nb::cast<std::int32_t>(sizes[i]);
  return point;
}

fovea_value value_at(const fovea::Program& program, const fovea_point& point, bool in_double) {
  fovea_value value{};
  value.struct_size = sizeof value;
  fovea::check(fovea_program_evaluate(program.get(), &point, in_double ? 1 : 0, &value));
  return value;
}

nb::tuple evaluate(const fovea::Program& program, double score, const nb::tuple& at,
                   const nb::tuple& sizes, double grad, const nb::object& tensors,
                   const nb::object& scalars, bool in_double) {
  CapturedArguments captured;
  captured.set_tensors({"tensors", tensors.ptr()});
  captured.set_scalars({"scalars", scalars.ptr()});
  fovea_point point = point_at(at, sizes);
  point.score = score;
  point.grad = grad;
  captured.fill(point);
  const fovea_value value = value_at(program, point, in_double);
  return nb::make_tuple(value.mod, value.keep != 0, value.bprop);
}

// 0, 1 or 2: is the mask empty, full or mixed in a box (q_first, q_last, k_first, k_last)?
int classify_box(const fovea::Program& program, const nb::tuple& at, const nb::tuple& sizes,
                 const nb::sequence& ends) {
  fovea_box box{};
  box.struct_size = sizeof box;
  box.at = point_at(at, sizes);
  std::int32_t* const into[] = {&box.q_first, &box.q_last, &box.k_first, &box.k_last};
  for (std::size_t i = 0; i < 4; ++i) *into[i] = nb::cast<std::int32_t>(ends[i]);
  fovea_tile_class result = FOVEA_TILE_MIXED;
  fovea::check(fovea_program_classify(program.get(), &box, &result));
  return result;
}

// The class of each tile of a head, a byte each, row by row.
std::string classify(const fovea::Program& program, const fovea_point& point, int tile) {
  std::string classes;
  fovea_box box{};
  box.struct_size = sizeof box;
  box.at = point;
  for (box.q_first = 0; box.q_first < point.Sq; box.q_first = box.q_last) {
    box.q_last = std::min(box.q_first, point.Sq - tile) + tile;
    for (box.k_first = 0; box.k_first < point.Skv; box.k_first = box.k_last) {
      box.k_last = std::min(box.k_first, point.Skv - tile) + tile;
      fovea_tile_class result = FOVEA_TILE_MIXED;
      fovea::check(fovea_program_classify(program.get(), &box, &result));
      classes.push_back(static_cast<char>(result));
    }
  }
  return classes;
}

// Every (q, k) of a head at one score: what a picture is made of. Values as f64 and kept as bytes,
// row by row, and the classes of tiles.
nb::tuple evaluate_grid(const fovea::Program& program, double score, const nb::tuple& at,
                        const nb::tuple& sizes, const nb::object& tensors,
                        const nb::object& scalars, int tile) {
  CapturedArguments captured;
  captured.set_tensors({"tensors", tensors.ptr()});
  captured.set_scalars({"scalars", scalars.ptr()});
  fovea_point point = point_at(at, sizes);
  point.score = score;
  captured.fill(point);
  std::string values, kept, tiles;
  {
    const nb::gil_scoped_release unlocked;
    tiles = classify(program, point, tile);
    for (point.q = 0; point.q < point.Sq; ++point.q) {
      for (point.k = 0; point.k < point.Skv; ++point.k) {
        const fovea_value value = value_at(program, point, false);
        char bytes[sizeof value.mod];
        std::memcpy(bytes, &value.mod, sizeof bytes);
        values.append(bytes, sizeof bytes);
        kept.push_back(static_cast<char>(value.keep));
      }
    }
  }
  return nb::make_tuple(nb::bytes(values.data(), values.size()),
                        nb::bytes(kept.data(), kept.size()), nb::bytes(tiles.data(), tiles.size()));
}

// --- problems, and what is asked of them before anything is built ---

using Text = std::optional<std::string>;
using Partner = std::optional<fovea::Problem>;

fovea::Problem parse_one(const std::string& line) {
  auto [first, second] = fovea::Problem::parse(line);
  if (second) {
    throw BadArgument("line has direction=both, which is two problems; use problem_pair(line)");
  }
  return first;
}

std::pair<fovea::Problem, fovea::Problem> parse_pair(const std::string& line) {
  auto [first, second] = fovea::Problem::parse(line);
  if (!second) throw BadArgument("line has one direction; problem_pair takes direction=both");
  return {first, *second};
}

fovea::Where where(const Text& engine, const Text& device, const Partner& partner) {
  return {engine.value_or(""), device.value_or(""), partner};
}

std::pair<int, std::string> supported(const fovea::Problem& problem, const Text& engine,
                                      const Text& device, const Partner& partner) {
  const fovea::Support support = fovea::supported(problem, where(engine, device, partner));
  return {support.answer, support.text};
}

std::string explain(const fovea::Problem& problem, const Text& engine, const Text& device,
                    const Partner& partner, bool prove, bool json) {
  std::uint32_t flags = 0;
  if (prove) flags |= FOVEA_EXPLAIN_PROVE;
  if (json) flags |= FOVEA_EXPLAIN_JSON;
  return fovea::explain(problem, where(engine, device, partner), flags);
}

}  // namespace

void define_program(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<fovea::Program>(module, "Program", "Formulas with what they capture; immutable.")
      .def(nb::init<const std::string&>(), "line"_a)
      .def(
          "text",
          [](const fovea::Program& self, bool indented, bool in_double) {
            const fovea_text_form canonical = in_double ? FOVEA_TEXT_DOUBLE : FOVEA_TEXT_CANONICAL;
            return fovea::report_of(fovea_program_print, self.get(),
                                    indented ? FOVEA_TEXT_INDENTED : canonical);
          },
          "indented"_a = false, "in_double"_a = false,
          "Canonical (it parses back), perhaps with literals as doubles, or indented for people.")
      .def("derivative", derivative, "by"_a = nb::none(), "indented"_a = false, unlocked,
           "The derivative by 'score' or a captured name; None: all of them, for people.")
      .def("check_bprop", check_bprop, "seed"_a = 1, "points"_a = 1000, unlocked,
           "(largest relative error of a hand-written bprop against the derived one, where)")
      .def("evaluate", evaluate, "score"_a, "at"_a, "sizes"_a, "grad"_a = 0.0,
           "tensors"_a = nb::tuple(), "scalars"_a = nb::tuple(), "in_double"_a = false,
           "(mod, keep, bprop) at one point.")
      .def(
          "classify", classify_box, "at"_a, "sizes"_a, "ends"_a,
          "Is the mask, which captures nothing, empty (0), full (1) or mixed (2) in a box of positions (q_first, "
          "q_last, k_first, k_last)? Never calls a live one empty.")
      .def("evaluate_grid", evaluate_grid, "score"_a, "at"_a, "sizes"_a, "tensors"_a = nb::tuple(),
           "scalars"_a = nb::tuple(), "tile"_a = 64,
           "(mod as f64 bytes, keep as bytes) of every q and k, classes of tiles as bytes.")
      .def_prop_ro("tensors", tensors, "(name, dtype, extents, data) of each, in canonical order.")
      .def_prop_ro("scalars", scalars, "(name, dtype, default or None) of each.")
      .def(
          "__eq__", [](const fovea::Program& a, const fovea::Program& b) { return a == b; },
          nb::is_operator())
      .def("__repr__", [](const fovea::Program& self) { return "Program(" + self.line() + ")"; });

  nb::class_<fovea::Problem>(module, "Problem", "Which attention: a problem line of one direction.")
      .def(
          "__init__",
          [](fovea::Problem* self, const std::string& line) {
            new (self) fovea::Problem(parse_one(line));
          },
          "line"_a)
      .def_prop_ro("line", &fovea::Problem::line,
                   "The canonical line; it reads back as an equal problem.")
      .def(
          "__eq__", [](const fovea::Problem& a, const fovea::Problem& b) { return a == b; },
          nb::is_operator())
      .def("__repr__", [](const fovea::Problem& self) { return "Problem(" + self.line() + ")"; });

  module.def(
      "problem_pair", parse_pair, "line"_a,
      "The forward and the backward of a line with direction=both; a plan of one is chosen with the other in mind.");
  module.def(
      "supported", supported, "problem"_a, "engine"_a = nb::none(), "device"_a = nb::none(),
      "partner"_a = nb::none(), unlocked,
      "(0 no, 1 expected or 2 proven; the engine, or every engine's reasons). Builds nothing.");
  module.def("explain", explain, "problem"_a, "engine"_a = nb::none(), "device"_a = nb::none(),
             "partner"_a = nb::none(), "prove"_a = false, "json"_a = false, unlocked,
             "Every engine's verdict, as a table or as JSON.");
}

}  // namespace fovea_python
