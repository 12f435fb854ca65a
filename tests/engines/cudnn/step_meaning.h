// What each step of a GraphSpec computes, in double: for tests that interpret one.
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "engines/cudnn/graph_spec.h"

namespace fovea::cudnn {

// operand(i) is the value of the step's i-th one.
template <class Operand>
double meaning(Mode mode, const Operand& operand) {
  const auto x = [&](std::size_t i) -> double { return operand(i); };
  switch (mode) {
    case Mode::Index: break;  // the interpreter knows where it is
    case Mode::Add: return x(0) + x(1);
    case Mode::Sub: return x(0) - x(1);
    case Mode::Mul: return x(0) * x(1);
    case Mode::Div: return x(0) / x(1);
    case Mode::Min: return std::fmin(x(0), x(1));
    case Mode::Max: return std::fmax(x(0), x(1));
    case Mode::Pow: return std::pow(x(0), x(1));
    case Mode::Neg: return -x(0);
    case Mode::Abs: return std::abs(x(0));
    case Mode::Reciprocal: return 1 / x(0);
    case Mode::Exp: return std::exp(x(0));
    case Mode::Log: return std::log(x(0));
    case Mode::Sqrt: return std::sqrt(x(0));
    case Mode::Rsqrt: return 1 / std::sqrt(x(0));
    case Mode::Tanh: return std::tanh(x(0));
    case Mode::Sigmoid: return 1 / (1 + std::exp(-x(0)));
    case Mode::Softplus: return std::max(x(0), 0.0) + std::log1p(std::exp(-std::abs(x(0))));
    case Mode::Erf: return std::erf(x(0));
    case Mode::Sin: return std::sin(x(0));
    case Mode::Cos: return std::cos(x(0));
    case Mode::Tan: return std::tan(x(0));
    case Mode::Floor: return std::floor(x(0));
    case Mode::Ceil: return std::ceil(x(0));
    case Mode::Convert: return x(0);
    case Mode::Less: return x(0) < x(1);
    case Mode::LessEqual: return x(0) <= x(1);
    case Mode::Greater: return x(0) > x(1);
    case Mode::GreaterEqual: return x(0) >= x(1);
    case Mode::Equal: return x(0) == x(1);
    case Mode::NotEqual: return x(0) != x(1);
    case Mode::Select: return x(0) != 0 ? x(1) : x(2);
  }
  throw std::logic_error("a step of no mode, or the position");
}

}  // namespace fovea::cudnn
