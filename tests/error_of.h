#pragma once

#include <string>

namespace fovea::test {

// The text of the Error that `act` ends with.
template <class Error, class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fovea::test
