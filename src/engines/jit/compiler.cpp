#include "engines/jit/compiler.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/env.h"
#include "base/error.h"
#include "cuda/nvrtc.h"
#include "store/store.h"

namespace fovea::jit {
namespace {

namespace fs = std::filesystem;

// Those of NVRTC 13, assumed if there is none here: kernels that another machine stored are found
// by them.
constexpr std::array architectures_of_13{75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

bool write(const fs::path& file, const void* data, std::size_t bytes) {
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  return static_cast<bool>(out.flush());
}

// Named by the text itself, so that the same text has the same file.
std::string file_name(const TranslationUnit& unit, const std::string& target) {
  const std::string hash = store::name_of({"jit", target, unit.source});
  return unit.name + "_" + target + "_" + hash.substr(0, 12);
}

// Where the text of a kernel that does not compile can be looked at.
std::string save_text(const TranslationUnit& unit, const std::string& target) {
  std::error_code ignored;
  const auto asked = env_value(Env::JitKeep);
  fs::path folder = asked ? fs::path(*asked) : fs::temp_directory_path(ignored);
  fs::create_directories(folder, ignored);
  const fs::path file = folder / (file_name(unit, target) + ".cu");
  return write(file, unit.source.data(), unit.source.size()) ? file.string() : "";
}

class Nvrtc : public Compiler {
 public:
  std::string problem() const override { return cuda::nvrtc_library().problem; }

  std::string target(const Device& device) const override {
    const cuda::NvrtcLibrary& library = cuda::nvrtc_library();
    if (library.usable()) return cuda::architecture_for(device.sm, library.architectures);
    return cuda::architecture_for(device.sm, architectures_of_13);
  }

  CompiledKernel compile(const TranslationUnit& unit, const std::string& target) const override {
    cuda::NvrtcRequest request{unit.source, unit.name + ".cu", target, compile_options(), {}};
    request.options.emplace_back("--ptxas-options=-v");  // changes the log alone
    cuda::NvrtcResult result = cuda::nvrtc_compile(request);
    if (!result.compiled) {
      const std::string file = save_text(unit, target);
      throw InternalError("NVRTC does not compile " + unit.name + " for " + target +
                          (file.empty() ? "" : "; the text is in " + file) + ":\n" +
                          result.log.substr(0, 4000));
    }
    return {std::move(result.image), std::move(result.log)};
  }
};

const Compiler*& current() {
  static const Compiler* instead = nullptr;
  return instead;
}

}  // namespace

const Compiler& compiler() {
  static const Nvrtc& nvrtc = *new Nvrtc;
  return current() != nullptr ? *current() : nvrtc;
}

void replace_compiler(const Compiler* instead) { current() = instead; }

// No fast math: decisions are computed with operations that round once and are never contracted.
const std::vector<std::string>& compile_options() {
  static const std::vector<std::string>& options =
      *new std::vector<std::string>{"--std=c++17", "-default-device", "--fmad=true"};
  return options;
}

void keep(const TranslationUnit& unit, const std::string& target, const CompiledKernel& image) {
  const auto folder = env_value(Env::JitKeep);
  if (!folder) return;
  std::error_code ignored;
  fs::create_directories(*folder, ignored);
  const fs::path stem = fs::path(*folder) / file_name(unit, target);
  write(stem.string() + ".cu", unit.source.data(), unit.source.size());
  write(stem.string() + ".cubin", image.bytes.data(), image.bytes.size());
  write(stem.string() + ".log", image.log.data(), image.log.size());
}

}  // namespace fovea::jit
