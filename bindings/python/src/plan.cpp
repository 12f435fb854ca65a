#include "plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <type_traits>

#include "workspace.h"

using namespace nanobind::literals;

namespace fovea_python {
namespace {

// --- making ---

// Asks for the workspace of a call on that stream, which makes the plan as the call would: while
// the stream is captured, a plan that is not built yet is refused before anything is enqueued.
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

// --- the keywords of Plan.run, as fields of fovea_bindings ---

struct RunArguments {
  fovea_bindings bindings{};
  fovea_sizes sizes{};
  fovea_executor executor{};
  CapturedArguments captured, tangents;
};

// One keyword. The setters are templates over the field they fill, so that the table below is all
// there is to read.
struct Keyword {
  const char* name;
  void (*set)(RunArguments& call, const Given& given);
};

template <auto field>
void set_tensor(RunArguments& call, const Given& given) {
  call.bindings.*field = tensor_of(given);
}
template <auto field>
void set_pointer(RunArguments& call, const Given& given) {
  auto& into = call.bindings.*field;
  into = static_cast<std::remove_reference_t<decltype(into)>>(pointer_of(given));
}
template <auto field>
void set_device(RunArguments& call, const Given& given) {
  auto& into = (call.bindings.*field).device;
  into = static_cast<std::remove_reference_t<decltype(into)>>(pointer_of(given));
}
void read_value(fovea_i32_value& into, const Given& given) {
  const std::int64_t value = integer_of(given);
  if (value != static_cast<std::int32_t>(value)) {
    throw BadArgument(std::string(given.name) + " is " + std::to_string(value) +
                      "; it must fit 32 bits");
  }
  into.value = static_cast<std::int32_t>(value);
  into.is_set = 1;
}
void read_value(fovea_u64_value& into, const Given& given) {
  // Frameworks have signed and unsigned seeds: the bits are taken as they are.
  const unsigned long long value = PyLong_AsUnsignedLongLongMask(given.value);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw BadArgument(std::string(given.name) + " must be an integer");
  }
  into.value = value;
}
template <auto field>
void set_value(RunArguments& call, const Given& given) {
  read_value(call.bindings.*field, given);
}
template <>
void set_value<&fovea_bindings::scale>(RunArguments& call, const Given& given) {
  call.bindings.scale_f64 = number_of(given);  // f64 tensors take it as it is
  call.bindings.scale = {static_cast<float>(call.bindings.scale_f64), 1, nullptr};
}
void set_sizes(RunArguments& call, const Given& given) {
  call.sizes = sizes_of(given);
  call.bindings.sizes = &call.sizes;
}
void set_threads(RunArguments& call, const Given& given) {
  const std::int64_t count = integer_of(given);
  if (count == 0) return;
  if (count < 0 || count > 1 << 16) {
    throw BadArgument("threads is " + std::to_string(count) +
                      "; it must be 1 or more (0: Fovea's default)");
  }
  call.executor = {sizeof(fovea_executor), nullptr, static_cast<std::int32_t>(count), nullptr};
  call.bindings.executor = &call.executor;
}
void set_workspace_bytes(RunArguments& call, const Given& given) {
  call.bindings.workspace_bytes = static_cast<std::size_t>(integer_of(given));
}

// Those that may be given by position stand first, in order.
using B = fovea_bindings;
constexpr Keyword keywords[] = {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) {#field, set_tensor<&B::field>},
#define FOVEA_POINTER(type, name, extent, needed, written) {#name, set_pointer<&B::name>},
#define FOVEA_VALUE(type, name) {#name, set_value<&B::name>}, {#name "_at", set_device<&B::name>},
#include "fovea/fields.def"
    {"tensors", [](RunArguments& call, const Given& given) { call.captured.set_tensors(given); }},
    {"scalars", [](RunArguments& call, const Given& given) { call.captured.set_scalars(given); }},
    {"tensor_tangents",
     [](RunArguments& call, const Given& given) { call.tangents.set_tensors(given); }},
    {"scalar_tangents",
     [](RunArguments& call, const Given& given) { call.tangents.set_scalars(given); }},
    {"sizes", set_sizes},
    {"workspace", set_pointer<&B::workspace>},
    {"workspace_bytes", set_workspace_bytes},
    {"stream", set_pointer<&B::stream>},
    {"threads", set_threads},
};
constexpr std::size_t positional = 8;

// Interned once: a keyword in the caller's code is then found by its address.
PyObject* interned(std::size_t i) {
  static PyObject* names[std::size(keywords)];
  if (names[i] == nullptr) names[i] = PyUnicode_InternFromString(keywords[i].name);
  return names[i];
}

std::string run_keywords() {
  std::string out;
  for (const Keyword& keyword : keywords)
    out += (out.empty() ? "" : ", ") + std::string(keyword.name);
  return out;
}

const Keyword& keyword_of(PyObject* name) {
  for (std::size_t i = 0; i < std::size(keywords); ++i) {
    if (interned(i) == name) return keywords[i];
  }
  for (const Keyword& keyword : keywords) {
    if (PyUnicode_CompareWithASCIIString(name, keyword.name) == 0) return keyword;
  }
  throw BadArgument(std::string("run() has no '") + text_of({"a keyword", name}) +
                    "'; there are: " + run_keywords());
}

void set(RunArguments& call, const Keyword& keyword, PyObject* value) {
  if (value != Py_None) keyword.set(call, {keyword.name, value});
}

void read_arguments(RunArguments& call, const nb::args& tensors, const nb::kwargs& values) {
  call.bindings.struct_size = sizeof call.bindings;
  if (tensors.size() > positional) throw BadArgument("run() takes 8 tensors by position, no more");
  for (std::size_t i = 0; i < tensors.size(); ++i) set(call, keywords[i], tensors[i].ptr());
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(values.ptr(), &at, &name, &value) != 0;) {
    set(call, keyword_of(name), value);
  }
  call.captured.fill(call.bindings);
  call.tangents.fill_tangents(call.bindings);
}

void run(const PlanObject& plan, const nb::args& tensors, const nb::kwargs& values) {
  RunArguments call;
  read_arguments(call, tensors, values);
  plan.run(call.bindings);
}

// The steps of one rank of many as JSON, or without one the table for people. `how` is (ranks,
// strategy, order, head_ranks); `values` are keywords of run(): starts, lengths and captured things
// in host memory.
std::string parallel_plan(const fovea::Problem& problem, const nb::tuple& how,
                          const nb::object& rank, const nb::kwargs& values) {
  RunArguments call;
  read_arguments(call, nb::args(), values);
  const bool table = rank.is_none();
  if (how.size() != 4) throw BadArgument("how must be (ranks, strategy, order, head_ranks)");
  const auto strategy = nb::cast<std::string>(how[1]), order = nb::cast<std::string>(how[2]);
  const fovea_parallel_config config{
      sizeof config,    nb::cast<int>(how[0]), table ? 0 : nb::cast<int>(rank),
      strategy.c_str(), order.c_str(),         nb::cast<int>(how[3])};
  const nb::gil_scoped_release unlocked;
  return fovea::report_of(fovea_parallel_plan, problem.get(), &config, &call.bindings,
                          table ? 0U : std::uint32_t{FOVEA_EXPLAIN_JSON});
}

constexpr const char* run_doc =
    "Runs the plan; the interpreter's lock is released meanwhile.\n\n"
    "q, k, v, o, grad_o, grad_q, grad_k, grad_v (by position or name): a pointer as an integer, which has the "
    "problem's strides, or (pointer, strides) with strides by batch, head, position, feature in elements.\n"
    "lse ... k_offsets, stream: pointers. tensors: (name, pointer, dtype, extents, strides or None[, gradient "
    "pointer, gradient dtype, gradient strides or None]) each. scalars: (name, value[, device pointer[, gradient "
    "pointer]]) each. tensor_tangents, scalar_tangents: the same, of a tangent. scale, seed, offset, *_offset: values "
    "of this call; with _at behind: pointers to them. "
    "sizes: (b, h, hkv, sq, skv, d, dv[, t_q, t_k]). threads: at most so many on the CPU. Without a workspace, "
    "calls on the CPU are lent one.";

// --- Caller: pointers in an order that was given once ---

struct Role {
  const char* name;
  std::size_t offset;  // of the pointer in fovea_bindings
};
constexpr Role roles[] = {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) {#field, offsetof(B, field.data)},
#define FOVEA_POINTER(type, name, extent, needed, written) {#name, offsetof(B, name)},
#define FOVEA_VALUE(type, name) {#name "_at", offsetof(B, name.device)},
#include "fovea/fields.def"
};

std::size_t offset_of(const std::string& name) {
  for (const Role& role : roles) {
    if (name == role.name) return role.offset;
  }
  throw BadArgument("roles has '" + name + "', which is no pointer of a call");
}

void run_by_python(const Caller& caller, const nb::tuple& given, std::uintptr_t stream,
                   std::int32_t threads, const nb::tuple& workspace, double scale,
                   const std::vector<double>& numbers) {
  std::vector<void*> pointers(given.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    pointers[i] =
        pointer_of({"pointers", PyTuple_GET_ITEM(given.ptr(), static_cast<Py_ssize_t>(i))});
  }
  fovea_bindings bindings = bindings_of(scale);
  bindings.stream = reinterpret_cast<void*>(stream);
  if (workspace.size() == 2) {
    bindings.workspace = pointer_of({"workspace", workspace[0].ptr()});
    bindings.workspace_bytes =
        static_cast<std::size_t>(integer_of({"workspace", workspace[1].ptr()}));
  }
  caller.run(pointers, numbers, bindings, threads);
}

}  // namespace

void PlanObject::run(fovea_bindings& bindings) const {
  const nb::gil_scoped_release unlocked;
  std::optional<fovea_host::Workspace> lent;
  if (bindings.workspace == nullptr && device == "cpu") {
    std::size_t bytes = workspace_bytes;
    if (bindings.sizes != nullptr) {
      fovea::check(fovea_plan_workspace(plan.get(), bindings.sizes, &bytes));
    }
    lent.emplace(bytes);
    bindings.workspace = lent->data();
    bindings.workspace_bytes = lent->size();
  }
  plan.run(bindings);
}

fovea_bindings bindings_of(double scale) {
  fovea_bindings bindings{};
  bindings.struct_size = sizeof bindings;
  if (std::isfinite(scale)) {
    bindings.scale = {static_cast<float>(scale), 1, nullptr};
    bindings.scale_f64 = scale;
  }
  return bindings;
}

Caller::Caller(nb::object plan, const std::vector<std::string>& names, const nb::object& captured,
               const nb::object& scalars)
    : plan_(std::move(plan)), on_plan_(nb::cast<const PlanObject&>(plan_)) {
  for (const std::string& name : names) offsets_.push_back(offset_of(name));
  captured_.set_tensors({"captured", captured.ptr()});
  captured_.set_scalars({"scalars", scalars.ptr()});
  for (const fovea_tensor_binding& tensor : captured_.tensors) {
    if (tensor.gradient.data != nullptr) ++gradients_;
  }
}

void Caller::run(std::span<void* const> pointers, std::span<const double> numbers,
                 fovea_bindings bindings, std::int32_t threads) const {
  const std::size_t count = offsets_.size() + captured_.tensors.size() + gradients_;
  if (pointers.size() != count || numbers.size() != captured_.scalars.size()) {
    throw BadArgument("pointers has " + std::to_string(pointers.size()) + ", numbers " +
                      std::to_string(numbers.size()) + "; the template has " +
                      std::to_string(count) + " and " + std::to_string(captured_.scalars.size()));
  }
  auto next = pointers.begin();
  for (const std::size_t offset : offsets_) {
    std::memcpy(reinterpret_cast<std::byte*>(&bindings) + offset, &*next++, sizeof(void*));
  }
  CapturedArguments captured = captured_;
  for (fovea_tensor_binding& tensor : captured.tensors) tensor.array.data = *next++;
  for (fovea_tensor_binding& tensor : captured.tensors) {
    if (tensor.gradient.data != nullptr) tensor.gradient.data = *next++;
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) captured.scalars[i].value = numbers[i];
  captured.fill(bindings);
  const fovea_executor executor{sizeof(fovea_executor), nullptr, threads, nullptr};
  if (threads > 0) bindings.executor = &executor;
  on_plan_.run(bindings);
}

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
  nb::class_<Caller>(module, "Caller", "A plan with a template of its call.")
      .def(
          nb::init<nb::object, const std::vector<std::string>&, const nb::object&,
                   const nb::object&>(),
          "plan"_a, "roles"_a, "captured"_a, "scalars"_a,
          "roles: the pointers that each call brings, by their names in Plan.run, in order. captured: as "
          "Plan.run's tensors; a gradient pointer other than 0 says that there is one. scalars: as Plan.run's; a "
          "call brings their values.")
      .def(
          "run", run_by_python, "pointers"_a, "stream"_a, "threads"_a, "workspace"_a, "scale"_a,
          "numbers"_a,
          "Runs the plan. pointers: those of roles, then of what is captured, then of gradients of that. "
          "workspace: (pointer, bytes), or () for a plan on the host, which is lent one. scale inf: the problem's. "
          "numbers: the values of scalars.");
  module.def("parallel_plan", parallel_plan, "problem"_a, "how"_a, "rank"_a.none(), "values"_a,
             "What the ranks of many compute and send, as docs/parallel.md has it.");
}

}  // namespace fovea_python
