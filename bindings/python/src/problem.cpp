// Problems, and what is asked of them before anything is built.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <fovea/handle.hpp>

#include "module.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

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

bool is_backward(const fovea::Problem& problem) {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  fovea::check(fovea_problem_describe(problem.get(), &config));
  return config.direction == FOVEA_BACKWARD;
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

void define_problem(nb::module_& module) {
  nb::class_<fovea::Problem>(module, "Problem", "Which attention: a problem line of one direction.")
      .def(
          "__init__",
          [](fovea::Problem* self, const std::string& line) {
            new (self) fovea::Problem(parse_one(line));
          },
          "line"_a)
      .def_prop_ro("line", &fovea::Problem::line,
                   "The canonical line; it reads back as an equal problem.")
      .def_prop_ro("program", &fovea::Problem::program)
      .def_prop_ro("is_backward", is_backward)
      .def(
          "__eq__", [](const fovea::Problem& a, const fovea::Problem& b) { return a == b; },
          nb::is_operator())
      .def("__repr__", [](const fovea::Problem& self) { return "Problem(" + self.line() + ")"; });

  const nb::call_guard<nb::gil_scoped_release> unlocked;
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
