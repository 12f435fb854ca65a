#include "engines/jit/plan.h"

#include <algorithm>

#include "attention/refuse.h"
#include "cuda/driver.h"
#include "engines/jit/arguments.h"

namespace fovea::jit {
namespace {

// A grid has at most so many blocks along y and z.
constexpr unsigned most_blocks = 65535;

// What a plan baked and a call must not change.
void check_call(const Problem& baked, const Sizes& sizes) {
  const auto check = [](const char* name, std::int64_t features, std::int64_t most) {
    if (features <= most) return;
    refuse(name, features,
           "this plan of engine jit takes head dims up to " + std::to_string(most) +
               "; make a problem with these sizes");
  };
  check("d", sizes.d, baked.sizes.d);
  check("dv", sizes.dv, baked.sizes.dv);
  if (sizes.h > most_blocks) refuse("h", sizes.h, "engine jit takes at most 65535 heads");
}

class JitPlan : public Plan {
 public:
  JitPlan(Prepared prepared, int ordinal, std::vector<cuda::Handle> kernels)
      : prepared_(std::move(prepared)), ordinal_(ordinal), kernels_(std::move(kernels)) {}

  std::size_t workspace_bytes(const Sizes& sizes) const override {
    Arena measure("jit", nullptr);
    Memory(measure, prepared_, sizes);
    return measure.used();
  }

  // Modules stay when the plan goes.
  std::size_t memory_bytes() const override {
    return sizeof *this + prepared_.formula.text.size() +
           prepared_.kernels.size() * sizeof(PreparedKernel);
  }

  void run(const Bindings& bindings) const override {
    check_call(prepared_.baked, bindings.sizes);
    Arena arena("jit", bindings.workspace);
    const Memory memory(arena, prepared_, bindings.sizes);
    Arguments arguments;  // its words are not cleared: there are up to 4000
    pack(prepared_, bindings, memory, arguments);
    const cuda::OnDevice here(ordinal_);
    for (std::size_t i = 0; i < kernels_.size(); ++i) launch(i, arguments, bindings.stream);
  }

 private:
  void launch(std::size_t i, Arguments& arguments, void* stream) const {
    const auto& [row, shape] = prepared_.kernels[i];
    if (row->in_call != nullptr && !row->in_call(arguments.call)) return;
    const Grid whole = row->grid(arguments.call, shape);
    if (whole.x == 0 || whole.y == 0) return;
    const auto chunks = static_cast<unsigned>(shape.dv_chunks);
    const unsigned step = most_blocks / chunks * chunks;
    for (unsigned first = 0; first < whole.z; first += step) {
      Grid grid = whole;
      grid.z = std::min(step, whole.z - first);
      arguments.call.b_first = static_cast<int>(first / chunks);
      cuda::launch(kernels_[i], grid, &arguments, stream,
                   static_cast<unsigned>(shape.shared_bytes));
    }
  }

  Prepared prepared_;
  int ordinal_;
  std::vector<cuda::Handle> kernels_;
};

}  // namespace

std::unique_ptr<Plan> make_plan(Prepared prepared, const Device& device,
                                std::vector<cuda::Handle> kernels) {
  return std::make_unique<JitPlan>(std::move(prepared), device.ordinal, std::move(kernels));
}

}  // namespace fovea::jit
