// Calls with packed sequences: where they begin and how long they are comes in device memory, and
// cuDNN wants it in other forms, which our own kernels make there (packed_rows.h). So nothing waits
// for the host, and a CUDA graph can be captured.
//
// begin() runs before cuDNN's own work, end() after it. lse is [H, T] to the caller and [T, H] to
// cuDNN; rows that belong to no sequence are written at the end, whatever cuDNN left there.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "attention/bindings.h"
#include "cuda/driver.h"
#include "engines/cudnn/graph_spec.h"
#include "engines/cudnn/packed_rows.h"

namespace fovea::cudnn {

extern const char* const packed_rows_ptx;

class PackedCall {
 public:
  // `graph_batch`: the sequences of all graphs of the plan, of which the last may be empty.
  PackedCall(const Problem& baked, const GraphSpec& spec, std::int64_t graph_batch);

  void load_kernels();  // into the current context, once

  std::size_t bytes(const Sizes& sizes) const;  // of the workspace

  void begin(const Bindings& bindings, std::byte* workspace) const;
  void end(const Bindings& bindings, std::byte* workspace) const;

  bool has(const GraphTensor& tensor) const;  // whether it lies in this part of the workspace
  void* pointer(const GraphTensor& tensor, const Sizes& sizes, std::byte* workspace,
                std::int64_t first) const;

  // What the kernels get, for tests.
  PackedTables tables(const Bindings& bindings, std::byte* workspace) const;
  PackedGaps gaps(const Bindings& bindings, std::byte* workspace) const;
  std::int64_t cleared_count() const;

 private:
  // The blocks of the workspace, one after the other.
  struct WorkspaceBlocks {
    std::size_t q_lengths, k_lengths, starts, stats, grad_q, grad_k, grad_v, end;
  };
  WorkspaceBlocks places(const Sizes& sizes) const;
  std::size_t start_bytes() const;
  bool has_stats() const { return backward_ || writes_lse_; }
  void transpose(const Bindings& bindings, std::byte* workspace) const;

  // Of a gradient that is not wanted, but written: 0 if it is wanted.
  struct Unwanted {
    std::int64_t q = 0, k = 0, v = 0;
  };

  std::vector<PackedStarts> starts_;
  Unwanted row_bytes_;
  std::int64_t graph_batch_, longest_q_, longest_k_;
  bool backward_, writes_lse_, want_q_, want_k_, want_v_;
  cuda::Handle make_tables_ = nullptr, clear_ = nullptr, transpose_ = nullptr;  // kernels
};

}  // namespace fovea::cudnn
