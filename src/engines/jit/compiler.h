// Who compiles kernels: NVRTC, or what a test puts in its place (the host's compiler, whose "GPU"
// is the host). A kernel's text goes in, what the driver loads comes out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/device.h"

namespace fovea::jit {

struct TranslationUnit {
  std::string name;  // of its kernel: "fovea_forward"
  std::string source;
};

struct CompiledKernel {
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
  virtual CompiledKernel compile(const TranslationUnit& unit, const std::string& target) const = 0;
};

const Compiler& compiler();

// For tests: before any plan is made. Null: NVRTC again.
void replace_compiler(const Compiler* instead);

// Options of every compilation: part of what stored kernels depend on.
const std::vector<std::string>& compile_options();

// Writes the text, the image and the log where FOVEA_JIT_KEEP says, if it does.
void keep(const TranslationUnit& unit, const std::string& target, const CompiledKernel& image);

}  // namespace fovea::jit
