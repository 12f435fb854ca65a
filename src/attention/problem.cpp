#include "attention/problem.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

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
    for (const std::int64_t x :
         {spec.strides->b, spec.strides->h, spec.strides->s, spec.strides->d}) {
      add(x);
    }
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

Strides dense_strides(const Problem& problem, std::int64_t heads, std::int64_t length,
                      std::int64_t features) {
  switch (problem.layout) {
    case Layout::Bhsd: return {heads * length * features, length * features, features, 1};
    case Layout::Bshd: return {length * heads * features, features, heads * features, 1};
    case Layout::Sbhd: return {heads * features, features, problem.sizes.b * heads * features, 1};
    case Layout::Thd: return {0, features, heads * features, 1};
  }
  return {};
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
  if (tensor.spec == &Problem::grad_q)
    return problem.direction == Direction::Backward && problem.want_q;
  if (tensor.spec == &Problem::grad_k)
    return problem.direction == Direction::Backward && problem.want_k;
  if (tensor.spec == &Problem::grad_v)
    return problem.direction == Direction::Backward && problem.want_v;
  if (tensor.spec == &Problem::grad_o) return problem.direction == Direction::Backward;
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

Strides strides_of(const Problem& problem, const NamedTensor& tensor) {
  const TensorSpec& spec = problem.*tensor.spec;
  if (spec.strides) return *spec.strides;
  return dense_strides(problem, heads_of(problem.sizes, tensor), length_of(problem.sizes, tensor),
                       features_of(problem.sizes, tensor));
}

}  // namespace fovea
