// Expressions and Programs to text. The canonical text reads back as the same object and is what
// every front end, log, cache listing and error shows; the indented one is for people.
#pragma once

#include <string>

#include "ir/program.h"

namespace fovea::ir {

// On one line: let t0 = ...; let t1 = ...; value. What is used more than once is named.
std::string print(const Expr& expr, const Declarations& names, Literals literals = Literals::F32);

// The canonical line: mod="..." mask="..." tensor="..." scalar="..." with defaults and test data.
// It reads back with literals of the same kind.
std::string print(const Program& program, Literals literals = Literals::F32);
std::string print(const TensorDecl& tensor);
std::string print(const ScalarDecl& scalar, Literals literals = Literals::F32);

// One `let` a line, long chains broken at their weakest operator.
std::string print_indented(const Expr& expr, const Declarations& names);
std::string print_indented(const Program& program);

}  // namespace fovea::ir
