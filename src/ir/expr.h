// Expressions: immutable, hash-consed, reference-counted. The same formula built twice, by anyone
// in the process, is the same node; equality is pointer equality and the hash is by structure, the
// same in every process. Nodes name captured tensors and scalars by slot, never by name.
//
// Nodes are made by ir/build alone, which folds constants and puts operands into canonical order.
// -inf, inf and NaN are ordinary values throughout; nothing assumes that they do not occur.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

#include "base/dtype.h"
#include "ir/op.h"

namespace fovea::ir {

// What a value can change with: the loop variables of attention, and what is bound per call.
enum class Depends : std::uint8_t {
  None = 0,
  B = 1,
  H = 2,
  Q = 4,
  K = 8,
  Score = 16,
  Grad = 32,
  Load = 64,
  Scalar = 128,
};
constexpr Depends operator|(Depends a, Depends b) {
  return static_cast<Depends>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool any(Depends set, Depends of) {
  return (static_cast<std::uint8_t>(set) & static_cast<std::uint8_t>(of)) != 0;
}

// What float literals are: f32 numbers, or doubles whose f32 is what decides (ir/arith). Doubles
// are for f64 tensors, which engine reference alone takes.
enum class Literals : std::uint8_t { F32, F64 };

class Node;

// A reference to a node; null only when default-constructed ("no formula").
class Expr {
 public:
  Expr() = default;
  Expr(const Expr& other) : node_(other.node_) { acquire(); }
  Expr(Expr&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Expr& operator=(Expr other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Expr() { release(); }

  explicit operator bool() const { return node_ != nullptr; }
  const Node* operator->() const { return node_; }
  const Node& operator*() const { return *node_; }
  const Node* get() const { return node_; }
  bool operator==(const Expr&) const = default;

  // A further reference to a node that some Expr holds already.
  static Expr share(const Node* node) {
    Expr expr;
    expr.node_ = node;
    expr.acquire();
    return expr;
  }

 private:
  friend class Interner;
  void acquire() const;
  void release();

  const Node* node_ = nullptr;
};

class Node {
 public:
  Op op() const { return op_; }
  Type type() const { return info(op_).result(); }
  Depends depends() const { return depends_; }
  std::uint32_t depth() const { return depth_; }  // 1 for a leaf
  std::uint64_t hash() const { return hash_; }    // by structure
  // By structure but blind to which slot a load or scalar names: orders operands, so that the
  // order does not depend on how captured things were numbered.
  std::uint64_t shape_hash() const { return shape_hash_; }

  std::span<const Expr> args() const { return {reinterpret_cast<const Expr*>(this + 1), count_}; }
  const Expr& arg(std::size_t i) const { return args()[i]; }

  bool is_const() const { return info(op_).form == Form::Const; }
  std::uint32_t slot() const { return payload_; }  // of a Scalar or Load
  float float_value() const { return std::bit_cast<float>(payload_); }
  // The literal as it was written, in programs whose literals are doubles (ir/build).
  double double_value() const { return joined_double(float_value(), rest_); }
  double rest() const { return rest_; }  // double_value - float_value
  std::int32_t int_value() const { return static_cast<std::int32_t>(payload_); }
  bool bool_value() const { return payload_ != 0; }
  std::uint32_t payload() const { return payload_; }

 private:
  friend class Expr;
  friend class Interner;
  Node(Op op, std::uint32_t payload, std::span<const Expr> args, double rest);
  ~Node() = default;

  mutable std::atomic<std::uint32_t> references_{1};
  std::uint32_t payload_;
  double rest_;
  std::uint64_t hash_ = 0;
  std::uint64_t shape_hash_ = 0;
  mutable const Node* next_ = nullptr;  // in the interner's bucket
  std::uint32_t depth_ = 1;
  std::uint16_t count_;
  Op op_;
  Depends depends_ = Depends::None;
};

inline void Expr::acquire() const {
  if (node_ != nullptr) node_->references_.fetch_add(1, std::memory_order_relaxed);
}

// The one node with this operation, payload (constant bits or slot), arguments, and what an f32
// literal lacks of its double. For ir/build.
Expr intern(Op op, std::uint32_t payload, std::span<const Expr> args, double rest = 0);

// How many nodes are alive in the process. For tests of leaks.
std::size_t live_nodes();

// Canonical order of commutative operands: by operation, then structure. Negative, zero, positive.
int compare(const Expr& a, const Expr& b);

}  // namespace fovea::ir
