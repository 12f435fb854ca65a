#include "attention/problem.h"

#include <algorithm>
#include <bit>
#include <set>

#include "attention/refuse.h"
#include "base/hash.h"
#include "base/words.h"

namespace fovea {
namespace {

class Hasher {
 public:
  template <class T>
  void add(T value) {
    hash_ = hash_combine(hash_, static_cast<std::uint64_t>(value));
  }
  // -0 equals 0, so it must hash alike.
  void add(float value) { add(std::bit_cast<std::uint32_t>(value + 0.0f)); }
  void add(double value) { add(std::bit_cast<std::uint64_t>(value + 0.0)); }
  void add(const std::vector<bool>& bits) {
    add(bits.size());
    for (const bool bit : bits) add(bit);
  }
  void add(const Sizes& s) {
    for (const std::int64_t x : {s.b, s.h, s.hkv, s.sq, s.skv, s.d, s.dv, s.t_q, s.t_k}) add(x);
  }
  void add(const TensorSpec& spec) {
    add(spec.dtype);
    add(spec.strides.has_value());
    if (!spec.strides) return;
    for (const std::int64_t x : spec.strides->list()) add(x);
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace

// Equality is defaulted and decides; a field forgotten here only makes the hash weaker. The test
// that changes every field in turn checks both.
std::uint64_t Problem::hash() const {
  Hasher h;
  h.add(direction);
  h.add(layout);
  h.add(sizes);
  for (const NamedTensor& tensor : named_tensors()) h.add(this->*tensor.spec);
  h.add(program.hash());
  h.add(scale.has_value());
  h.add(scale.value_or(0));
#define FOVEA_FLAG(field, config) h.add(field);
#define FOVEA_NUMBER(name) h.add(name);
#include "fovea/fields.def"
  for (const bool flag : {want_q, want_k, want_v, want_sink}) h.add(flag);
  h.add(dropout);
  h.add(rng);
  h.add(want_tensors);
  h.add(want_scalars);
  for (const auto& strides : tensor_strides) {
    h.add(strides.size());
    for (const std::int64_t stride : strides) h.add(stride);
  }
  h.add(precision);
  return h.value();
}

bool wants_gradients(const Problem& problem) {
  const auto any = [](const std::vector<bool>& wanted) {
    return std::ranges::find(wanted, true) != wanted.end();
  };
  return problem.want_q || problem.want_k || problem.want_v || problem.want_sink ||
         any(problem.want_tensors) || any(problem.want_scalars);
}

std::string outputs_beyond(const Problem& problem,
                           std::initializer_list<std::string_view> written) {
  std::string names;
  const auto look_at = [&](bool wanted, std::string_view name) {
    if (!wanted || std::ranges::find(written, name) != written.end()) return;
    names.append(names.empty() ? "" : ", ").append(name);
  };
#define FOVEA_OUTPUT(name, extent, saved) look_at(problem.name, #name);
#include "fovea/fields.def"
  return names;
}

ir::Literals literals_of(DType dtype) {
  return dtype == DType::F64 ? ir::Literals::F64 : ir::Literals::F32;
}

const std::array<NamedTensor, 8>& named_tensors() {
  static constexpr std::array<NamedTensor, 8> tensors{{
#define FOVEA_TENSOR(field, key, of_keys, of_values, output) \
  {#key, &Problem::field, of_keys, of_values, output},
#include "fovea/fields.def"
  }};
  return tensors;
}

bool takes_part(const Problem& problem, const NamedTensor& tensor) {
  const bool backward = problem.direction != Direction::Forward;
  if (tensor.spec == &Problem::o) return problem.direction != Direction::Tangent;
  if (tensor.spec == &Problem::grad_q) return backward && problem.want_q;
  if (tensor.spec == &Problem::grad_k) return backward && problem.want_k;
  if (tensor.spec == &Problem::grad_v) return backward && problem.want_v;
  if (tensor.spec == &Problem::grad_o) return backward && wants_gradients(problem);
  return true;
}

std::int64_t heads_of(const Sizes& sizes, const NamedTensor& tensor) {
  return tensor.of_keys ? sizes.hkv : sizes.h;
}
std::int64_t length_of(const Sizes& sizes, const NamedTensor& tensor) {
  return tensor.of_keys ? sizes.skv : sizes.sq;
}
std::int64_t features_of(const Sizes& sizes, const NamedTensor& tensor) {
  return tensor.of_values ? sizes.dv : sizes.d;
}

Strides dense_strides(Layout layout, const Sizes& sizes, const NamedTensor& tensor) {
  const std::int64_t heads = heads_of(sizes, tensor), features = features_of(sizes, tensor);
  const std::int64_t length = length_of(sizes, tensor), row = heads * features;
  switch (layout) {
    case Layout::Bhsd: return {length * row, length * features, features, 1};
    case Layout::Bshd: return {length * row, features, row, 1};
    case Layout::Sbhd: return {row, features, sizes.b * row, 1};
    case Layout::Thd: return {0, features, row, 1};
  }
  return {};
}

Strides strides_of(const Problem& problem, const NamedTensor& tensor) {
  const TensorSpec& spec = problem.*tensor.spec;
  return spec.strides ? *spec.strides : dense_strides(problem.layout, problem.sizes, tensor);
}

namespace {

// The captured thing of this name, or nothing. None is called q, k, v or sink: validate sees to it.
template <class Decl>
std::optional<std::size_t> slot_of(const std::vector<Decl>& declared, std::string_view name) {
  for (std::size_t slot = 0; slot < declared.size(); ++slot) {
    if (declared[slot].name == name) return slot;
  }
  return std::nullopt;
}

std::vector<std::string> known_names(const Problem& problem) {
  std::vector<std::string> names{"q", "k", "v", "sink"};
  for (const ir::TensorDecl& tensor : problem.program.tensors()) names.push_back(tensor.name);
  for (const ir::ScalarDecl& scalar : problem.program.scalars()) names.push_back(scalar.name);
  return names;
}

void want(Problem& problem, const std::string& name) {
  if (const auto slot = slot_of(problem.program.tensors(), name)) {
    const DType dtype = problem.program.tensors()[*slot].dtype;
    if (ir::loaded_type(dtype) != ir::Type::F32) {
      refuse("grads", name,
             "is a tensor of " + std::string(dtype_name(dtype)) +
                 "; only float tensors have gradients");
    }
    problem.want_tensors[*slot] = true;
  } else if (const auto scalar = slot_of(problem.program.scalars(), name)) {
    if (problem.program.scalars()[*scalar].type != ir::Type::F32) {
      refuse("grads", name, "is an i32 scalar; only f32 scalars have gradients");
    }
    problem.want_scalars[*scalar] = true;
  } else if (name == "q") {
    problem.want_q = true;
  } else if (name == "k") {
    problem.want_k = true;
  } else if (name == "v") {
    problem.want_v = true;
  } else if (name == "sink") {
    problem.want_sink = true;
  } else {
    refuse("grads", name.substr(0, 64),
           "is not q, k, v, sink or a captured name" + did_you_mean(name, known_names(problem)));
  }
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

void want_gradients(Problem& problem, std::string_view names) {
  problem.want_q = problem.want_k = problem.want_v = problem.want_sink = false;
  problem.want_tensors.assign(problem.program.tensors().size(), false);
  problem.want_scalars.assign(problem.program.scalars().size(), false);
  std::set<std::string> seen;
  while (!names.empty()) {
    const std::size_t comma = std::min(names.find(','), names.size());
    const std::string name(trimmed(names.substr(0, comma)));
    names.remove_prefix(std::min(comma + 1, names.size()));
    if (!seen.insert(name).second) refuse("grads", name, "is named twice");
    want(problem, name);
  }
}

std::string wanted_gradients(const Problem& problem) {
  std::string out;
  const auto add = [&](bool wanted, std::string_view name) {
    if (wanted) out.append(out.empty() ? "" : ",").append(name);
  };
  add(problem.want_q, "q");
  add(problem.want_k, "k");
  add(problem.want_v, "v");
  for (std::size_t slot = 0; slot < problem.want_tensors.size(); ++slot) {
    add(problem.want_tensors[slot], problem.program.tensors()[slot].name);
  }
  for (std::size_t slot = 0; slot < problem.want_scalars.size(); ++slot) {
    add(problem.want_scalars[slot], problem.program.scalars()[slot].name);
  }
  add(problem.want_sink, "sink");
  return out;
}

}  // namespace fovea
