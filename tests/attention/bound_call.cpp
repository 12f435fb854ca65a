#include "tests/attention/bound_call.h"

#include "attention/extents.h"
#include "attention/validate.h"
#include "base/error.h"

namespace fovea::test {

BoundCall::BoundCall(const std::string& line) {
  const ProblemLine parsed = parse_problem_line(line);
  problem = parsed.forward ? *parsed.forward : *parsed.backward;
  values = parsed.values;
  bindings.sizes = problem.sizes;
  bind_tensors();
  bind_rows();
  bind_sequences();
  bind_captured();
  bindings.scale.value = problem.scale.value_or(1);
  bindings.dropout.value = problem.dropout;
  bindings.q_offset.value = problem.q_offset;
  bindings.k_offset.value = problem.k_offset;
  bindings.h_offset.value = problem.h_offset;
  bindings.b_offset.value = problem.b_offset;
  bindings.h_global = problem.h_global;
  bindings.workspace = allocate(static_cast<std::int64_t>(workspace_bytes));
  bindings.workspace_bytes = workspace_bytes;
}

void BoundCall::bind_vectors() {
  bindings.tensors = tensors;
  bindings.scalars = scalars;
  bindings.tensor_gradients = tensor_gradients;
  bindings.scalar_gradients = scalar_gradients;
}

void BoundCall::bind(const Plan& plan, const std::vector<float>& literals) {
  bind_vectors();
  bindings.literals = literals;
  workspace_bytes = plan.workspace_bytes(problem.sizes);
  bindings.workspace = allocate(static_cast<std::int64_t>(workspace_bytes));
  bindings.workspace_bytes = workspace_bytes;
}

std::string BoundCall::outcome(bool device_memory) {
  bind_vectors();
  try {
    CallRules(problem).check(bindings, WorkspacePlan(workspace_bytes), device_memory);
    return "accepted";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

void* BoundCall::allocate(std::int64_t bytes) {
  blocks_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes) + 64));
  void* data = blocks_.back().get();
  auto space = static_cast<std::size_t>(bytes) + 64;
  return std::align(64, static_cast<std::size_t>(bytes), data, space);
}

void BoundCall::bind_tensors() {
  constexpr BoundTensor Bindings::* fields[] = {
      &Bindings::q,      &Bindings::k,      &Bindings::v,      &Bindings::o,
      &Bindings::grad_o, &Bindings::grad_q, &Bindings::grad_k, &Bindings::grad_v};
  for (std::size_t i = 0; i < 8; ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    if (!takes_part(problem, tensor)) continue;
    const auto extents = extents_of(problem.sizes, problem.layout, tensor);
    const std::int64_t elements = extents[0] * extents[1] * extents[2] * extents[3];
    bindings.*fields[i] = {allocate(elements * 8), strides_of(problem, tensor)};
  }
}

void BoundCall::bind_rows() {
  const std::int64_t rows = row_count(problem.sizes, problem.layout) * 8;
  const std::int64_t heads = problem.sizes.h * 8;
  if (problem.direction == Direction::Backward) bindings.lse = allocate(rows);
#define FOVEA_OUTPUT(name, extent, saved) \
  if (problem.name) bindings.name = allocate(extent);
#include "fovea/fields.def"
  if (problem.grad_lse) bindings.grad_lse = allocate(rows);
  if (problem.sink) bindings.sink = allocate(heads);
  if (problem.want_sink) bindings.grad_sink = allocate(heads);
}

void BoundCall::bind_sequences() {
  const auto data = [](const std::vector<std::int32_t>& list) {
    return list.empty() ? nullptr : list.data();
  };
  bindings.q_lengths = data(values.q_lengths);
  bindings.k_lengths = data(values.k_lengths);
  bindings.q_starts = data(values.q_starts);
  bindings.k_starts = data(values.k_starts);
  bindings.q_offsets = data(values.q_offsets);
  bindings.k_offsets = data(values.k_offsets);
}

void BoundCall::bind_captured() {
  for (std::size_t slot = 0; slot < problem.program.tensors().size(); ++slot) {
    const ir::TensorDecl& declared = problem.program.tensors()[slot];
    const auto extents = captured_extents(declared, problem.sizes, problem.h_global);
    std::int64_t elements = 1;
    for (const std::int64_t extent : extents) elements *= extent;
    tensors.push_back(ir::TensorView::dense(allocate(elements * 8), declared.dtype, extents));
    BoundGradient gradient;
    gradient.stride = tensors.back().stride;
    if (slot < problem.want_tensors.size() && problem.want_tensors[slot]) {
      gradient.data = allocate(elements * 8);
    }
    tensor_gradients.push_back(gradient);
  }
  for (std::size_t slot = 0; slot < problem.program.scalars().size(); ++slot) {
    const bool wanted = slot < problem.want_scalars.size() && problem.want_scalars[slot];
    scalars.emplace_back();
    scalar_gradients.push_back(wanted ? allocate(8) : nullptr);
  }
}

}  // namespace fovea::test
