// A program with data for what it captures, to be evaluated position by position and classified
// tile by tile. The one place where the command line meets the library.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "line.h"
#include "picture.h"

namespace fovea::cli {

class BoundProgram {
 public:
  // Parses the program and makes the test data; errors are those of the parser.
  explicit BoundProgram(const Line& line);
  ~BoundProgram();

  bool has_mask() const;
  bool has_mod() const;
  std::string mask_text() const;
  std::string mod_text() const;
  // True where the modifier only adds to the score: it can be shown for a score of 0.
  bool is_additive() const;

  struct Position {
    std::int32_t b = 0, h = 0, q = 0, k = 0;
  };
  bool keep(const Position& at) const;
  float modified(const Position& at, float score) const;

  // Rows q0 <= q < q1, columns k0 <= k < k1.
  struct Tile {
    std::int32_t b = 0, h = 0;
    std::int64_t q0 = 0, q1 = 0, k0 = 0, k1 = 0;
  };
  TileClass classify(const Tile& tile) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The derivatives of a program's mod as text, one paragraph each, for people.
std::string derivative_report(const std::string& program);

}  // namespace fovea::cli
