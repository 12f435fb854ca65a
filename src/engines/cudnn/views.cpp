#include "engines/cudnn/views.h"

#include <algorithm>

#include "attention/extents.h"
#include "ir/eval.h"
#include "ir/topology.h"

namespace fovea::cudnn {

using ir::Expr;
using ir::Op;

namespace {

// The largest power of two, up to 16, that divides the bytes from one row, head or sequence to the
// next. cuDNN loads so many bytes of a row at once.
std::int64_t alignment_of(const GraphTensor& tensor, std::size_t first_axis, std::int64_t bytes) {
  if (tensor.dim[3] == 1 || tensor.dim[2] == 1 || tensor.stride[2] == 0) return bytes;
  std::int64_t all = 16;
  for (std::size_t axis = first_axis; axis < 4; ++axis) {
    if (tensor.dim[axis] != 1 && tensor.stride[axis] > 1) all |= tensor.stride[axis] * bytes;
  }
  return all & -all;
}

// Whether it has one of the layouts that cuDNN was seen to read right. Rows of keys are loaded in
// whole words, so heads and sequences must begin on a word.
bool lies_well(const GraphTensor& tensor, std::int64_t bytes, bool dense, bool backward) {
  const bool rows = tensor.dim[2] != 1 && tensor.stride[2] != 0, keys = tensor.dim[3] != 1;
  if (rows && keys) {
    const bool columns = dense && bytes == 4 && tensor.stride[2] == 1;
    return (tensor.stride[3] == 1 || columns) &&
           alignment_of(tensor, 0, bytes) == alignment_of(tensor, 2, bytes);
  }
  if (keys) return true;
  if (rows) return tensor.stride[2] == 1 || !backward;
  if (tensor.dim[1] != 1) return tensor.stride[1] == 1;  // 9.19 reads it as if the stride were 1
  return tensor.dim[0] == 1 || tensor.stride[0] == 1 || !backward;
}

// cuDNN checks strides of axes with one element, too.
void set_idle_strides(GraphTensor& tensor) {
  std::int64_t span = 1;
  for (std::size_t axis = 4; axis-- > 0;) {
    if (tensor.dim[axis] == 1) tensor.stride[axis] = span;
    span = std::max(span, tensor.dim[axis] * tensor.stride[axis]);
  }
}

}  // namespace

// A graph gets the address of the first element, so the host must know the position.
void CapturedViews::refuse_moved_on_device(const std::string& tensor, char position) {
  const std::string offset = std::string(1, position) + "_offset";
  refuse("captured_at_device_offset",
         "engine cudnn adds " + offset + " to the address of what a formula loads by " + position +
             ", on the host",
         "captured tensor " + tensor + " of a problem with values=device and " + offset,
         "bind values from the host (no values=device), or bind the part of the tensor that " +
             offset + " leads to and make " + offset + " part of the formula as a scalar");
}

bool CapturedViews::view_of(const Expr& load, View& view, GraphTensor& tensor) {
  const ir::TensorDecl& decl = problem_.program.tensors()[load->slot()];
  const std::vector<std::int64_t> extents =
      captured_extents(decl, problem_.sizes, problem_.h_global);
  const std::vector<std::int64_t> stride = tensor_strides(problem_, load->slot());
  const Sizes& s = problem_.sizes;
  const Dims length{batch_, s.h, s.sq, s.skv};
  const std::array<Op, 4> leaves{Op::IndexB, Op::IndexH, Op::IndexQ, Op::IndexK};
  view.slot = load->slot();
  view.stride = stride;
  tensor.dim = {1, 1, 1, 1};
  tensor.stride = {1, 1, 1, 1};
  const std::array<bool, 4> moved{false, problem_.h_offset != 0, problem_.q_offset != 0,
                                  problem_.k_offset != 0};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const Expr& at = load->arg(i);
    const auto leaf = std::ranges::find(leaves, at->op());
    const auto axis = static_cast<std::size_t>(leaf - leaves.begin());
    if (at->op() == Op::ConstI && at->int_value() >= 0 && at->int_value() < extents[i]) {
      view.axis.push_back(-1);
      view.constant.push_back(at->int_value());
      view.length.push_back(1);
      view.partial |= extents[i] != 1;
      continue;
    }
    if (leaf == leaves.end() || tensor.dim[axis] != 1 || extents[i] < length[axis]) return false;
    if ((axis == 2 && problem_.has_q_offsets) || (axis == 3 && problem_.has_k_offsets))
      return false;
    if (problem_.device_values && moved[axis]) refuse_moved_on_device(decl.name, "bhqk"[axis]);
    tensor.dim[axis] = stride[i] == 0 ? 1 : length[axis];  // repeated: it broadcasts
    tensor.stride[axis] = stride[i];
    view.axis.push_back(static_cast<int>(axis));
    view.constant.push_back(0);
    view.length.push_back(length[axis]);
    view.partial |= extents[i] != length[axis];
  }
  spread_over_rows(tensor);
  set_idle_strides(tensor);
  view.alignment = alignment_of(tensor, 0, dtype_size(decl.dtype));
  const bool dense =
      problem_.tensor_strides.empty() || problem_.tensor_strides[load->slot()].empty();
  if (avoid_.scattered_rows && !lies_well(tensor, dtype_size(decl.dtype), dense, spec_.backward)) {
    refuse("captured_strides",
           "cuDNN reads captured tensors right where what one load walks over lies next to each "
           "other",
           "captured tensor " + decl.name + ", in which it does not",
           "make a contiguous tensor of what the formula loads, its indices in the order b, h, q, "
           "k");
  }
  return true;
}

Ref CapturedViews::load(const Expr& e) {
  if (const auto known = loads_.find(e.get()); known != loads_.end()) return known->second;
  const ir::TensorDecl& decl = problem_.program.tensors()[e->slot()];
  View view;
  GraphTensor tensor;
  tensor.role = TensorRole::Captured;
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
  for (const GraphTensor& other : spec_.tensors) {
    if (other.role == TensorRole::Captured && other.slot == e->slot()) tensor.view = other.view + 1;
  }
  tensor.type = decl.dtype == DType::F16    ? Type::F16
                : decl.dtype == DType::BF16 ? Type::BF16
                : decl.dtype == DType::I32  ? Type::I32
                                            : Type::F32;
  lowered_.views.push_back(view);
  const Ref ref = GraphSteps::tensor(tensor);
  loads_.emplace(e.get(), ref);
  kept_.push_back(e);
  return ref;
}

Ref CapturedViews::table(const Expr& e) {
  if (const auto known = tables_.find(e.get()); known != tables_.end()) return known->second;
  HeadTable table;
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
  GraphTensor tensor;
  tensor.role = TensorRole::Table;
  tensor.slot = static_cast<std::uint32_t>(lowered_.tables.size());
  tensor.dim = {1, problem_.sizes.h, 1, 1};
  tensor.stride = {problem_.sizes.h, 1, 1, 1};
  lowered_.tables.push_back(std::move(table));
  const Ref ref = GraphSteps::tensor(tensor);
  tables_.emplace(e.get(), ref);
  kept_.push_back(e);
  return ref;
}

bool CapturedViews::add_bias(const Expr& load) {
  View view;
  GraphTensor tensor;
  // Gradients of narrower ones are sums that cuDNN was not seen to get right.
  if (!view_of(load, view, tensor) || tensor.stride[2] == 0) return false;
  if (std::ranges::find(view.stride, 0) != view.stride.end()) return false;  // elements overlap
  if (tensor.dim[2] != problem_.sizes.sq || tensor.dim[3] != problem_.sizes.skv) return false;
  const std::vector<std::int64_t> extents =
      captured_extents(problem_.program.tensors()[load->slot()], problem_.sizes, problem_.h_global);
  for (std::size_t i = 0; i < extents.size(); ++i) {  // cuDNN has no plan for rows of a larger one
    if (view.axis[i] >= 2 && extents[i] != view.length[i]) return false;
  }
  const DType dtype = problem_.program.tensors()[load->slot()].dtype;
  if (dtype != problem_.q.dtype) {
    refuse("bias_gradient_type", "cuDNN gives the gradient of a bias in the type of q",
           "a gradient of type " + std::string(dtype_name(dtype)),
           "make the captured tensor " + std::string(dtype_name(problem_.q.dtype)));
  }
  tensor.slot = load->slot();
  tensor.type = spec_.io;
  tensor.role = TensorRole::Bias;
  spec_.tensors.push_back(tensor);
  lowered_.views.push_back(view);
  // Its gradient is dense, however the tensor lies.
  tensor.role = TensorRole::GradBias;
  view.stride = dense_tensor_strides(extents);
  for (std::size_t i = 0; i < view.axis.size(); ++i) {
    if (view.axis[i] < 0) continue;
    const auto axis = static_cast<std::size_t>(view.axis[i]);
    if (tensor.dim[axis] != 1) tensor.stride[axis] = view.stride[i];
  }
  set_idle_strides(tensor);
  view.alignment = alignment_of(tensor, 0, dtype_size(dtype));
  spec_.tensors.push_back(tensor);
  lowered_.views.push_back(view);
  return true;
}

int CapturedViews::count_loads(const ir::Program& program, std::uint32_t slot) {
  int count = 0;
  for (const ir::Node* node : ir::operands_first(program.formulas()).nodes) {
    count += info(node->op()).form == ir::Form::Load && node->slot() == slot ? 1 : 0;
  }
  return count;
}

}  // namespace fovea::cudnn
