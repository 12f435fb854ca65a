// Problem lines as engine jit bakes them, and the device they are compiled for. Shared by the tests
// of its host side.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "attention/device.h"
#include "attention/problem_text.h"
#include "engines/jit/bake.h"

namespace fovea::jit::testing {

inline Problem forward_of(const std::string& line) { return *parse_problem_line(line).forward; }
inline Problem backward_of(const std::string& line) {
  return *parse_problem_line(line + " direction=backward").backward;
}
inline Baked baked_forward(const std::string& line) { return bake(forward_of(line)).baked; }
inline Baked baked_backward(const std::string& line) { return bake(backward_of(line)).baked; }

}  // namespace fovea::jit::testing
