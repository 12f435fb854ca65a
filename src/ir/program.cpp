#include "ir/program.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "ir/build.h"
#include "ir/topology.h"
#include "ir/verify.h"

namespace fovea::ir {
namespace {

constexpr std::uint32_t unset = ~std::uint32_t{0};

// old slot -> new slot, by first use in the walk of the formulas, then unused ones as declared.
struct Numbering {
  std::vector<std::uint32_t> slots;
  std::uint32_t next = 0;

  explicit Numbering(std::size_t count) : slots(count, unset) {}
  void use(std::uint32_t old) {
    if (slots[old] == unset) slots[old] = next++;
  }
  void finish() {
    for (std::uint32_t old = 0; old < slots.size(); ++old) use(old);
  }
  template <class T>
  std::vector<T> reorder(std::vector<T> items) const {
    std::vector<T> out(items.size());
    for (std::size_t old = 0; old < items.size(); ++old) out[slots[old]] = std::move(items[old]);
    return out;
  }
};

bool same_types(const TensorDecl& a, const TensorDecl& b) {
  return a.dtype == b.dtype && a.extents == b.extents;
}

}  // namespace

Type loaded_type(DType dtype) {
  switch (dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::F64: return Type::F32;
    case DType::I32:
    case DType::I64:
    case DType::U8: return Type::I32;
    case DType::Bool: return Type::Bool;
  }
  throw InternalError("unknown element type");
}

Program::Program(Declarations declarations, Expr mod, Expr mask, Expr bprop) {
  if (mod && mod->type() == Type::I32) mod = to_f32(mod);
  if (bprop && bprop->type() == Type::I32) bprop = to_f32(bprop);
  verify_formulas(mod, mask, bprop);
  Numbering tensors(declarations.tensors.size()), scalars(declarations.scalars.size());
  const Expr roots[] = {mod, mask, bprop};
  for (const Node* node : operands_first(roots).nodes) {
    const Form form = info(node->op()).form;
    if (form == Form::Load) tensors.use(node->slot());
    if (form == Form::Scalar) scalars.use(node->slot());
  }
  tensors.finish();
  scalars.finish();
  declarations_.tensors = tensors.reorder(std::move(declarations.tensors));
  declarations_.scalars = scalars.reorder(std::move(declarations.scalars));
  const auto renumbered = [&](const Expr& e) {
    return e ? renumber(e, tensors.slots, scalars.slots) : e;
  };
  mod_ = renumbered(mod);
  mask_ = renumbered(mask);
  bprop_ = renumbered(bprop);
}

bool Program::operator==(const Program& other) const {
  return mod_ == other.mod_ && mask_ == other.mask_ && bprop_ == other.bprop_ &&
         std::ranges::equal(tensors(), other.tensors(), same_types) &&
         std::ranges::equal(scalars(), other.scalars(), {}, &ScalarDecl::type, &ScalarDecl::type);
}

std::uint64_t Program::hash() const {
  std::uint64_t hash = 0;
  for (const Expr* e : {&mod_, &mask_, &bprop_}) {
    hash = hash_combine(hash, *e ? (*e)->hash() : 0);
  }
  for (const TensorDecl& tensor : tensors()) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(tensor.dtype));
    for (const Extent& extent : tensor.extents) {
      hash = hash_combine(hash, static_cast<std::uint64_t>(extent.kind));
      hash = hash_combine(hash, static_cast<std::uint64_t>(extent.number));
    }
  }
  for (const ScalarDecl& scalar : scalars()) {
    hash = hash_combine(hash, static_cast<std::uint64_t>(scalar.type));
  }
  return hash;
}

}  // namespace fovea::ir
