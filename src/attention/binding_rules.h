// The rules of one call's Bindings against its Problem, one step after the other: tensors, rows,
// sequences, values, then what formulas capture. Allocates nothing unless a rule is broken.
#pragma once

#include "attention/bindings.h"
#include "attention/refuse.h"
#include "attention/rules.h"
#include "attention/validate.h"
#include "base/inline_vector.h"

namespace fovea {

class BindingRules {
 public:
  BindingRules(const CallRules& rules, const Bindings& bindings, bool device_memory);

  // Throws InvalidArgument for the first rule that is broken.
  void check(const Plan& plan);

 private:
  void check_tensors();
  void check_pointers();
  void check_values();
  void check_captured();
  void check_exact_indices();
  void check_workspace(const Plan& plan);

  void check_tensor_gradient(std::size_t slot, bool needed);
  void check_scalar_gradients();

  // A dense block of so many elements. If it is not needed, binding it is an error: the caller
  // expects something that will not happen.
  struct Block {
    ArgumentName name;
    const void* data = nullptr;
    std::int64_t elements = 0, element_bytes = 4;
    bool needed = true, written = false;
  };
  void check_block(const Block& block);
  void check_pointer(const ArgumentName& name, const void* data, std::int64_t alignment) const;
  enum class Side : bool { Queries, Keys };
  Sequences sequences(Side side) const;  // as far as they are known on the host

  // Memory that the call reads or writes. Its region is put together only if its bytes meet those
  // of another, so only the index of the tensor, or the slot of a captured one, is kept.
  struct Held {
    enum class Kind : std::uint8_t { Block, Tensor, Captured, Tangent, Gradient };
    Kind kind = Kind::Block;
    std::size_t index = 0;
    ArgumentName name;
  };
  void check_captured_tensor(const Held& what, const ir::TensorView& bound);
  void hold(const Held& held, const ByteRange& range);
  Region region_of(std::size_t i) const;
  template <class Bound>
  Region captured_region(std::size_t slot, const Bound& bound) const;

  const Problem& problem_;
  const CallRules& rules_;
  const Bindings& bindings_;
  bool device_memory_;
  bool own_sizes_;          // the sizes are the Problem's, which were checked with it
  std::int64_t row_bytes_;  // of one element of lse and its like
  static constexpr std::size_t usual = 32;
  InlineVector<ByteRange, usual> ranges_;
  InlineVector<Held, usual> held_;
};

}  // namespace fovea
