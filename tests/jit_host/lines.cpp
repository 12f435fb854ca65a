#include "tests/jit_host/lines.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "engines/jit/compiler.h"
#include "tests/conformance/trial.h"
#include "tests/ir/random.h"
#include "tests/jit_host/launch.h"

namespace fovea::on_host {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr const char* engine = "jit";
constexpr const char* device = "cuda:0";

// Engine jit may refuse what engine cpu refuses too, and backwards of wide heads. The test
// DescribedJit pins which.
bool may_refuse(const std::string& code, const conformance::Case& problem) {
  return code == "head_dim" || code == conformance::verdict("cpu", problem);
}

}  // namespace

std::string complaint(const conformance::Case& problem) try {
  const std::string code = conformance::verdict(engine, problem, device);
  if (code != "pass") return may_refuse(code, problem) ? "" : "refused: " + code;
  const std::vector<std::string> all = conformance::complaints(problem, engine, device);
  return all.empty() ? "" : all.front();
} catch (const std::exception& error) {
  return error.what();
}

double env_number(const char* name, double otherwise) {
  const char* const given = std::getenv(name);
  return given != nullptr ? std::atof(given) : otherwise;
}

std::uint64_t seed_of_this_run() {
  if (std::getenv("FOVEA_TEST_SEED") != nullptr) return test::test_seed();
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                    std::chrono::seconds(1));
}

Budget::Budget(double seconds)
    : start_(SteadyClock::now()),
      seconds_(seconds),
      for_ever_(env_number("FOVEA_TEST_ALL", 0) != 0) {}

double Budget::elapsed() const {
  return std::chrono::duration<double>(SteadyClock::now() - start_).count();
}

namespace {

class HostCompiler : public jit::Compiler {
 public:
  std::string problem() const override { return ""; }
  std::string target(const Device&) const override { return "host"; }
  jit::CompiledKernel compile(const jit::TranslationUnit& unit, const std::string&) const override
      try {
    const std::string object = compile_on_host(unit.source);
    return {{object.begin(), object.end()}, ""};
  } catch (const std::runtime_error& error) {
    throw InternalError(unit.name + ": " + error.what());
  }
};

}  // namespace

void use_host_gpu() {
  // On few multiprocessors a block that stays takes many tiles: in three runs of four.
  const char* const multiprocessors[] = {"1", "2", "3", "132"};
  ::setenv("FOVEA_HOST_GPU_MULTIPROCESSORS", multiprocessors[seed_of_this_run() / 4 % 4], 0);
  ::setenv("FOVEA_CACHE_DIR", "off", 1);  // compile_on_host has a cache of its own
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "host-gpu";
  if (dlopen((folder / "libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw std::runtime_error(dlerror());
  }
  static const HostCompiler& compiler = *new HostCompiler;
  jit::replace_compiler(&compiler);
}

}  // namespace fovea::on_host
