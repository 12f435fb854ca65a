// One cuDNN attention graph as plain data: what engines/cudnn lowers to, and graph.cpp builds.
// Knows nothing of cudnn-frontend, so that lowering can be read, printed and tested without it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fovea::cudnn {

enum class Type : std::uint8_t { F32, F16, BF16, I32, I64, Bool };

// What a tensor of the graph is bound to. Its number is its uid in cuDNN: the same in every
// process, so that a plan that was read back finds its tensors.
enum class TensorRole : std::uint8_t {
  Q = 1,
  K,
  V,
  O,
  Stats,
  GradO,
  GradQ,
  GradK,
  GradV,
  Bias,
  GradBias,
  Sink,
  GradSink,
  LengthsQ,
  LengthsK,
  Scale,
  Seed,
  Offset,
  OffsetsQ,
  OffsetsK,  // one per sequence
  OffsetB,
  OffsetH,
  OffsetQ,
  OffsetK,   // by value
  Captured,  // a tensor of the program, by slot
  Scalar,    // a scalar of the program, by value, by slot
  Uniform,   // a formula of scalars alone, by value, by slot
  Table,     // a function of h, tabulated when it is lowered
  Starts,    // of the sequences in a packed tensor, by slot
};

using Dims = std::array<std::int64_t, 4>;  // batch, head, query, key (or feature)

struct GraphTensor {
  TensorRole role = TensorRole::Q;
  std::uint32_t slot = 0;  // of a Captured, Scalar or Table; loads of one tensor count up by `view`
  std::uint32_t view = 0;
  Type type = Type::F32;
  Dims dim{1, 1, 1, 1}, stride{1, 1, 1, 1};
  bool by_value = false;                // read from the host when the call is enqueued
  std::optional<std::uint32_t> starts;  // packed: the slot of where its sequences begin
  std::int64_t uid() const {  // a graph has fewer than 64 tensors, so there are fewer views
    return static_cast<std::int64_t>(role) + 64 * (1 + std::int64_t{slot} * 64 + view);
  }
};

enum class Mode : std::uint8_t {
  Index,  // of axis `axis`, as i32
  Add,
  Sub,
  Mul,
  Div,
  Min,
  Max,
  Pow,
  Neg,
  Abs,
  Reciprocal,
  Exp,
  Log,
  Sqrt,
  Rsqrt,
  Tanh,
  Sigmoid,
  Softplus,
  Erf,
  Sin,
  Cos,
  Tan,
  Floor,
  Ceil,
  Convert,  // to the step's type
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  Equal,
  NotEqual,
  Select,  // a ? b : c
};

// An operand: the score, the incoming gradient, a tensor, a constant or an earlier step.
struct Ref {
  enum class Kind : std::uint8_t { Score, Grad, Tensor, Constant, Step };
  Kind kind = Kind::Score;
  std::uint32_t index = 0;
  bool operator==(const Ref&) const = default;
};

struct Constant {
  Type type = Type::F32;  // F32 or I32
  float real = 0;
  std::int32_t whole = 0;
};

// Its first operand has the shape of the score; cuDNN knows no other form.
struct GraphStep {
  Mode mode = Mode::Add;
  Type type = Type::F32;  // of the result
  int axis = 0;
  std::array<Ref, 3> operands{};
  int operand_count = 0;
};

// Keys of a row are kept between two diagonals: k <= q + right, k > q - left. Bottom right counts
// from the last row and key of a sequence.
struct Band {
  std::optional<std::int64_t> left, right;
  bool bottom_right = false;
  bool any() const { return left || right; }
};

// Where the sequences of packed tensors begin: `cu_seqlens` of the queries or of the keys, in
// elements of tensors whose rows lie `row_stride` apart.
struct PackedStarts {
  bool of_keys = false;
  std::int64_t row_stride = 1;
  bool operator==(const PackedStarts&) const = default;
};

struct GraphSpec {
  bool backward = false;
  bool deterministic = false;
  bool stats = false;  // a forward writes lse
  Type io = Type::BF16;
  std::vector<GraphTensor> tensors;
  std::vector<Constant> constants;
  std::vector<GraphStep> steps;  // of the modified score first, then of its derivative
  std::uint32_t forward_steps = 0;
  Ref modified;              // the score itself: no modifier
  std::optional<Ref> bprop;  // absent: the derivative is 1
  bool padding = false;
  Band band;
  float dropout = 0;
  std::vector<PackedStarts> starts;  // by slot of TensorRole::Starts

  bool packed() const { return !starts.empty(); }
  bool has_modifier() const { return modified.kind != Ref::Kind::Score; }
  const GraphTensor* find(TensorRole role) const {
    for (const GraphTensor& tensor : tensors) {
      if (tensor.role == role) return &tensor;
    }
    return nullptr;
  }
};

// All of it, a line each: part of the key of stored plans.
std::string to_text(const GraphSpec& spec);

}  // namespace fovea::cudnn
