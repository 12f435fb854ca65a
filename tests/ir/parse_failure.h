// How a parse fails: for the tests of error messages.
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "ir/parse.h"

namespace fovea::ir {

struct Failure {
  std::string message;  // the first line
  int column = -1;      // of the caret in the text that is shown above it; -1: no place is shown
};

inline Failure failure_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const InvalidArgument& error) {
    const std::string all = error.what();
    const std::size_t line = all.find('\n');
    if (line == std::string::npos) return {all, -1};
    const std::size_t caret_line = all.find('\n', line + 1);
    const std::size_t indent = 3;  // the newline and two spaces
    return {all.substr(0, line), static_cast<int>(all.find('^', caret_line) - caret_line - indent)};
  }
  return {"nothing was wrong", -1};
}

// A formula that may use a tensor of rank 1, one of rank 2 and a scalar.
inline Expr parse_with_captures(const std::string& text) {
  Declarations declarations;
  declare(declarations, parse_tensor("slopes:f32[H]"));
  declare(declarations, parse_tensor("doc:i32[B,Sq]"));
  declare(declarations, parse_scalar("cap=30"));
  return parse_formula(text, declarations);
}

}  // namespace fovea::ir
