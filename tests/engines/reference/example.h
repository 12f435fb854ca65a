// One attention with its data, for tests of the reference engine alone: makes the Problem's tensors
// in guarded memory, fills them, runs forward and backward through Engine and Plan as a planner
// would, and checks that nothing outside the outputs and the workspace was touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "attention/engine.h"
#include "engines/reference/engine.h"

namespace fovea::test {

// Bytes between red zones, full of a pattern that is NaN in every float type.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t size = 0);
  std::byte* data() { return bytes_.data() + start_; }
  const std::byte* data() const { return bytes_.data() + start_; }
  std::size_t size() const { return size_; }
  void poison();
  bool zones_intact() const;

 private:
  std::vector<std::byte> bytes_;
  std::size_t start_ = 0, size_ = 0;
};

// Numbers in memory with up to eight indices.
class Array {
 public:
  Array() = default;
  Array(DType type, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides);
  static Array dense(DType type, std::vector<std::int64_t> shape);

  double get(std::span<const std::int64_t> index) const;
  void set(std::span<const std::int64_t> index, double value);
  double get(std::initializer_list<std::int64_t> index) const { return get(std::span(index)); }
  void set(std::initializer_list<std::int64_t> index, double value) {
    set(std::span(index), value);
  }

  // All elements, last index fastest, whatever the strides.
  std::size_t count() const;
  std::vector<double> numbers() const;
  void assign(const std::vector<double>& numbers);
  void fill_normal(std::mt19937_64& random, double deviation = 1);
  void fill(double value) { assign(std::vector<double>(count(), value)); }

  double number(std::size_t i) const { return get(index_of(i)); }
  void put(std::size_t i, double value) { set(index_of(i), value); }

  void* data() const { return const_cast<std::byte*>(memory.data()); }

  DType dtype = DType::F32;
  std::vector<std::int64_t> extents, strides;
  GuardedBytes memory;

 private:
  std::vector<std::int64_t> index_of(std::size_t i) const;
};

struct CapturedArrays {
  Array value, gradient;
};

struct Example {
  // Allocates every tensor of both directions for these sizes and features; values are 0.
  explicit Example(Problem attention);

  void fill(std::uint64_t seed);  // everything with normal numbers; captured integers below 3
  void forward();                 // outputs are poisoned first; everything is checked after
  void backward();                // reads o, lse, grad_o, grad_lse as they are
  void forward_and_backward();    // with o and lse from the forward

  Bindings bindings();  // as they are now, without workspace and literals
  std::unique_ptr<Plan> plan(Direction direction, std::vector<float>& literals) const;

  CapturedArrays& tensor(const std::string& name);
  ir::ScalarValue& scalar(const std::string& name);
  double scalar_gradient(const std::string& name) const;

  Problem problem;
  Array q, k, v, o, grad_o, grad_q, grad_k, grad_v;  // [B, heads, S, D]; packed [1, heads, T, D]
#define FOVEA_OUTPUT(name, extent, saved) Array name;
#include "fovea/fields.def"
  Array grad_lse, sink, grad_sink;
  std::vector<CapturedArrays> tensors;  // by slot
  std::vector<ir::ScalarValue> scalars;
  std::vector<Array> scalar_gradients;
  std::vector<std::int32_t> q_lengths, k_lengths, q_starts, k_starts, q_offsets, k_offsets;
  float scale = 1;
  std::uint64_t seed = 0, offset = 0;

 private:
  void run(Direction direction);
  std::vector<Array*> outputs(Direction direction);
  std::vector<const Array*> all_arrays() const;
  std::vector<ir::TensorView> views_;
  std::vector<BoundGradient> gradients_;
  std::vector<PerCall<ir::ScalarValue>> bound_scalars_;
  std::vector<void*> scalar_gradient_pointers_;
};

// A Problem of these sizes with the formulas of `program` (as ir::parse_program reads them), in
// f64, with lse.
Problem make_problem(const Sizes& sizes, const std::string& program = "");

// One batch, d = 3, dv = 2.
Sizes small_sizes(std::int64_t sq, std::int64_t skv, std::int64_t h = 1, std::int64_t hkv = 1);

// With every gradient wanted that there is, filled from the seed.
Example filled(Problem problem, std::uint64_t seed = 1);

// A random small problem in f64 with features combined, filled, every gradient wanted that can be.
Example random_example(std::uint64_t seed);

std::string describe(const Problem& problem);  // for traces

}  // namespace fovea::test
