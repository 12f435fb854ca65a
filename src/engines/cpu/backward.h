// The backward, from O, lse and their gradients alone. The keys of a head are split into chunks. A
// chunk owns dK and dV of its keys and sums them over all query rows in order; dQ is summed per
// chunk and added up chunk after chunk. Five products per tile:
//   S = Q K^T,  dP = dO V^T,  dV += P^T dO,  dQ += dS K,  dK += dS^T Q.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engines/cpu/block_formulas.h"
#include "engines/cpu/call.h"
#include "engines/cpu/keys.h"

namespace fovea::cpu {

// Roots of the backward's formulas in Prepared::mod: the modified score; then, in the second phase,
// the gradient by the score and the roots of CapturedGradients.
inline constexpr std::size_t score_root = 0, gradient_root = 1, first_captured_root = 2;

// dK and dV of a chunk, or what one part of the query rows adds to them. Empty if they are not
// wanted.
struct KeySums {
  KeySums() = default;
  KeySums(Arena& arena, const Prepared& plan, const Sizes& sizes);

  Panels k, v;
  std::span<float> all;  // both
};

// The memory of one worker.
struct BackwardWorker {
  BackwardWorker(Arena& arena, const Prepared& plan, const Sizes& sizes);

  Panels scores;             // S, then dS
  Panels grad_p;             // dP, then P
  KeySums sums, part;        // of a chunk, and of one part of the query rows
  std::span<bool> has_sums;  // [panels of a chunk's keys]: whether the sums have begun
  Panels q, grad_o, o;       // of a block, in f32
  Panels p_rows, grad_scores_rows, grad_scores_columns;  // Prepared::pairs: P and dS as bf16
  FormulaMemory formulas;
  std::span<double> lse;  // [block_rows], of the tile's scores: RowShifts::of_tile is subtracted
  std::span<float> score_strip, grad_strip;
  std::span<std::uint64_t> live;  // [strip_rows]
  KeepBits drop;
  BalanceSums row_sums;
};

// Query rows of the heads of a wave: [wave][blocks][block_rows].
struct QueryBlocks {
  std::int64_t blocks = 0;     // of a head group, at most
  Panels q, grad_o;            // left factors: q scaled, unless they are pairs
  Panels q_rows, grad_o_rows;  // right factors: the same, or pairs of rows
  std::span<double> lse;       // without Prepared::shift; -inf if a row has no key
  std::span<float> row_term;   // dlse - rowsum(dO * O)
  struct BlockFlags {
    bool q_finite = true, grad_o_finite = true;
    bool has_empty_row = false;  // one without a key
  };
  std::span<BlockFlags> flags;  // [wave][blocks]
  // [wave][blocks][most_chunks]: the tiles of the chunk that the block looks at, weighted by their
  // work. 0: the chunk adds nothing to the block's dQ, nor the block to the chunk's dK and dV.
  std::span<std::uint32_t> row_work;

  std::int64_t number(std::int64_t head_in_wave, std::int64_t block) const {
    return head_in_wave * blocks + block;
  }
  std::span<std::uint32_t, most_chunks> row_work_of(std::int64_t number) const {
    return row_work.subspan(static_cast<std::size_t>(number * most_chunks))
        .first<static_cast<std::size_t>(most_chunks)>();
  }
};

// The memory of one call.
struct BackwardMemory {
  BackwardMemory(Arena& arena, const Prepared& plan, const Sizes& sizes);

  std::span<ir::ScalarValue> scalars;
  WaveKeys keys;
  QueryBlocks queries;
  std::int64_t chunks;  // of a sequence, at most
  ChunkCounts counts;
  Panels grad_q;  // [wave][chunks][blocks][block_rows][d], if the block sees the chunk
  std::span<double> sink_rows;  // [wave][blocks][block_rows]: terms of d sink
  std::span<double> sink;       // [H]
  std::span<std::byte> captured;
  // [wave][chunks][blocks][block_rows], and [CapturedGradients::row_terms] of each. Empty: there
  // are none.
  std::span<RowTotals> row_totals;
  std::span<RowTerm> row_terms;
  // [wave][chunks]: parts that are done of chunks that several tasks share, and [row_parts] KeySums
  // of each. Empty: none is shared.
  std::span<std::uint32_t> parts_done;
  Copies<KeySums> parts;
  Copies<BackwardWorker> workers;
};

void backward(const Call& call, const BackwardMemory& memory);

// Memory of block `block` in one of the panels of QueryBlocks, or in grad_q.
Panels block_of(const Panels& all, const KernelTable& kernels, std::int64_t number,
                std::int64_t columns, std::int64_t rows = block_rows);

}  // namespace fovea::cpu
