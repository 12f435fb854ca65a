// The exceptions inside Fovea, by who is to blame: the caller, the device (a library, a driver), or
// Fovea. An engine that cannot run a problem says so by a value with reasons; Unsupported is thrown
// if a caller asks for such a run all the same. src/capi turns exceptions into statuses.
#pragma once

#include <stdexcept>
#include <string>

namespace fovea {

// The caller's mistake. The text names the argument, its value and the rule it breaks.
class InvalidArgument : public std::runtime_error {
 public:
  explicit InvalidArgument(const std::string& text) : std::runtime_error(text) {}
};

// A library or a device failed. The text names the library, the call, its code and its message.
class DeviceError : public std::runtime_error {
 public:
  explicit DeviceError(const std::string& text) : std::runtime_error(text) {}
};

// A bug in Fovea.
class InternalError : public std::runtime_error {
 public:
  explicit InternalError(const std::string& text)
      : std::runtime_error("internal error in Fovea (please report it): " + text) {}
};

// No engine can run what was asked for. The text has every engine's reasons.
class Unsupported : public std::runtime_error {
 public:
  explicit Unsupported(const std::string& text) : std::runtime_error(text) {}
};

}  // namespace fovea
