// Who compiles kernels: NVRTC, or what a test puts in its place (the host's compiler, whose "GPU"
// is the host). The one seam between a kernel's text and what the driver loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/device.h"

namespace fovea::jit {

// A kernel's translation unit.
struct Unit {
  std::string name;  // of its kernel: "fovea_forward"
  std::string source;
};

struct Image {
  std::vector<std::uint8_t> bytes;  // for cuModuleLoadData
  std::string log;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual std::string problem() const = 0;  // why it cannot compile; "" if it can
  // What it compiles for on this device, "sm_90a": what stored kernels are found by.
  virtual std::string target(const Device& device) const = 0;
  // Safe from many threads. Throws InternalError if the text is wrong.
  virtual Image compile(const Unit& unit, const std::string& target) const = 0;
};

const Compiler& compiler();

// For tests: before any plan is made. Null: NVRTC again.
void replace_compiler(const Compiler* instead);

// Options of every compilation: part of what stored kernels depend on.
const std::vector<std::string>& compile_options();

// Writes the text, the image and the log where FOVEA_JIT_KEEP says, if it does.
void keep(const Unit& unit, const std::string& target, const Image& image);

}  // namespace fovea::jit
