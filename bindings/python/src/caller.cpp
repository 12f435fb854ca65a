#include "caller.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>

using namespace nanobind::literals;

namespace fovea_python {
namespace {

struct Role {
  const char* name;
  std::size_t offset;  // of the pointer in fovea_bindings
};
using B = fovea_bindings;
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
  std::vector<fovea_tensor_binding> tensors = captured_.tensors;
  for (fovea_tensor_binding& tensor : tensors) tensor.array.data = *next++;
  for (fovea_tensor_binding& tensor : tensors) {
    if (tensor.gradient.data != nullptr) tensor.gradient.data = *next++;
  }
  bindings.tensors = tensors.data();
  bindings.tensor_count = tensors.size();
  std::vector<fovea_scalar_binding> scalars = captured_.scalars;
  for (std::size_t i = 0; i < scalars.size(); ++i) scalars[i].value = numbers[i];
  bindings.scalars = scalars.data();
  bindings.scalar_count = scalars.size();
  const fovea_executor executor{sizeof(fovea_executor), nullptr, threads, nullptr};
  if (threads > 0) bindings.executor = &executor;
  on_plan_.run(bindings);
}

void define_caller(nb::module_& module) {
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
}

}  // namespace fovea_python
