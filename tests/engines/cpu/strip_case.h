// Formulas run by the strip interpreter over a block of scores, strip by strip, to be compared with
// ir/eval point by point.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engines/cpu/strips/strip.h"
#include "ir/eval.h"
#include "tests/ir/random.h"

namespace fovea::test {

// The instruction sets whose kernels this machine can run.
std::vector<const cpu::KernelTable*> strip_isas();

// check(kernels, random) for so many cases with each of them, up to the first that fails.
void check_cases(std::uint64_t count, void (*check)(const cpu::KernelTable&, Random&));

// A block of scores: q = q_first + row, k = k_first + column.
struct StripBlock {
  int rows = 1, columns = 1;
  std::int32_t q_first = 0, k_first = 0;
  cpu::LeafValues leaves;
  std::vector<float> score, grad;  // [rows, columns]

  float& at(std::vector<float>& of, int row, int column) const {
    return of[static_cast<std::size_t>(row * columns + column)];
  }
  template <class Real>
  ir::Point<Real> point(int row, int column) const;
};

// The values of all roots over the block.
class StripResult {
 public:
  StripResult(const cpu::StripProgram::Roots& roots, const cpu::KernelTable& kernels,
              const StripBlock& block);

  ir::Cell<float> cell(std::size_t root, int row, int column) const;
  // The score strip after the first phase, which holds root 0 if it is stored in place.
  float score(int row, int column) const { return score_[place(row, column)]; }
  bool kept(std::size_t root, int row, int column) const;  // by keep_bits; bool roots only
  bool intact() const { return intact_; }  // nothing was written behind the state's memory

 private:
  std::size_t place(int row, int column) const {
    return static_cast<std::size_t>(row * columns_ + column);
  }
  void collect(const cpu::StripRun& run, const cpu::StripRun::Strip& strip, std::size_t root);

  int columns_, words_;
  std::vector<ir::Type> types_;
  std::vector<std::vector<std::uint32_t>> bits_;       // [root][row, column]
  std::vector<std::vector<std::uint64_t>> keep_bits_;  // [root][row, word]
  std::vector<float> score_;
  bool intact_ = false;
};

// Every root of every score has the bits that ir/eval gives it. `what`: the formulas.
void check_exact(const StripResult& result, std::span<const ir::Expr> roots,
                 const StripBlock& block, const std::string& what);

}  // namespace fovea::test
