#include "engines/cudnn/graph_spec.h"

#include <bit>

#include "attention/refuse.h"

namespace fovea::cudnn {
namespace {

std::string text(const Ref& ref) {
  return std::string(1, "SGTCN"[static_cast<int>(ref.kind)]) + std::to_string(ref.index);
}

template <class E>
std::string digit(E value) {
  return std::to_string(static_cast<int>(value));
}

}  // namespace

std::string to_text(const GraphSpec& spec) {
  std::string out = "graph backward=" + digit(spec.backward) +
                    " deterministic=" + digit(spec.deterministic) + " stats=" + digit(spec.stats) +
                    " io=" + digit(spec.io) + " padding=" + digit(spec.padding) +
                    " dropout=" + std::to_string(std::bit_cast<std::uint32_t>(spec.dropout)) + "\n";
  for (const GraphTensor& t : spec.tensors) {
    out += "tensor " + std::to_string(t.uid()) + " type=" + digit(t.type) +
           " dim=" + number_list(t.dim) + " stride=" + number_list(t.stride) +
           (t.by_value ? " by value" : "") +
           (t.starts ? " starts=" + std::to_string(*t.starts) : "") + "\n";
  }
  for (const PackedStarts& s : spec.starts) {
    out += "starts of " + std::string(s.of_keys ? "keys" : "queries") + " times " +
           std::to_string(s.row_stride) + "\n";
  }
  for (const Constant& c : spec.constants) {
    out += "constant type=" + digit(c.type) + " " +
           std::to_string(std::bit_cast<std::uint32_t>(c.real)) + " " + std::to_string(c.whole) +
           "\n";
  }
  for (const GraphStep& s : spec.steps) {
    out += "step " + digit(s.mode) + " type=" + digit(s.type) + " axis=" + std::to_string(s.axis);
    for (int i = 0; i < s.operand_count; ++i) {
      out += " " + text(s.operands[static_cast<std::size_t>(i)]);
    }
    out += "\n";
  }
  out += "modified " + text(spec.modified) +
         " forward_steps=" + std::to_string(spec.forward_steps) + "\n";
  if (spec.bprop) out += "bprop " + text(*spec.bprop) + "\n";
  if (spec.band.left) out += "left " + std::to_string(*spec.band.left) + "\n";
  if (spec.band.right) out += "right " + std::to_string(*spec.band.right) + "\n";
  if (spec.band.bottom_right) out += "bottom right\n";
  return out;
}

}  // namespace fovea::cudnn
