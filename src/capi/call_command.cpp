// What FOVEA_VERBOSE says of a call: a command with every value that the call bound.
#include "attention/problem_text.h"
#include "base/words.h"
#include "capi/call.h"
#include "planner/run_command.h"

namespace fovea::capi {
namespace {

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

Problem with_values(const Problem& planned, const Bindings& b) {
  Problem problem = planned;
  if (problem.sizes != b.sizes) {  // given strides belong to other sizes
    for (const NamedTensor& tensor : named_tensors()) (problem.*tensor.spec).strides.reset();
  }
  problem.sizes = b.sizes;
  problem.program = with_values(problem.program, b);
  if (b.scale.device == nullptr && b.scale.value != default_scale(planned, b.sizes)) {
    problem.scale = b.scale.value;
  }
  problem.b_offset = b.b_offset.value;
  problem.h_offset = b.h_offset.value;
  if (!problem.has_q_offsets) problem.q_offset = b.q_offset.value;
  if (!problem.has_k_offsets) problem.k_offset = b.k_offset.value;
  return problem;
}

// The line says `key=bound` for what comes with each call; here are its values.
class Line {
 public:
  explicit Line(const Problem& problem) : words_(split_words(print(problem))) {}

  void fill(const std::string& key, const std::int32_t* values, std::int64_t count) {
    std::string list;
    for (std::int64_t i = 0; i < count; ++i)
      list += (i == 0 ? "" : ",") + std::to_string(values[i]);
    for (Word& word : words_) {
      if (word.key == key && word.value == "bound" && !list.empty()) word.value = list;
    }
  }
  void add(const std::string& key, std::uint64_t value) {
    words_.push_back({key, std::to_string(value), 0});
  }
  std::string text() const {
    std::string out;
    for (const Word& word : words_) {
      out += (out.empty() ? "" : " ") + join_word(word.key, word.value);
    }
    return out;
  }

 private:
  std::vector<Word> words_;
};

}  // namespace

std::string call_command(const PlanFacts& plan, const Bindings& b) {
  const Problem problem = with_values(*plan.problem, b);
  Line line(problem);
  if (plan.device == DeviceKind::Cpu) {  // else they are in the device's memory
    if (problem.has_q_lengths) line.fill("qlens", b.q_lengths, b.sizes.b);
    if (problem.has_k_lengths) line.fill("klens", b.k_lengths, b.sizes.b);
    if (problem.has_q_offsets) line.fill("q_offset", b.q_offsets, b.sizes.b);
    if (problem.has_k_offsets) line.fill("k_offset", b.k_offsets, b.sizes.b);
    if (problem.layout == Layout::Thd && b.sizes.b > 0) {
      line.fill("cu_q", b.q_starts, b.sizes.b + 1);
      line.fill("cu_k", b.k_starts, b.sizes.b + 1);
    }
  }
  if (problem.dropout > 0) {
    line.add("seed", b.seed.value);
    line.add("offset", b.offset.value);
  }
  return run_command(line.text(), plan.engine);
}

}  // namespace fovea::capi
