#include "engines/cudnn/steps.h"

#include <algorithm>
#include <vector>

#include "attention/extents.h"
#include "base/error.h"
#include "ir/eval.h"
#include "ir/tape.h"
#include "ir/topology.h"

namespace fovea::cudnn {

using ir::Expr;
using ir::Op;

namespace {

constexpr std::size_t most_steps = 160;  // beyond, cuDNN takes minutes or gives up

ir::IntInterval positions(std::int64_t count, bool moved) {
  if (moved) return {};
  return {0, std::max<std::int64_t>(count - 1, 0)};
}

// The same with its operands exchanged.
std::optional<Mode> mirrored(Mode mode) {
  switch (mode) {
    case Mode::Add:
    case Mode::Mul:
    case Mode::Min:
    case Mode::Max:
    case Mode::Equal:
    case Mode::NotEqual: return mode;
    case Mode::Less: return Mode::Greater;
    case Mode::LessEqual: return Mode::GreaterEqual;
    case Mode::Greater: return Mode::Less;
    case Mode::GreaterEqual: return Mode::LessEqual;
    default: return std::nullopt;
  }
}

}  // namespace

GraphSteps::GraphSteps(const Problem& problem, std::int64_t batch, const Workarounds& avoid,
                       Lowered& lowered)
    : problem_(problem),
      batch_(batch),
      avoid_(avoid),
      lowered_(lowered),
      spec_(lowered.spec),
      decisions_(problem.program) {
  const Sizes& s = problem.sizes;
  box_.b = positions(s.b, problem.b_offset != 0);
  box_.h = positions(s.h, problem.h_offset != 0);
  box_.q = positions(s.sq, problem.q_offset != 0 || problem.has_q_offsets);
  box_.k = positions(s.skv, problem.k_offset != 0 || problem.has_k_offsets);
  box_.B = ir::IntInterval::of(s.b);
  box_.H = ir::IntInterval::of(heads_seen(s, problem.h_global));
  box_.Hkv = ir::IntInterval::of(s.hkv);
  box_.Sq = spec_.padding ? ir::IntInterval{0, s.sq} : ir::IntInterval::of(s.sq);
  box_.Skv = spec_.padding ? ir::IntInterval{0, s.skv} : ir::IntInterval::of(s.skv);
}

void GraphSteps::refuse(const char* code, const std::string& limit, const std::string& got,
                        const std::string& advice) {
  for (const Reason& known : lowered_.reasons) {
    if (known.code == code) return;
  }
  lowered_.reasons.push_back({code, limit, got, advice});
}

Ref GraphSteps::step(Mode mode, std::initializer_list<Ref> given, Type type) {
  std::vector<Ref> operands(given);
  if (mode == Mode::Select) {
    operands[1] = full(operands[1]);
  } else if (!operands.empty() && !is_full(operands[0])) {
    if (operands.size() == 2 && is_full(operands[1]) && mirrored(mode)) {
      mode = *mirrored(mode);
      std::swap(operands[0], operands[1]);
    } else if (operands.size() == 2 && is_full(operands[1]) && mode == Mode::Sub) {
      operands = {step(Mode::Neg, {operands[1]}, type), operands[0]};
      mode = Mode::Add;
    } else if (operands.size() == 2 && is_full(operands[1]) && mode == Mode::Div) {
      operands = {step(Mode::Reciprocal, {operands[1]}), operands[0]};
      mode = Mode::Mul;
    } else {
      operands[0] = full(operands[0]);
    }
  }
  if (spec_.steps.size() >= most_steps) {
    refuse("formula_too_long",
           "engine cudnn lowers at most " + std::to_string(most_steps) + " operations",
           "a longer formula", "use engine jit");
    return {Ref::Kind::Score, 0};
  }
  GraphStep made;
  made.mode = mode;
  made.type = type;
  for (const Ref& operand : operands) {
    made.operands[static_cast<std::size_t>(made.operand_count++)] = operand;
  }
  spec_.steps.push_back(made);
  return {Ref::Kind::Step, static_cast<std::uint32_t>(spec_.steps.size() - 1)};
}

Ref GraphSteps::full(Ref ref, bool as_real) {
  if (is_full(ref)) return ref;
  const bool whole_number = type_of(ref) == Type::I32 && !as_real;
  std::optional<Ref>& zero = whole_number ? whole_zero_ : zero_;
  if (!zero) {
    const Ref q = index(2);
    zero = step(Mode::Sub, {q, q}, whole_number ? Type::I32 : Type::F32);
  }
  return step(Mode::Add, {*zero, ref}, whole_number ? Type::I32 : Type::F32);
}

// Whether it is the same for all scores.
bool GraphSteps::is_uniform(const Expr& e) const {
  using ir::Depends;
  constexpr Depends changing = Depends::B | Depends::H | Depends::Q | Depends::K | Depends::Score |
                               Depends::Grad | Depends::Load;
  if (any(e->depends(), changing)) return false;
  if (problem_.device_values && any(e->depends(), Depends::Scalar)) return false;
  if (!spec_.padding) return true;
  for (const ir::Node* node : ir::operands_first({&e, 1}).nodes) {
    if (node->op() == Op::SizeSq || node->op() == Op::SizeSkv) return false;
  }
  return true;
}

Ref GraphSteps::uniform(const Expr& e) {
  if (const auto known = uniforms_.find(e.get()); known != uniforms_.end()) return known->second;
  const auto slot = static_cast<std::uint32_t>(lowered_.uniforms.size());
  lowered_.uniforms.push_back({e, decisions_.depend_on(*e)});
  const Ref ref =
      per_call(TensorRole::Uniform, slot, e->type() == ir::Type::I32 ? Type::I32 : Type::F32);
  uniforms_.emplace(e.get(), ref);
  return ref;
}

Ref GraphSteps::number(float value) {
  spec_.constants.push_back({Type::F32, value, 0});
  return {Ref::Kind::Constant, static_cast<std::uint32_t>(spec_.constants.size() - 1)};
}

Ref GraphSteps::whole(std::int32_t value) {
  spec_.constants.push_back({Type::I32, 0, value});
  return {Ref::Kind::Constant, static_cast<std::uint32_t>(spec_.constants.size() - 1)};
}

Type GraphSteps::type_of(const Ref& ref) const {
  switch (ref.kind) {
    case Ref::Kind::Score:
    case Ref::Kind::Grad: return Type::F32;
    case Ref::Kind::Tensor: return spec_.tensors[ref.index].type;
    case Ref::Kind::Constant: return spec_.constants[ref.index].type;
    case Ref::Kind::Step: return spec_.steps[ref.index].type;
  }
  throw InternalError("an operand of no kind");
}

Ref GraphSteps::as_float(Ref ref) {
  const Type type = type_of(ref);
  if (type == Type::F32 || type == Type::F16 || type == Type::BF16) return ref;
  if (ref.kind == Ref::Kind::Constant) {
    return number(static_cast<float>(spec_.constants[ref.index].whole));
  }
  return is_full(ref) ? step(Mode::Convert, {ref}) : full(ref, true);
}

Ref GraphSteps::tensor(const GraphTensor& tensor) {
  const auto same = [&](const GraphTensor& other) {
    return other.role == tensor.role && other.slot == tensor.slot && other.view == tensor.view;
  };
  const auto known = std::ranges::find_if(spec_.tensors, same);
  const auto place = static_cast<std::uint32_t>(known - spec_.tensors.begin());
  if (known == spec_.tensors.end()) spec_.tensors.push_back(tensor);
  return {Ref::Kind::Tensor, place};
}

Ref GraphSteps::per_call(TensorRole role, std::uint32_t slot, Type type) {
  GraphTensor value;
  value.role = role;
  value.slot = slot;
  value.type = type;
  value.by_value =
      !problem_.device_values || role == TensorRole::OffsetB || role == TensorRole::Uniform;
  return tensor(value);
}

// Tensors of one element per sequence, and in a backward of one per key, along the rows (stride 0).
void GraphSteps::spread_over_rows(GraphTensor& tensor) const {
  const bool per_sequence = tensor.dim[0] > 1 && tensor.dim[3] == 1;
  const bool per_key = spec_.backward && tensor.dim[3] > 1;
  if (!avoid_.narrow_inputs || tensor.dim[2] != 1 || !(per_sequence || per_key)) return;
  tensor.dim[2] = problem_.sizes.sq;
  tensor.stride[2] = 0;
}

Ref GraphSteps::per_sequence(TensorRole role) {
  GraphTensor values;
  values.role = role;
  values.view = 1;  // view 0 is an option's
  values.type = Type::I32;
  values.dim = {batch_, 1, 1, 1};
  spread_over_rows(values);
  return tensor(values);
}

// A position in the tensors of this call, counted from 0.
Ref GraphSteps::plain_index(int axis) {
  auto& known = plain_indices_[static_cast<std::size_t>(axis)];
  if (known) return *known;
  known = step(Mode::Index, {{Ref::Kind::Score, 0}}, Type::I32);
  if (known->kind == Ref::Kind::Step) spec_.steps[known->index].axis = axis;
  return *known;
}

// Positions are generated once each: cuDNN recognises no mask whose positions it sees twice.
Ref GraphSteps::index(int axis) {
  auto& known = indices_[static_cast<std::size_t>(axis)];
  if (known) return *known;
  Ref ref = plain_index(axis);
  constexpr std::array<TensorRole, 4> offsets{TensorRole::OffsetB, TensorRole::OffsetH,
                                              TensorRole::OffsetQ, TensorRole::OffsetK};
  const std::array<bool, 4> moved{true, problem_.h_offset != 0, problem_.q_offset != 0,
                                  problem_.k_offset != 0};  // b: by the slices of a batch
  if (axis == 0) lowered_.uses_b = true;
  if (moved[static_cast<std::size_t>(axis)]) {
    ref = step(Mode::Add, {ref, per_call(offsets[static_cast<std::size_t>(axis)], 0, Type::I32)},
               Type::I32);
  }
  if ((axis == 2 && problem_.has_q_offsets) || (axis == 3 && problem_.has_k_offsets)) {
    const TensorRole role = axis == 2 ? TensorRole::OffsetsQ : TensorRole::OffsetsK;
    ref = step(Mode::Add, {ref, per_sequence(role)}, Type::I32);
  }
  known = ref;
  return ref;
}

Ref GraphSteps::size(Op op) {
  const bool of_queries = op == Op::SizeSq;
  if (spec_.padding) return per_sequence(of_queries ? TensorRole::LengthsQ : TensorRole::LengthsK);
  return whole(static_cast<std::int32_t>(of_queries ? problem_.sizes.sq : problem_.sizes.skv));
}

ir::IntInterval GraphSteps::range(const Expr& e) const { return ir::bound(e, box_).i; }

void GraphSteps::need_exact(const Expr& e) {
  const ir::IntInterval r = range(e);
  if (r.lo > -exact_in_f32 && r.hi < exact_in_f32) return;
  refuse("whole_numbers_too_large",
         "engine cudnn computes products and quotients of whole numbers in f32, exact below 2^24",
         "a whole number that may be larger", "use engine jit");
}

namespace {

bool is_sum(Op op) { return op == Op::AddF || op == Op::SubF; }

// Why cuDNN may round this node differently from f32, in words; "" if it cannot. Compilers may fuse
// a product into the sum that uses it.
std::string what_is_inexact(const ir::Node& node, bool in_a_sum) {
  if (node.type() != ir::Type::F32 || node.args().empty()) return "";
  switch (node.op()) {
    case Op::AddF:
    case Op::SubF:
    case Op::NegF:
    case Op::AbsF:
    case Op::MinF:
    case Op::MaxF:
    case Op::ClampF:
    case Op::SelectF:
    case Op::FloatOfInt:
    case Op::FloatOfBool:
    case Op::Floor:
    case Op::Ceil:
    case Op::Round:
    case Op::SignF:
    case Op::LoadF: return "";
    case Op::MulF: return in_a_sum ? "product within a sum" : "";
    default: return std::string(info(node.op()).text);
  }
}

}  // namespace

Decisions::Decisions(const ir::Program& program) {
  const ir::Order order = ir::operands_first(program.formulas());
  const std::vector<bool> exact = ir::find_exact(order);
  std::unordered_set<const ir::Node*> summed;
  for (std::size_t i = 0; i < order.nodes.size(); ++i) {
    if (!exact[i]) continue;
    nodes_.insert(order.nodes[i]);
    if (!is_sum(order.nodes[i]->op())) continue;
    for (const Expr& term : order.nodes[i]->args()) summed.insert(term.get());
  }
  for (const ir::Node* node : order.nodes) {
    if (nodes_.contains(node) && inexact_.empty()) {
      inexact_ = what_is_inexact(*node, summed.contains(node));
    }
  }
}

}  // namespace fovea::cudnn
