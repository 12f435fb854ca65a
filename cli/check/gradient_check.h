// Finite differences: is the reference engine's backward the derivative of its forward? Both in
// double precision, on a sample of coordinates and along random directions of every input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/check/workload.h"

namespace fovea::cli {

struct GradientCheck {
  std::string name;  // of the gradient: dq, d_slopes
  int samples = 0;   // compared
  int kinks = 0;     // left out: the function bends or jumps there, so differences mean nothing
  double error = 0;  // largest, relative to the gradient's size
  bool within = true;
  std::string complaint;
};

// Scores times features of one forward: what a check costs for each of its runs.
double forward_work(const Workload& workload);

// `samples` coordinates of each wanted gradient and one random direction through all of them.
// `progress` (may be empty) is called with the share that is done.
std::vector<GradientCheck> check_gradients(const Workload& workload, int samples,
                                           const std::function<void(double)>& progress = {});

// The same attention at the same point in double precision, dense, with captured floats in f32: for
// finite differences.
Workload in_double(const Workload& workload);

// The same formulas over captured floats in f32, their widest type; with another mod if it is
// given.
Program widened_program(fovea_program program, const std::string& mod = "");

}  // namespace fovea::cli
