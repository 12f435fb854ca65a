// One operation of a formula as text: an expression over device/math.h.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "ir/expr.h"

namespace fovea::jit {

// How functions that decide nothing are computed: namespaces of device/math.h.
struct FunctionAccuracy {
  bool precise = false;
  bool coarse_tanh = false;
};

// The value of `node` if its operands have these names. Leaves, scalars and loads have no rule
// here. `exact`: as ir/arith says; otherwise as `functions` allow.
std::string operation_text(const ir::Node& node, bool exact, std::span<const std::string> args,
                           const FunctionAccuracy& functions);

std::string constant_text(const ir::Node& node);  // of a constant; read back bit for bit
std::string float_text(float value);
std::string int_text(std::int32_t value);
std::string_view type_text(ir::Type type);        // float, int or bool
std::string_view captured_type_text(DType type);  // captured::StoredF16 ...

}  // namespace fovea::jit
