// A whole valid call through the C interface with memory of its own, for tests that look at what it
// gives or break one thing in it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fovea/fovea.h"

namespace fovea::testing {

struct DestroyHandle {
  void operator()(fovea_program handle) const { fovea_program_destroy(handle); }
  void operator()(fovea_problem handle) const { fovea_problem_destroy(handle); }
  void operator()(fovea_plan handle) const { fovea_plan_destroy(handle); }
  void operator()(fovea_report handle) const { fovea_report_destroy(handle); }
};
template <class Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyHandle>;

Owned<fovea_problem> parse_problem(const std::string& line);  // the backward of direction=backward
Owned<fovea_program> parse_program(const std::string& line);
std::string text_of(fovea_report report);  // and destroys it
fovea_cache_stats statistics();            // of the cache of plans

// Everything that the problem of the line has is bound, dense; random but always the same data.
class CCall {
 public:
  explicit CCall(const std::string& line);

  fovea_status run() { return fovea_plan_run(plan.get(), &bindings); }
  // "accepted", or the name of the status and the text.
  std::string outcome();
  float* floats(const std::string& name) { return static_cast<float*>(memory(name)); }
  void* memory(const std::string& name) { return blocks_.at(name).get(); }

  Owned<fovea_problem> problem;
  Owned<fovea_plan> plan;
  fovea_problem_config config{};
  fovea_bindings bindings{};
  std::vector<fovea_tensor_binding> tensors;
  std::vector<fovea_scalar_binding> scalars;

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  void* allocate(const std::string& name, std::size_t elements);
  void bind_tensors();
  void bind_rows();
  void bind_sequences();
  void bind_captured();
  bool wants(const std::string& name) const;

  std::map<std::string, std::unique_ptr<std::byte[], Free>> blocks_;
};

inline fovea_plan_options reference_options() {
  return {sizeof(fovea_plan_options), "reference", nullptr, nullptr};
}

}  // namespace fovea::testing
