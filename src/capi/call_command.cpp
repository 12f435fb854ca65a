// What FOVEA_VERBOSE says of a call: a command with every value that the call bound.
#include "base/words.h"
#include "capi/call.h"
#include "planner/run_command.h"

namespace fovea::capi {
namespace {

std::string listed(const std::int32_t* values, std::int64_t count) {
  std::string out;
  for (std::int64_t i = 0; i < count; ++i) out += (i == 0 ? "" : ",") + std::to_string(values[i]);
  return out;
}

// Scalars with the values of this call as their defaults.
ir::Program with_values(const ir::Program& program, const Bindings& bindings) {
  ir::Declarations declarations = program.declarations();
  for (std::size_t slot = 0; slot < declarations.scalars.size(); ++slot) {
    const PerCall<ir::ScalarValue>& bound = bindings.scalars[slot];
    if (bound.device != nullptr) continue;
    ir::ScalarDecl& scalar = declarations.scalars[slot];
    scalar.value = scalar.type == ir::Type::F32 ? static_cast<double>(bound.value.f)
                                                : static_cast<double>(bound.value.i);
  }
  return ir::Program::with_slots(std::move(declarations), program.mod(), program.mask(),
                                 program.bprop());
}

// The problem's own words say that lengths and the like are bound per call; the line carries them.
void carry(std::string& words, bool& is_bound, const char* key, const std::string& values) {
  if (!is_bound || values.empty()) return;
  is_bound = false;
  words += (words.empty() ? "" : " ") + join_word(key, values);
}

}  // namespace

std::string call_command(const fovea_plan_s& plan, const Bindings& b) {
  Problem problem = *plan.problem;
  problem.sizes = b.sizes;
  problem.program = with_values(problem.program, b);
  if (b.scale.device == nullptr && problem.scale) problem.scale = b.scale.value;
  for (std::size_t i = 0; i < named_tensors().size(); ++i) {
    // Strides that belong to other sizes would not be valid in the line.
    if (problem.sizes != plan.problem->sizes) (problem.*named_tensors()[i].spec).strides.reset();
  }
  problem.b_offset = b.b_offset.value;
  problem.h_offset = b.h_offset.value;
  if (!problem.has_q_offsets) problem.q_offset = b.q_offset.value;
  if (!problem.has_k_offsets) problem.k_offset = b.k_offset.value;
  std::string words;
  if (plan.device == DeviceKind::Cpu) {
    carry(words, problem.has_q_lengths, "qlens", listed(b.q_lengths, b.sizes.b));
    carry(words, problem.has_k_lengths, "klens", listed(b.k_lengths, b.sizes.b));
    carry(words, problem.has_q_offsets, "q_offset", listed(b.q_offsets, b.sizes.b));
    carry(words, problem.has_k_offsets, "k_offset", listed(b.k_offsets, b.sizes.b));
    bool packed = problem.layout == Layout::Thd;
    if (packed) {
      words += (words.empty() ? "" : " ") + join_word("cu_q", listed(b.q_starts, b.sizes.b + 1));
      words += " " + join_word("cu_k", listed(b.k_starts, b.sizes.b + 1));
    }
  }
  if (problem.dropout > 0) {
    words += (words.empty() ? "" : " ") + join_word("seed", std::to_string(b.seed.value));
    words += " " + join_word("offset", std::to_string(b.offset.value));
  }
  return run_command(problem, words, plan.call.engine);
}

}  // namespace fovea::capi
