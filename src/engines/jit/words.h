// Where the words of a call are: ArgumentsOf::words of device/arguments.h, 8 bytes each. The
// renderer lays them out and writes formulas that read them there; a plan packs them for each call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/problem.h"
#include "engines/jit/device/captured_arguments.h"
#include "ir/expr.h"

namespace fovea::jit {

// Offsets of words; -1: the plan has no use for it.
//
// A tensor, or the gradient of one: its address, then extent and stride (in elements) of each
// index. Extents above 2^31 - 1 are packed as 2^31 - 1, since no index reaches further. A tensor
// with nothing in it, or without an address, is packed as all zeros: it reads as 0.
//
// A scalar: the address of its value on the device, or 0; then the value's bits in the low half.
struct WordLayout {
  std::vector<int> tensors;           // by slot
  std::vector<int> tensor_gradients;  // by slot
  std::vector<int> scalars;           // by slot of the baked program: declared ones, then literals
  std::vector<int> scalar_gradients;  // by slot: the address alone
  int count = 0;

  static constexpr int extent(int tensor, int index) { return tensor + 1 + 2 * index; }
  static constexpr int stride(int tensor, int index) { return tensor + 2 + 2 * index; }
};

// Minima and maxima of a captured tensor along one index, by blocks of 64 elements, for classify():
// what device/summarize.h computes before the kernels run. The table has two 4-byte words (lowest,
// highest; f32 or i32) for each block: dense over the tensor's other indices in their order, the
// blocks fastest. `address` is its word; 0 there: no table, tiles are classified without it.
struct Summary {
  std::uint32_t slot = 0;
  int index = 0;     // which of the tensor's indices is cut into blocks
  int address = -1;  // offset of the word
};
using device::summary_block;

// Bytes of a summary's table if the tensor has these extents.
std::int64_t summary_bytes(const Summary& summary, std::span<const std::int64_t> extents);

// Words for what these formulas read and what the problem wants gradients of. Summaries are added
// behind them by the renderer.
WordLayout lay_out_words(const Problem& baked, std::span<const ir::Expr> roots);

}  // namespace fovea::jit
