// Rendered formulas compiled by the host's compiler and loaded: many in one translation unit, since
// starting the compiler takes as long as compiling dozens of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engines/jit/render.h"
#include "ir/eval.h"
#include "ir/range.h"
#include "tests/engines/jit/probe.h"

namespace fovea::test {

// Device code compiled by the host's compiler when a test runs, and loaded. Its headers see
// host_numbers.h instead of a GPU.
class HostLibrary {
 public:
  HostLibrary() = default;
  ~HostLibrary();
  HostLibrary(const HostLibrary&) = delete;
  HostLibrary& operator=(const HostLibrary&) = delete;

  // `text` may include headers of src/ and tests/, as other sources do.
  // Returns what the compiler says if it fails; empty: it is loaded.
  std::string build(const std::string& text);

  template <class Function>
  Function* find(const std::string& name) const {
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const std::string& name) const;
  void* library_ = nullptr;
};

class RenderedCode {
 public:
  // A formula to be asked by its number, the first is 0. It must have a gradient.
  void add(const jit::Rendered& rendered, const jit::RenderOptions& options);
  // What the compiler says if it fails; empty: all is loaded.
  std::string build();

  ProbeAnswer ask(std::size_t number, const Probe& probe) const;

 private:
  std::string text_;
  std::size_t count_ = 0;
  using Function = void(const Probe*, ProbeAnswer*);
  HostLibrary library_;
  std::vector<Function*> functions_;
};

// Words of a call as the layout has them. Scalars lie in `scalars` and are read there if
// `by_address`.
std::vector<long long> pack_words(const jit::Rendered& rendered, const ir::Program& program,
                                  std::span<const ir::TensorView> tensors,
                                  std::span<const ir::ScalarValue> scalars, bool by_address);

// A point, and a box that has it alone.
Probe probe_at(const ir::Point<float>& point, std::span<const long long> words);

}  // namespace fovea::test
