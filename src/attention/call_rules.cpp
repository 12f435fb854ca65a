// What the rules of a Problem's calls are made of, as far as the Problem alone says it.
#include "attention/binding_rules.h"
#include "attention/extents.h"
#include "attention/rules.h"
#include "attention/validate.h"
#include "ir/topology.h"

namespace fovea {

CallRules::CallRules(const Problem& problem) : problem_(problem) {
  const bool backward = problem.direction == Direction::Backward;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    OwnTensor& own = tensors_[i];
    own.takes_part = takes_part(problem, tensor);
    own.written = tensor.output && (backward ? i > 4 : i == 3);
    own.element_bytes = dtype_size((problem.*tensor.spec).dtype);
    own.strides = strides_of(problem, tensor);
    if (!own.takes_part) continue;
    own.bytes = bytes_of({tensor.name, extents_of(problem.sizes, problem.layout, tensor),
                          own.strides, own.element_bytes, own.written});
  }
  find_exact_indices();
}

void CallRules::find_exact_indices() {
  const ir::Program& program = problem_.program;
  if (program.tensors().empty()) return;
  std::vector<ir::Expr> roots;
  for (const ir::Expr* formula : {&program.mod(), &program.mask(), &program.bprop()}) {
    if (*formula) roots.push_back(*formula);
  }
  for (const ir::Node* node : ir::operands_first(roots).nodes) {
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

void validate(const Problem& problem, const Bindings& bindings, const Plan& plan,
              bool device_memory) {
  CallRules(problem).check(bindings, plan, device_memory);
}

}  // namespace fovea
