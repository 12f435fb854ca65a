#include "tests/host_gpu/host_engine.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "cuda/driver.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/lower.h"
#include "engines/cudnn/plan.h"
#include "planner/planner.h"
#include "tests/host_gpu/spec_graph.h"

namespace fovea::cudnn::on_host {
namespace {

class HostEngine : public Engine {
 public:
  std::string name() const override { return "cudnn_on_host"; }
  Baking bake(const Problem& problem, const Device&) const override { return cudnn::bake(problem); }
  Judged judge(const Baked& baked, const Device&) const override {
    Judged verdict = cudnn::judge(baked.problem, cuda::find_device("cuda:0"));
    if (verdict.answer != Answer::No && baked.problem.dropout > 0) {
      verdict.answer = Answer::No;
      verdict.reasons.push_back({"generator", "the host has none of cuDNN's", "dropout", ""});
    }
    return verdict;
  }
  std::unique_ptr<Plan> compile(const Baked& baked, const Judged& judged,
                                const Device&) const override {
    throw_if_refused(judged);
    std::vector<Slice> slices;
    std::int64_t first = 0;
    for (const std::int64_t batch : batches(baked.problem)) {
      Lowered lowered = lower(baked.problem, batch, workarounds_for(91900, 90));
      auto graph = std::make_shared<const SpecGraph>(lowered.spec);
      slices.push_back({first, batch, std::move(graph), std::move(lowered)});
      first += batch;
    }
    return make_plan(baked.problem, cuda::find_device("cuda:0"), std::move(slices));
  }
};

}  // namespace

void load_host_gpu() {
  ::unsetenv("FOVEA_CUDNN_DIR");  // else it would be a second cuDNN in this process
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "host-gpu";
  for (const char* name :
       {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9"}) {
    if (dlopen((folder / name).c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw std::runtime_error(dlerror());
    }
  }
}

void add_host_engine() { planner().add({new HostEngine, /*only_when_named=*/true}); }

}  // namespace fovea::cudnn::on_host
