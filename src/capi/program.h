// The handle of a Program.
#pragma once

#include <string>
#include <vector>

#include "fovea/fovea.h"
#include "ir/program.h"

struct fovea_program_s {
  explicit fovea_program_s(const char* line);
  fovea_program_s(fovea::ir::Program made, fovea::ir::Literals kind);

  // Literals that were rounded to f32 are read again from the text.
  fovea::ir::Program with_literals(fovea::ir::Literals kind) const;

  fovea::ir::Literals literals;
  std::string text;  // as it was given; empty: to be printed
  fovea::ir::Program program;
  std::vector<std::string> extents;  // of each tensor: "H,129"

 private:
  void describe_extents();
};
