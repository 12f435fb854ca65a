#include "capi/call.h"

#include <cmath>
#include <exception>
#include <mutex>
#include <string>

#include "attention/problem_text.h"
#include "attention/rules.h"
#include "base/error.h"
#include "base/words.h"
#include "capi/arguments.h"

namespace fovea::capi {
namespace {

// Dense strides follow this call's sizes, which may differ from the problem's.
Strides default_strides(const Problem& problem, const NamedTensor& tensor, const Sizes& sizes) {
  const TensorSpec& spec = problem.*tensor.spec;
  return spec.strides ? *spec.strides : dense_strides(problem.layout, sizes, tensor);
}

// Checked before anything is multiplied by them.
Sizes call_sizes(const Problem& problem, const fovea_bindings& given) {
  if (given.sizes == nullptr) return problem.sizes;
  const Sizes sizes = to_sizes(*given.sizes);
  if (!(sizes == problem.sizes)) check_sizes(sizes, problem.layout);
  return sizes;
}

// The fields of both structs, in the order of named_tensors().
struct BindingFields {
  fovea_tensor fovea_bindings::* given;
  BoundTensor Bindings::* bound;
};
constexpr BindingFields fields[] = {
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) \
  {&fovea_bindings::field, &Bindings::field},
#include "fovea/fields.def"
};

template <class T, class Given>
PerCall<T> per_call(const Given& given, T otherwise) {
  return {given.is_set != 0 ? given.value : otherwise, given.device};
}

template <class T>
void read_pointer(PerCall<T>& value) {
  if (value.device == nullptr) return;
  value.value = *value.device;
  value.device = nullptr;
}

// The problem's own, or 1 / sqrt(d) of this call's d.
double default_scale(const Problem& problem, const Sizes& sizes) {
  if (problem.scale) return *problem.scale;
  return sizes.d > 0 ? 1 / std::sqrt(static_cast<double>(sizes.d)) : 1;
}

}  // namespace

CallBindings::CallBindings(const PlanFacts& plan, const fovea_bindings& given)
    : problem_(*plan.problem),
      executor_(given.executor),
      sizes_(call_sizes(problem_, given)),
      captured_(problem_.program,
                {.argument = "bindings",
                 .tensors = given.tensors,
                 .tensor_count = given.tensor_count,
                 .scalars = given.scalars,
                 .scalar_count = given.scalar_count,
                 .reals = literals_of(problem_.q.dtype)},
                {sizes_, problem_.h_global}) {
  if (problem_.direction == Direction::Tangent) {
    tangents_.emplace(
        problem_.program,
        CapturedArguments{"bindings.tangents", given.tensor_tangents, given.tensor_tangent_count,
                          given.scalar_tangents, given.scalar_tangent_count, /*may_lack=*/true,
                          /*are_tangents=*/true, literals_of(problem_.q.dtype)},
        CapturedSizes{sizes_, problem_.h_global});
    bindings_.tensor_tangents = tangents_->tensors();
    bindings_.scalar_tangents = tangents_->scalars();
  } else if (given.tensor_tangent_count + given.scalar_tangent_count != 0) {
    throw InvalidArgument("bindings: tangents are bound, but this problem is no tangent");
  }
  bindings_.sizes = sizes_;
  bind_tensors(plan.rules, given);
  bind_values(given);
  bindings_.literals = plan.literals;
  if (plan.device == DeviceKind::Cpu) read_pointers();
}

void CallBindings::bind_tensors(const CallRules& rules, const fovea_bindings& given) {
  const bool own_sizes = sizes_ == problem_.sizes;
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const fovea_tensor& tensor = given.*fields[i].given;
    BoundTensor& bound = bindings_.*fields[i].bound;
    std::array<std::int64_t, 4> s{};
    bound.data = tensor.data;
    bound.strides = read_strides(tensor.stride, s) ? Strides{s[0], s[1], s[2], s[3]}
                    : own_sizes                    ? rules.tensor(i).strides
                                : default_strides(problem_, named_tensors()[i], sizes_);
  }
#define FOVEA_POINTER(type, name, extent, needed, written) bindings_.name = given.name;
#include "fovea/fields.def"
}

void CallBindings::bind_values(const fovea_bindings& given) {
  bindings_.tensors = captured_.tensors();
  bindings_.scalars = captured_.scalars();
  bindings_.tensor_gradients = captured_.tensor_gradients();
  bindings_.scalar_gradients = captured_.scalar_gradients();
  bind_scale(given);
  bindings_.dropout = {problem_.dropout, nullptr};
  bindings_.seed = {given.seed.value, given.seed.device};
  bindings_.offset = {given.offset.value, given.offset.device};
  bindings_.b_offset = per_call(given.b_offset, problem_.b_offset);
  bindings_.h_offset = per_call(given.h_offset, problem_.h_offset);
  bindings_.q_offset = per_call(given.q_offset, problem_.q_offset);
  bindings_.k_offset = per_call(given.k_offset, problem_.k_offset);
  bindings_.h_global = problem_.h_global;
  bindings_.workspace = given.workspace;
  bindings_.workspace_bytes = given.workspace_bytes;
  bindings_.stream = given.stream;
  bindings_.executor = executor_.get();
  bindings_.threads = executor_.limit();
}

void CallBindings::bind_scale(const fovea_bindings& given) {
  double scale = default_scale(problem_, sizes_);
  if (given.scale.is_set != 0) scale = static_cast<double>(given.scale.value);
  if (given.scale_f64 != 0) scale = given.scale_f64;
  const SplitDouble split = split_double(scale);
  bindings_.scale = {split.f, given.scale.device};
  const bool in_double = literals_of(problem_.q.dtype) == ir::Literals::F64;
  bindings_.scale_rest = in_double && given.scale.device == nullptr ? split.rest : 0;
}

// On the CPU the device is the host: values bound as pointers are read now, so that validation sees
// what the engine will.
void CallBindings::read_pointers() {
  const ir::Literals reals = literals_of(problem_.q.dtype);
  captured_.read_pointers(problem_.program, reals);
  if (tangents_) tangents_->read_pointers(problem_.program, reals);
#define FOVEA_VALUE(type, name) read_pointer(bindings_.name);
#include "fovea/fields.def"
}

namespace {

// Scalars with the values of this call as their defaults.
ir::Program with_values(const ir::Program& program, const Bindings& bindings) {
  ir::Declarations declarations = program.declarations();
  for (std::size_t slot = 0; slot < declarations.scalars.size(); ++slot) {
    const PerCall<ir::ScalarValue>& bound = bindings.scalars[slot];
    if (bound.device != nullptr) continue;
    ir::ScalarDecl& scalar = declarations.scalars[slot];
    scalar.value =
        scalar.type == ir::Type::F32 ? bound.value.real() : static_cast<double>(bound.value.i);
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
  const SplitDouble own = split_double(default_scale(planned, b.sizes));
  const bool in_double = literals_of(planned.q.dtype) == ir::Literals::F64;
  const bool changed = b.scale.value != own.f || (in_double && b.scale_rest != own.rest);
  if (b.scale.device == nullptr && changed) {
    problem.scale = joined_double(b.scale.value, b.scale_rest);
  }
  problem.b_offset = b.b_offset.value;
  problem.h_offset = b.h_offset.value;
  if (!problem.has_q_offsets) problem.q_offset = b.q_offset.value;
  if (!problem.has_k_offsets) problem.k_offset = b.k_offset.value;
  return problem;
}

// A problem line with the values of one call for what the line says will be `bound`.
class CallLine {
 public:
  explicit CallLine(const Problem& problem) : words_(split_words(print(problem))) {}

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
  CallLine line(problem);
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

namespace {

struct Tasks {
  const std::function<void(std::size_t)>& task;
  std::mutex mutex;
  std::exception_ptr failure;

  void run(std::size_t i) {
    try {
      task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
};

extern "C" void run_one(void* context, std::size_t i) { static_cast<Tasks*>(context)->run(i); }

}  // namespace

HostExecutor::HostExecutor(const fovea_executor* given) {
  if (given == nullptr) return;
  host_ = read_struct(given, {"bindings.executor", "fovea_executor"});
  if (host_.threads == 0) host_.threads = 1;
  if (host_.threads < 0) {
    throw InvalidArgument("bindings.executor.threads is " + std::to_string(host_.threads) +
                          "; it must be 1 or more (0: 1)");
  }
}

void HostExecutor::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  Tasks tasks{task, {}, nullptr};
  host_.run(host_.self, count, run_one, &tasks);
  if (tasks.failure) std::rethrow_exception(tasks.failure);
}

}  // namespace fovea::capi
