// Where the sequences of packed tensors lie: what two small kernels compute on the GPU from the
// starts and lengths that a call binds, since the host must not wait for them. The arithmetic is
// here, compiled for the GPU by packed_rows.cu and for the host by its tests. Plain data and
// nothing else included, so that both sides agree on it.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FOVEA_ON_BOTH __host__ __device__
#else
#define FOVEA_ON_BOTH
#endif

namespace fovea::cudnn {

inline constexpr int most_start_tables = 12;
inline constexpr int most_cleared = 3;

// The sequences of queries, or those of keys, as a call binds them.
struct PackedSide {
  const std::int32_t* starts;   // [batch + 1]
  const std::int32_t* lengths;  // [batch], or null: up to the next start
  std::int64_t rows;            // of the packed tensors
  std::int64_t longest;         // that the graph was made for
};

// Starts in elements of a tensor whose rows lie `row_stride` apart.
struct StartTable {
  std::int64_t* out;  // [graph_batch + 1]
  std::int64_t row_stride;
  std::int32_t of_keys;
};

struct PackedTables {
  PackedSide q, k;
  std::int64_t batch;        // sequences of the call
  std::int64_t graph_batch;  // of the graph: those beyond are empty
  std::int32_t* q_lengths;   // [graph_batch]
  std::int32_t* k_lengths;
  std::int32_t table_count;
  StartTable tables[most_start_tables];
};

// Rows of one tensor that belong to no sequence get `value`, a word of 4 bytes.
struct Cleared {
  std::uint32_t* data;
  std::int64_t row_stride, head_stride;  // in words
  std::int32_t heads, words;             // words of a row of one head
  std::uint32_t value;
  std::int32_t of_keys;
};

struct PackedGaps {
  PackedSide q, k;  // lengths as PackedTables wrote them
  std::int64_t batch;
  Cleared tensors[most_cleared];  // one for each z of the grid
};

// lse of [heads, rows] from or to [rows, heads].
struct Transposed {
  const std::uint32_t* from;
  std::uint32_t* to;
  std::int64_t rows;
  std::int32_t heads;
  std::int32_t to_heads_first;
};

// Clamped: starts that are no starts must not lead out of the tensors.
FOVEA_ON_BOTH inline std::int64_t start_of(const PackedSide& side, std::int64_t b) {
  const std::int64_t start = side.starts[b];
  return start < 0 ? 0 : start > side.rows ? side.rows : start;
}

FOVEA_ON_BOTH inline std::int64_t own_length(const PackedSide& side, std::int64_t b) {
  const std::int64_t start = start_of(side, b);
  std::int64_t length = start_of(side, b + 1) - start;
  if (side.lengths != nullptr && side.lengths[b] < length) length = side.lengths[b];
  if (length > side.longest) length = side.longest;
  return length < 0 ? 0 : length;
}

// A sequence without queries has no use for its keys, and one without keys none for its queries:
// both are called empty, since cuDNN makes NaN of queries without keys (9.22, sm_90).
FOVEA_ON_BOTH inline void write_tables(const PackedTables& p, std::int64_t b) {
  const std::int64_t known = b < p.batch ? b : p.batch;
  for (int i = 0; i < most_start_tables; ++i) {
    if (i >= p.table_count) break;
    const StartTable& table = p.tables[i];
    table.out[b] = start_of(table.of_keys != 0 ? p.k : p.q, known) * table.row_stride;
  }
  if (b >= p.graph_batch) return;
  const std::int64_t q = b < p.batch ? own_length(p.q, b) : 0;
  const std::int64_t k = b < p.batch ? own_length(p.k, b) : 0;
  p.q_lengths[b] = static_cast<std::int32_t>(k > 0 ? q : 0);
  p.k_lengths[b] = static_cast<std::int32_t>(q > 0 ? k : 0);
}

// The rows before sequence `gap`, behind the one before it; those behind all of them for `batch`.
struct RowsOfNone {
  std::int64_t first, last;
};
FOVEA_ON_BOTH inline RowsOfNone rows_of_none(const PackedSide& side, std::int64_t gap,
                                             std::int64_t batch) {
  return {gap == 0 ? 0 : start_of(side, gap - 1) + own_length(side, gap - 1),
          gap == batch ? side.rows : start_of(side, gap)};
}

FOVEA_ON_BOTH inline void clear_row(const Cleared& to, std::int64_t row, std::int64_t from,
                                    std::int64_t step) {
  const std::int64_t words = std::int64_t{to.heads} * to.words;
  for (std::int64_t i = from; i < words; i += step) {
    to.data[row * to.row_stride + i / to.words * to.head_stride + i % to.words] = to.value;
  }
}

FOVEA_ON_BOTH inline void transpose_one(const Transposed& t, std::int64_t i) {
  const std::int64_t row = i % t.rows, head = i / t.rows;
  const std::int64_t by_head = head * t.rows + row, by_row = row * t.heads + head;
  if (t.to_heads_first != 0) {
    t.to[by_head] = t.from[by_row];
  } else {
    t.to[by_row] = t.from[by_head];
  }
}

}  // namespace fovea::cudnn
