// Plans: made with the interpreter's lock released, asked for their workspace, and run.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "arguments.h"
#include "run.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

// Asks for the workspace of a call on that stream, which makes the plan as the call would: where
// the stream is captured, one that is not built yet is refused before anything is enqueued.
void refuse_building_while_captured(const fovea::Problem& problem, const fovea::Where& where,
                                    std::uintptr_t stream) {
  const fovea_plan_options options = where.options();
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  fovea::check(fovea_problem_describe(problem.get(), &config));
  fovea_bindings bindings{};
  bindings.struct_size = sizeof bindings;
  bindings.stream = reinterpret_cast<void*>(stream);
  std::size_t bytes = 0;
  const auto ask = config.direction == FOVEA_BACKWARD ? fovea_backward : fovea_forward;
  fovea::check(ask(problem.get(), &options, &bindings, &bytes));
}

PlanObject make_plan(const fovea::Problem& problem, const fovea::Where& where,
                     std::uintptr_t stream) {
  const nb::gil_scoped_release unlocked;
  if (stream != 0) refuse_building_while_captured(problem, where, stream);
  fovea::Plan plan(problem, where);
  const std::size_t bytes = plan.workspace();
  return {problem, std::move(plan), where.device.empty() ? "cpu" : where.device, bytes};
}

std::size_t workspace(const PlanObject& self, const nb::object& sizes) {
  if (sizes.is_none()) return self.workspace_bytes;
  const fovea_sizes given = sizes_of({"sizes", sizes.ptr()});
  std::size_t bytes = 0;
  fovea::check(fovea_plan_workspace(self.plan.get(), &given, &bytes));
  return bytes;
}

constexpr const char* run_doc =
    "Runs the plan; the interpreter's lock is released meanwhile.\n\n"
    "q, k, v, o, grad_o, grad_q, grad_k, grad_v (by position or name): a pointer as an integer, which has the "
    "problem's strides, or (pointer, strides) with strides by batch, head, position, feature in elements.\n"
    "lse ... k_offsets, stream: pointers. tensors: (name, pointer, dtype, extents, strides or None[, gradient "
    "pointer, gradient dtype, gradient strides or None]) each. scalars: (name, value[, device pointer[, gradient "
    "pointer]]) each. tensor_tangents, scalar_tangents: the same, of a tangent. scale, seed, offset, *_offset: values of this call; with _at behind: pointers to them. "
    "sizes: (b, h, hkv, sq, skv, d, dv[, t_q, t_k]). threads: at most so many on the CPU. Without a workspace, "
    "calls on the CPU are lent one.";

}  // namespace

void define_plan(nb::module_& module) {
  nb::class_<PlanObject>(module, "Plan",
                         "A problem made ready to run, from the library's cache or built.")
      .def(
          "__init__",
          [](PlanObject* self, const fovea::Problem& problem,
             const std::optional<std::string>& engine, const std::optional<std::string>& device,
             const std::optional<fovea::Problem>& partner, std::uintptr_t stream) {
            const fovea::Where where{engine.value_or(""), device.value_or(""), partner};
            new (self) PlanObject(make_plan(problem, where, stream));
          },
          "problem"_a, "engine"_a = nb::none(), "device"_a = nb::none(), "partner"_a = nb::none(),
          "stream"_a = 0,
          "stream: where it will run, as an address. While that is captured into a CUDA graph, a plan that is not "
          "built yet is refused.")
      .def_prop_ro("engine", [](const PlanObject& self) { return self.plan.engine(); })
      .def_ro("problem", &PlanObject::problem)
      .def_ro("device", &PlanObject::device)
      .def("workspace", workspace, "sizes"_a = nb::none(),
           "Bytes of workspace, for the problem's sizes or those given.")
      .def("run", run, run_doc)
      .def("__repr__", [](const PlanObject& self) {
        return "Plan(" + self.plan.engine() + ": " + self.problem.line() + ")";
      });
  module.def("parallel_plan", parallel_plan, "problem"_a, "how"_a, "rank"_a.none(), "values"_a,
             "What the ranks of many compute and send, as docs/parallel.md has it.");
}

}  // namespace fovea_python
