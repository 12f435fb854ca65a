#include "attention/validate.h"

#include <algorithm>

#include "attention/binding_rules.h"
#include "attention/extents.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "ir/topology.h"

namespace fovea {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::F32 || dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F64;
}

template <class Enum>
void check_enumerator(std::string_view name, Enum value, Enum last) {
  if (value <= last) return;
  refuse(name, static_cast<int>(value), "is no such value");
}

void check_enumerators(const Problem& p) {
  check_enumerator("direction", p.direction, Direction::Tangent);
  check_enumerator("layout", p.layout, Layout::Thd);
  check_enumerator("rng", p.rng, Rng::Engine);
  check_enumerator("precision", p.precision, Precision::Strict);
  for (const NamedTensor& tensor : named_tensors()) {
    check_enumerator(std::string(tensor.name) + "_dtype", (p.*tensor.spec).dtype, DType::Bool);
  }
}

bool is_gradient(const NamedTensor& tensor) { return tensor.name[0] == 'd'; }

void check_dtypes(const Problem& p) {
  const std::string own(dtype_name(p.q.dtype));
  for (const NamedTensor& tensor : named_tensors()) {
    if (p.direction == Direction::Forward && is_gradient(tensor)) continue;
    const std::string name = std::string(tensor.name) + "_dtype";
    const DType dtype = (p.*tensor.spec).dtype;
    if (!is_float(dtype)) refuse(name, dtype_name(dtype), "must be f32, bf16, f16 or f64");
    if (!tensor.output && !is_gradient(tensor) && dtype != p.q.dtype) {
      refuse(name, dtype_name(dtype), "q, k and v must have one type; q is " + own);
    }
    if ((dtype == DType::F64) != (p.q.dtype == DType::F64)) {
      refuse(name, dtype_name(dtype), "f64 is for all tensors or none; q is " + own);
    }
  }
}

// Only what this direction writes must not overlap itself.
bool is_written(const Problem& p, const NamedTensor& tensor) {
  return tensor.output && takes_part(p, tensor) &&
         (p.direction != Direction::Forward) == is_gradient(tensor);
}

void check_all_strides(const Problem& p) {
  for (const NamedTensor& tensor : named_tensors()) {
    const TensorSpec& spec = p.*tensor.spec;
    if (!spec.strides) continue;
    const std::string name = std::string(tensor.name) + "_strides";
    check_strides({name, extents_of(p.sizes, p.layout, tensor), *spec.strides,
                   dtype_size(spec.dtype), is_written(p, tensor)},
                  p.layout);
  }
}

// What a formula alone can get wrong was refused when the Program was made.
void check_program(const Problem& p) {
  const ir::Program& program = p.program;
  const bool has_formula = program.mod() || program.mask();
  const auto check_name = [&](const char* kind, const std::string& name) {
    if (!has_formula) refuse(kind, name, "is captured, but there is no mod or mask to use it");
    if (name == "v" || name == "sink") {
      refuse(kind, name, "is what grads calls the problem's own; choose another name");
    }
  };
  for (const ir::TensorDecl& tensor : program.tensors()) check_name("tensor", tensor.name);
  for (const ir::ScalarDecl& scalar : program.scalars()) check_name("scalar", scalar.name);
  check_captured_extents(program, p.sizes, p.h_global);
}

void check_all_coordinates(const Problem& p, const Sizes& sizes) {
  check_coordinates({p.b_offset, p.h_offset, p.q_offset, p.k_offset, p.h_global, p.dropout > 0},
                    sizes);
}

void check_numbers(const Problem& p) {
  if (p.scale) check_scale(*p.scale);
  check_dropout(p.dropout);
  check_all_coordinates(p, p.sizes);
  if (p.has_q_offsets && p.q_offset != 0) {
    refuse("q_offset", p.q_offset, "offsets are bound per sequence (has_q_offsets); must be 0");
  }
  if (p.has_k_offsets && p.k_offset != 0) {
    refuse("k_offset", p.k_offset, "offsets are bound per sequence (has_k_offsets); must be 0");
  }
}

void check_forward(const Problem& p) {
  if (p.grad_lse) refuse("dlse", "1", "is an input of a backward; this is a forward");
  const bool wants = !p.want_q || !p.want_k || !p.want_v || p.want_sink;
  if (wants || !p.want_tensors.empty() || !p.want_scalars.empty()) {
    refuse("grads", "only a backward has gradients to choose; this is a forward");
  }
  for (const NamedTensor& tensor : named_tensors()) {
    if (is_gradient(tensor) && p.*tensor.spec != TensorSpec{}) {
      refuse(tensor.name, "a forward has no gradients: leave its type f32 and its strides absent");
    }
  }
}

template <class Decl, class IsFloat>
void check_wanted(const char* kind, const std::vector<Decl>& declared,
                  const std::vector<bool>& wanted, IsFloat has_gradient) {
  if (wanted.size() != declared.size()) {
    refuse("grads", "has " + std::to_string(wanted.size()) + " flags for " +
                        std::to_string(declared.size()) + " captured " + kind + "s");
  }
  for (std::size_t slot = 0; slot < declared.size(); ++slot) {
    if (!wanted[slot] || has_gradient(declared[slot])) continue;
    refuse("grads", declared[slot].name, std::string("is a ") + kind + " that is not float");
  }
}

void check_backward(const Problem& p) {
#define FOVEA_OUTPUT(name, extent, saved)                                  \
  if (p.name) {                                                            \
    refuse(#name, "1",                                                     \
           saved ? "is an output of a forward; a backward reads it always" \
                 : "is an output of a forward; this is a backward");       \
  }
#include "fovea/fields.def"
  check_wanted("tensor", p.program.tensors(), p.want_tensors, [](const ir::TensorDecl& tensor) {
    return ir::loaded_type(tensor.dtype) == ir::Type::F32;
  });
  check_wanted("scalar", p.program.scalars(), p.want_scalars,
               [](const ir::ScalarDecl& scalar) { return scalar.type == ir::Type::F32; });
  if (p.want_sink && !p.sink) refuse("grads", "sink", "the problem has no sink (sink=1)");
  if (wants_gradients(p)) return;
  if (p.direction == Direction::Backward) {
    refuse("grads", "a backward must want at least one gradient");
  }
  if (p.grad_lse) refuse("dlse", "1", "a tangent that wants no gradients does not read it");
}

}  // namespace

void validate(const Problem& problem) {
  check_enumerators(problem);
  check_sizes(problem.sizes, problem.layout);
  check_numbers(problem);
  check_dtypes(problem);
  check_program(problem);
  check_all_strides(problem);
  switch (problem.direction) {
    case Direction::Forward: return check_forward(problem);
    case Direction::Backward:
    case Direction::Tangent: return check_backward(problem);
  }
}

void validate(const Problem& problem, const Sizes& sizes) {
  check_sizes(sizes, problem.layout);
  check_all_coordinates(problem, sizes);
  check_captured_extents(problem.program, sizes, problem.h_global);
}

CallRules::CallRules(const Problem& problem) : problem_(problem) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    OwnTensor& own = tensors_[i];
    own.takes_part = takes_part(problem, tensor);
    own.written = is_written(problem, tensor);
    own.element_bytes = dtype_size((problem.*tensor.spec).dtype);
    own.strides = strides_of(problem, tensor);
    if (!own.takes_part) continue;
    own.bytes = bytes_of(extents_of(problem.sizes, problem.layout, tensor), own.strides.list(),
                         own.element_bytes);
  }
  find_exact_indices();
}

void CallRules::find_exact_indices() {
  const ir::Program& program = problem_.program;
  if (program.tensors().empty()) return;
  for (const ir::Node* node : ir::operands_first(program.formulas()).nodes) {
    if (ir::info(node->op()).form != ir::Form::Load) continue;
    for (std::uint32_t i = 0; i < node->args().size(); ++i) {
      const ir::Op op = node->arg(i)->op();
      if (op != ir::Op::IndexQ && op != ir::Op::IndexK) continue;
      exact_indices_.push_back({node->slot(), i, op == ir::Op::IndexK});
    }
  }
}

void CallRules::check(const Bindings& bindings, const Plan& plan, bool device_memory) const {
  BindingRules(*this, bindings, device_memory).check(plan);
}

}  // namespace fovea
