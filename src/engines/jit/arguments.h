// What a call passes to its kernels: the workspace, device::CallArguments and the words after it,
// packed from Bindings. Nothing is allocated.
#pragma once

#include <array>
#include <cstdint>

#include "attention/arena.h"
#include "attention/bindings.h"
#include "attention/problem.h"
#include "engines/jit/device/arguments.h"
#include "engines/jit/prepare.h"

namespace fovea::jit {

inline constexpr std::size_t most_summaries = 16;  // tables of minima and maxima of one formula

// The workspace of one call: where each piece lies, and how much all of them take.
struct CallWorkspace {
  // Begins `call`: the addresses of pieces and how work is cut with them. Without memory the arena
  // only measures.
  CallWorkspace(Arena& arena, const PreparedPlan& prepared, const Sizes& sizes,
                device::CallArguments& call);

  std::array<void*, most_summaries> summaries{};
  std::int64_t taken_words = 0;  // of CallArguments::taken_tiles
};

// How a forward of few queries splits its keys over the GPU (device/decode.h): keys of a split, a
// multiple of 64; 0: nothing is split. It depends on sizes alone, so that the workspace is known
// before the call; with `deterministic` it does not depend on what else is in the batch.
int split_keys(const Problem& baked, const Sizes& sizes, int multiprocessors);

// Splits of all sequences.
std::int64_t split_slots(const Problem& baked, const Sizes& sizes, int keys);

// A kernel takes so many bytes of parameters, from CUDA 12.1 on.
inline constexpr int most_argument_bytes = 32764;
inline constexpr int most_words =
    (most_argument_bytes - static_cast<int>(device::map_count * sizeof(device::TensorMap)) -
     static_cast<int>(sizeof(device::CallArguments))) /
    8;

// Kernels that take no maps get what follows them.
struct Arguments {
  device::TensorMap maps[device::map_count];
  device::CallArguments call;
  long long words[most_words];
};

// Everything else of a call that its CallWorkspace has begun.
void pack(const PreparedPlan& prepared, const Bindings& bindings, const CallWorkspace& memory,
          Arguments& arguments);

// The widest copy that the address and the strides of dimensions with more than one element allow.
int copy_bytes(const void* data, const Strides& strides, const std::array<std::int64_t, 4>& extents,
               std::int64_t element_bytes);

}  // namespace fovea::jit
