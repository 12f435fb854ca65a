// Numbers as cases.txt writes them: sums, products and quotients of numbers, ln(x) and exp(x), in
// double and without spaces. Not the formula language, which folds constants in f32.
#pragma once

#include <string>

namespace fovea::test {

double parse_number(const std::string& text);  // throws std::invalid_argument

}  // namespace fovea::test
