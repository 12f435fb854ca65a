#include "ir/eval.h"

#include <algorithm>
#include <limits>

namespace fovea::ir {
namespace {

template <class T>
T element(const TensorView& tensor, std::int64_t at) {
  return static_cast<const T*>(tensor.data)[at];
}

}  // namespace

TensorView TensorView::dense(const void* data, DType dtype, std::span<const std::int64_t> extents) {
  TensorView view{data, dtype, static_cast<int>(extents.size())};
  std::int64_t stride = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    view.extent[i] = extents[i];
    view.stride[i] = stride;
    stride *= extents[i];
  }
  return view;
}

template <class Real>
Cell<Real> read_element(const TensorView& tensor, std::span<const std::int32_t> index) {
  using C = Cell<Real>;
  std::int64_t at = 0;
  bool empty = tensor.data == nullptr;
  for (std::size_t i = 0; i < index.size(); ++i) {
    at += clamp_index(index[i], tensor.extent[i]) * tensor.stride[i];
    empty = empty || tensor.extent[i] <= 0;
  }
  if (empty) return {};
  switch (tensor.dtype) {
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::F64: return C::real(static_cast<Real>(read_number(tensor.data, tensor.dtype, at)));
    case DType::I32: return C::integer(element<std::int32_t>(tensor, at));
    case DType::I64: return C::integer(saturate(element<std::int64_t>(tensor, at)));
    case DType::U8: return C::integer(element<std::uint8_t>(tensor, at));
    case DType::Bool: return C::boolean(element<std::uint8_t>(tensor, at) != 0);
  }
  return {};
}

template Cell<float> read_element<float>(const TensorView&, std::span<const std::int32_t>);
template Cell<double> read_element<double>(const TensorView&, std::span<const std::int32_t>);

template <class Real>
Evaluator<Real>::Evaluator(std::span<const Expr> roots)
    : kept_(roots.begin(), roots.end()), order_(operands_first(roots)) {
  values_.resize(order_.nodes.size());
  for (const Expr& root : roots) roots_.push_back(order_.number.find(root.get()));
  for (const Node* node : order_.nodes) {
    for (const Expr& arg : node->args()) operands_.push_back(order_.number.find(arg.get()));
  }
}

template <class Real>
Cell<Real> Evaluator<Real>::leaf_value(const Node& node, const Point<Real>& p) const {
  using C = Cell<Real>;
  switch (node.op()) {
    case Op::Score: return C::real(p.score);
    case Op::Grad: return C::real(p.grad);
    case Op::ScalarF: return C::real(static_cast<Real>(p.scalars[node.slot()].real()));
    case Op::ScalarI: return C::integer(p.scalars[node.slot()].i);
    case Op::IndexB: return C::integer(p.b);
    case Op::IndexH: return C::integer(p.h);
    case Op::IndexQ: return C::integer(p.q);
    case Op::IndexK: return C::integer(p.k);
    case Op::SizeB: return C::integer(p.B);
    case Op::SizeH: return C::integer(p.H);
    case Op::SizeHkv: return C::integer(p.Hkv);
    case Op::SizeSq: return C::integer(p.Sq);
    case Op::SizeSkv: return C::integer(p.Skv);
    case Op::ConstF: return C::real(static_cast<Real>(node.double_value()));
    case Op::ConstI: return C::integer(node.int_value());
    case Op::ConstB: return C::boolean(node.bool_value());
    default: return {};  // everything else has operands
  }
}

template <class Real>
void Evaluator<Real>::run(const Point<Real>& point, std::span<Cell<Real>> values) const {
  const std::uint32_t* operand = operands_.data();
  for (std::size_t i = 0; i < order_.nodes.size(); ++i) {
    const Node& node = *order_.nodes[i];
    const std::size_t count = node.args().size();
    if (info(node.op()).form == Form::Load) {
      std::array<std::int32_t, limits::rank> index;
      for (std::size_t j = 0; j < count; ++j) index[j] = values[operand[j]].i;
      values[i] = read_element<Real>(point.tensors[node.slot()], {index.data(), count});
    } else if (count == 0) {
      values[i] = leaf_value(node, point);
    } else {
      std::array<Cell<Real>, 3> args;
      for (std::size_t j = 0; j < count; ++j) args[j] = values[operand[j]];
      values[i] = apply<Real>(node.op(), args.data());
    }
    operand += count;
  }
}

template class Evaluator<float>;
template class Evaluator<double>;

}  // namespace fovea::ir
