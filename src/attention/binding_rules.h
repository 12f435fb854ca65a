// The rules of one call's Bindings against its Problem, one step after the other. Split over
// validate_bindings (tensors, rows, sequences, values) and validate_captured (what formulas
// capture). Used by those two only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/bindings.h"
#include "attention/memory.h"
#include "attention/sequences.h"

namespace fovea {

class Plan;

class BindingRules {
 public:
  BindingRules(const Problem& problem, const Bindings& bindings, bool device_memory);

  // Throws InvalidArgument for the first rule that is broken.
  void check(const Plan& plan);

 private:
  void check_tensors();
  void check_rows();
  void check_sequences_of_call();
  void check_values();
  void check_captured();
  void check_exact_indices();
  void check_workspace(const Plan& plan);

  void check_captured_tensor(std::size_t slot);
  void check_tensor_gradient(std::size_t slot, bool wanted);
  void check_scalar_gradients();

  // A dense block of so many elements. Where it is not needed it must not be bound: whoever binds
  // it expects something of it.
  struct Block {
    std::string_view name;
    const void* data = nullptr;
    std::int64_t elements = 0, element_bytes = 4;
    bool needed = true, written = false;
  };
  void check_block(const Block& block);
  void check_pointer(std::string_view name, const void* data, std::int64_t alignment) const;
  Sequences query_sequences() const;  // what is known on the host
  Sequences key_sequences() const;

  const Problem& problem_;
  const Bindings& bindings_;
  bool device_memory_;
  std::int64_t row_bytes_;  // of one element of lse and its like
  std::vector<Region> regions_;
  std::vector<std::string> names_;  // of captured things, which regions_ points into
};

}  // namespace fovea
