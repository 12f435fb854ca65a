// What a kernel must not do: thrown where it does it, caught at the bottom of its thread, reported
// by launch.
#pragma once

#include <stdexcept>
#include <string>

#include "tests/jit_host/machine.h"

namespace fovea::on_host {

struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string text(const Where& where) {
  const std::string file = where.file;
  const std::size_t slash = file.rfind('/');
  return (slash == std::string::npos ? file : file.substr(slash + 1)) + ":" +
         std::to_string(where.line);
}

}  // namespace fovea::on_host
