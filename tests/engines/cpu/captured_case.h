// A backward reduced to its captured gradients: random scores and gradients of scores go through
// formulas strip by strip into CapturedRun, and point by point through ir/eval.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attention/bindings.h"
#include "engines/cpu/captured/captured_run.h"
#include "tests/ir/random.h"

namespace fovea::test {

// A gradient as it was written, its elements dense.
struct WrittenGradient {
  std::vector<double> values;
  std::vector<double> expected, magnitude;  // the sum in double, and that of absolute values
};

struct CapturedOptions {
  std::int64_t chunks = 2;
  bool gaps = false;                    // gradients with space between elements
  std::vector<DType> gradient_types{};  // by tensor; empty: as declared
  std::uint32_t dead_percent = 30;      // of scores that are not alive; their gradient is NaN
};

class CapturedCase {
 public:
  CapturedCase(const std::string& program, const Sizes& sizes, std::uint64_t seed,
               const CapturedOptions& options);

  // To be changed before run().
  Problem problem;
  Bindings bindings;
  std::vector<std::int32_t> k_lengths, k_offsets;
  // The gradient by the modified score at a point.
  std::function<float(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k)> grad;

  // Runs the lanes in an order that `order` picks; empty: increasing.
  void run(Random* order = nullptr);
  void expect();  // fills the expected values

  std::int64_t lanes = 0;
  std::size_t workspace_bytes = 0;
  std::vector<WrittenGradient> tensors;  // by slot; empty: not wanted
  std::vector<WrittenGradient> scalars;
  std::string failure;  // what was written where it must not be

 private:
  struct Storage {
    std::vector<std::int64_t> extents;
    std::vector<std::byte> data, gradient;
    BoundGradient bound;
    std::size_t elements = 0;
  };
  void make_tensor(Random& random, std::size_t slot);
  void bind();
  void run_unit(const cpu::CapturedRun& run, const cpu::CapturedGradients& captured, std::int64_t b,
                std::int64_t g, std::int64_t chunk);
  void run_tile(cpu::StripRun& strips, const cpu::CapturedRun& run, std::int64_t lane,
                const std::array<std::int64_t, 5>& at);
  void collect();
  bool alive(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const;
  float score(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const;
  cpu::LeafValues leaves(std::int64_t b, std::int64_t h) const;

  std::uint64_t seed_;
  CapturedOptions options_;
  std::vector<Storage> storage_;
  std::vector<ir::TensorView> views_;
  std::vector<ir::ScalarValue> scalar_values_;
  std::vector<PerCall<ir::ScalarValue>> bound_scalars_;
  std::vector<BoundGradient> gradients_;
  std::vector<float> scalar_gradients_;
  std::vector<void*> scalar_pointers_;
};

}  // namespace fovea::test
