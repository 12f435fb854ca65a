#include "ir/program.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "ir/build.h"
#include "ir/numbering.h"
#include "ir/verify.h"

namespace fovea::ir {
namespace {

bool same_type(const TensorDecl& a, const TensorDecl& b) {
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
  const Expr roots[] = {mod, mask, bprop};
  const Slots slots = canonical_slots(roots, declarations);
  declarations_.tensors = reordered(declarations.tensors, slots.tensors);
  declarations_.scalars = reordered(declarations.scalars, slots.scalars);
  const auto renumbered = [&](const Expr& e) {
    return e ? renumber(e, slots.tensors, slots.scalars) : e;
  };
  mod_ = renumbered(mod);
  mask_ = renumbered(mask);
  bprop_ = renumbered(bprop);
}

Program Program::with_slots(Declarations declarations, Expr mod, Expr mask, Expr bprop) {
  verify_formulas(mod, mask, bprop);
  Program program;
  program.declarations_ = std::move(declarations);
  program.mod_ = std::move(mod);
  program.mask_ = std::move(mask);
  program.bprop_ = std::move(bprop);
  return program;
}

bool Program::operator==(const Program& other) const {
  return mod_ == other.mod_ && mask_ == other.mask_ && bprop_ == other.bprop_ &&
         std::ranges::equal(tensors(), other.tensors(), same_type) &&
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
