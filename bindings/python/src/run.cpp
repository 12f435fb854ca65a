#include "run.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <type_traits>

#include "arguments.h"
#include "workspace.h"

namespace fovea_python {
namespace {

struct RunArguments {
  fovea_bindings bindings{};
  fovea_sizes sizes{};
  fovea_executor executor{};
  CapturedArguments captured;
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
  // Seeds of frameworks are signed or unsigned: the bits count.
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
  if (tensors.size() > positional) throw BadArgument("run() takes 8 tensors by position, no more");
  for (std::size_t i = 0; i < tensors.size(); ++i) set(call, keywords[i], tensors[i].ptr());
  PyObject *name = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; PyDict_Next(values.ptr(), &at, &name, &value) != 0;) {
    set(call, keyword_of(name), value);
  }
}

std::size_t bytes_needed(const PlanObject& plan, const RunArguments& call) {
  if (call.bindings.sizes == nullptr) return plan.workspace_bytes;
  std::size_t bytes = 0;
  fovea::check(fovea_plan_workspace(plan.plan.get(), call.bindings.sizes, &bytes));
  return bytes;
}

}  // namespace

void run(const PlanObject& plan, const nb::args& tensors, const nb::kwargs& values) {
  RunArguments call;
  call.bindings.struct_size = sizeof call.bindings;
  read_arguments(call, tensors, values);
  call.captured.fill(call.bindings);
  const nb::gil_scoped_release unlocked;
  std::optional<Workspace> lent;
  if (call.bindings.workspace == nullptr && plan.on_host()) {
    lent.emplace(bytes_needed(plan, call));
    call.bindings.workspace = lent->data();
    call.bindings.workspace_bytes = lent->size();
  }
  plan.plan.run(call.bindings);
}

std::string parallel_plan(const fovea::Problem& problem, const nb::tuple& how,
                          const nb::object& rank, const nb::kwargs& values) {
  RunArguments call;
  call.bindings.struct_size = sizeof call.bindings;
  read_arguments(call, nb::args(), values);
  call.captured.fill(call.bindings);
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

std::string run_keywords() {
  std::string out;
  for (const Keyword& keyword : keywords)
    out += (out.empty() ? "" : ", ") + std::string(keyword.name);
  return out;
}

}  // namespace fovea_python
