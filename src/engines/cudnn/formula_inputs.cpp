// What formulas read beside the score: captured tensors, tables over heads, one number per
// sequence.
#include <algorithm>

#include "attention/extents.h"
#include "attention/tensor_strides.h"
#include "engines/cudnn/formula.h"
#include "ir/eval.h"
#include "ir/topology.h"

namespace fovea::cudnn {

using ir::Expr;
using ir::Op;

int FormulaLowering::count_loads(const ir::Program& program, std::uint32_t slot) {
  std::vector<Expr> roots;
  for (const Expr& root : {program.mod(), program.mask(), program.bprop()}) {
    if (root) roots.push_back(root);
  }
  int count = 0;
  for (const ir::Node* node : ir::operands_first(roots).nodes) {
    count += info(node->op()).form == ir::Form::Load && node->slot() == slot ? 1 : 0;
  }
  return count;
}

// Tensors of one element per sequence, and in a backward of one per key, along the rows (stride 0).
void FormulaLowering::spread_over_rows(Tensor& tensor) const {
  const bool per_sequence = tensor.dim[0] > 1 && tensor.dim[3] == 1;
  const bool per_key = spec_.backward && tensor.dim[3] > 1;
  if (!avoid_.narrow_inputs || tensor.dim[2] != 1 || !(per_sequence || per_key)) return;
  tensor.dim[2] = problem_.sizes.sq;
  tensor.stride[2] = 0;
}

// A tensor of one i32 per sequence.
Ref FormulaLowering::per_sequence(Role role) {
  for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
    if (spec_.tensors[i].role == role && spec_.tensors[i].view == 1) {
      return {Ref::Kind::Tensor, static_cast<std::uint32_t>(i)};
    }
  }
  Tensor tensor;
  tensor.role = role;
  tensor.view = 1;  // view 0 is an option's
  tensor.type = Type::I32;
  tensor.dim = {batch_, 1, 1, 1};
  spread_over_rows(tensor);
  spec_.tensors.push_back(tensor);
  return {Ref::Kind::Tensor, static_cast<std::uint32_t>(spec_.tensors.size() - 1)};
}

Ref FormulaLowering::load(const Expr& e) {
  if (const auto known = loads_.find(e.get()); known != loads_.end()) return known->second;
  const ir::TensorDecl& decl = problem_.program.tensors()[e->slot()];
  View view;
  Tensor tensor;
  tensor.role = Role::Captured;
  tensor.slot = e->slot();
  if (decl.dtype == DType::U8 || decl.dtype == DType::Bool || decl.dtype == DType::I64 ||
      decl.dtype == DType::F64) {
    refuse("captured_type",
           "cuDNN's fused attention reads captured tensors of f32, f16, bf16 or i32",
           "captured tensor " + decl.name + " of type " + std::string(dtype_name(decl.dtype)),
           "use engine jit, or convert it");
  } else if (std::ranges::any_of(tensor_strides(problem_, e->slot()),
                                 [](std::int64_t stride) { return stride < 0; })) {
    refuse("captured_strides", "cuDNN takes no negative strides",
           "captured tensor " + decl.name + " with one", "make it contiguous");
  } else if (!view_of(e, view, tensor)) {
    refuse("gather",
           "engine cudnn loads captured tensors at b, h, q and k themselves, each at most once",
           "an index computed otherwise, in a load of " + decl.name,
           "use engine jit, or expand the tensor");
  }
  for (const Tensor& other : spec_.tensors) {
    if (other.role == Role::Captured && other.slot == e->slot()) tensor.view = other.view + 1;
  }
  tensor.type = decl.dtype == DType::F16    ? Type::F16
                : decl.dtype == DType::BF16 ? Type::BF16
                : decl.dtype == DType::I32  ? Type::I32
                                            : Type::F32;
  spec_.tensors.push_back(tensor);
  lowered_.views.push_back(view);
  const Ref ref{Ref::Kind::Tensor, static_cast<std::uint32_t>(spec_.tensors.size() - 1)};
  loads_.emplace(e.get(), ref);
  kept_.push_back(e);
  return ref;
}

Ref FormulaLowering::table(const Expr& e) {
  if (const auto known = tables_.find(e.get()); known != tables_.end()) return known->second;
  Table table;
  ir::Evaluator<double> evaluate(e);
  ir::Point<double> point;
  point.B = static_cast<std::int32_t>(problem_.sizes.b);
  point.H = static_cast<std::int32_t>(heads_seen(problem_.sizes, problem_.h_global));
  point.Hkv = static_cast<std::int32_t>(problem_.sizes.hkv);
  for (std::int32_t h = 0; h < problem_.sizes.h; ++h) {
    point.h = h;
    evaluate(point);
    const ir::Cell<double>& at_h = evaluate.value();
    table.values.push_back(decisions_.depend_on(*e) ? at_h.exact : static_cast<float>(at_h.f));
  }
  Tensor tensor;
  tensor.role = Role::Table;
  tensor.slot = static_cast<std::uint32_t>(lowered_.tables.size());
  tensor.dim = {1, problem_.sizes.h, 1, 1};
  tensor.stride = {problem_.sizes.h, 1, 1, 1};
  spec_.tensors.push_back(tensor);
  lowered_.tables.push_back(std::move(table));
  const Ref ref{Ref::Kind::Tensor, static_cast<std::uint32_t>(spec_.tensors.size() - 1)};
  tables_.emplace(e.get(), ref);
  kept_.push_back(e);
  return ref;
}

}  // namespace fovea::cudnn
