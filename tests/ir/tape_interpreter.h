// Runs a tape the way an engine does: Uniform instructions once, Row ones for every q, Column ones
// for every k, Element ones for every pair, each register a scalar, a vector or a tile by its
// stage. What a register holds after its last reader is poison, so that a register reused too early
// shows.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/eval.h"
#include "ir/tape.h"

namespace fovea::test {

struct TileInputs {
  std::vector<std::int32_t> q, k;
  std::vector<float> score, grad;  // [q, k]
  ir::Point<float> rest;           // b, h, sizes, scalars, tensors
};

class TapeInterpreter {
 public:
  TapeInterpreter(const ir::Tape& tape, const TileInputs& inputs);

  // Output i at place (q, k) of the tile.
  const ir::Cell<float>& output(std::size_t i, std::size_t q, std::size_t k) const;
  // What went wrong: an instruction that reads what is not there (yet, or any more), a register in
  // the wrong stage. Empty if nothing.
  const std::string& fault() const { return fault_; }
  // Whether an index that the tape calls in bounds was not.
  bool left_bounds() const { return left_bounds_; }

 private:
  struct Register {
    std::vector<ir::Cell<float>> values;  // as many as its stage has places
    bool live = false;
  };

  void run_stage(ir::Stage stage);
  void run(const ir::Instruction& instruction, std::size_t q, std::size_t k);
  std::size_t place(ir::Stage stage, std::size_t q, std::size_t k) const;
  ir::Cell<float> read(std::uint32_t number, std::size_t q, std::size_t k);
  ir::Cell<float> leaf(const ir::Instruction& instruction, std::size_t q, std::size_t k) const;
  ir::Cell<float> load(const ir::Instruction& instruction, std::size_t q, std::size_t k);
  void find_last_reads();

  const ir::Tape& tape_;
  const TileInputs& inputs_;
  std::vector<Register> registers_;
  std::vector<std::vector<std::uint32_t>> dies_after_;  // by instruction
  std::string fault_;
  bool left_bounds_ = false;
};

}  // namespace fovea::test
