// Gradients of captured tensors and scalars: which sums a backward's kernel computes, and how. Made
// once per plan. The kernel's side is device/captured.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "engines/jit/device/captured_arguments.h"
#include "engines/jit/render.h"

namespace fovea::jit {

// What a term's element changes with, beside b and h: the classes of device/captured.h and
// device/captured_cells.h.
enum class TermKind { Uniform, Row, Column, Element, Cells, Diagonal, Gather };

// What every score adds to one tensor or scalar; a load of the formula, or a scalar.
struct CapturedTerm {
  std::size_t target;
  TermKind kind;
  std::string name;  // of the formula's extra function: its value
  ir::Expr value;
  std::vector<ir::Expr> indices;  // of the tensor: functions name_0, name_1, ...
};

struct WantedGradient {
  bool is_tensor;
  std::uint32_t slot;
  device::SumsKept kept = device::SumsKept::Nowhere;
  // The tensor's indices as its sums lie, slowest first; the first `outer` of them change with b
  // and h alone.
  std::vector<int> order{};
  int outer = 0;
};

class CapturedSums {
 public:
  explicit CapturedSums(const Problem& baked);  // nothing in a forward
  CapturedSums() = default;

  bool any_terms() const { return !terms_.empty(); }
  const std::vector<CapturedTerm>& terms() const { return terms_; }
  const std::vector<WantedGradient>& targets() const { return targets_; }

  // What the formula must have for them.
  std::vector<ExtraRoot> roots() const;

  // Of device/hopper/backward.h: bytes of shared memory of all terms, of one, and of the sums along
  // diagonals, which lie first; entries of each table.
  int hopper_shared_bytes() const;
  int hopper_bytes_of(const CapturedTerm& term) const;
  int hopper_diagonal_bytes() const;
  int hopper_table_room() const;
  // Whether they need P beside what multiplies dP.
  bool hopper_reads_p() const;
  // Why that kernel does not add them up; "": it does.
  std::string why_not_hopper() const;

  // For tables in shared memory: entries of each Diagonal and Gather, bytes of all.
  int table_room() const;
  int shared_bytes() const;

 private:
  void add_term(std::size_t target, const ir::Expr& value, std::vector<ir::Expr> indices);
  void arrange(std::size_t target, const ir::Program& program);
  int tables() const;

  bool deterministic_ = false;
  int hopper_keys_ = 0;  // of a tile there
  std::vector<CapturedTerm> terms_;
  std::vector<WantedGradient> targets_;
};

}  // namespace fovea::jit
