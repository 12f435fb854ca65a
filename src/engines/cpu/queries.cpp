#include "engines/cpu/queries.h"

#include <algorithm>
#include <cmath>

namespace fovea::cpu {
namespace {

struct NumberedBlock : QueryBlock {
  std::int64_t number = 0;  // in QueryBlocks
};

// Nothing: the sequence has fewer blocks.
std::optional<NumberedBlock> find(const Call& call, const BackwardMemory& memory, const Wave& wave,
                                  std::int64_t number) {
  const std::int64_t i = number / memory.queries.blocks, index = number % memory.queries.blocks;
  const auto block = call.query_block(call.key_head(wave.first + i), index);
  if (!block) return {};
  return NumberedBlock{*block, number};
}

// lse and dlse - rowsum(dO * O); that sum stands in row_term already. A row without any key has no
// gradients, whatever stands in its q, o and dO.
void read_row_values(const Call& call, const BackwardMemory& memory, const NumberedBlock& at,
                     std::span<const float> shift) {
  const std::int64_t first = at.number * block_rows;
  for (int r = 0; r < at.all_rows(); ++r) {
    const std::int64_t head = at.head_of(r), row = at.sequence.q_first + at.position_of(r);
    const std::int64_t from = call.geometry.row_number(at.sequence.b, head, row);
    const auto to = static_cast<std::size_t>(first + r);
    const float lse = static_cast<const float*>(call.bound.lse)[from];
    const bool empty = lse == minus_infinity;
    float term = -memory.queries.row_term[to];
    if (call.baked.grad_lse) term += static_cast<const float*>(call.bound.grad_lse)[from];
    const auto row_shift = static_cast<double>(shift[static_cast<std::size_t>(r)]);
    memory.queries.lse[to] = static_cast<double>(lse) - (empty ? 0 : row_shift);
    memory.queries.row_term[to] = term;
    if (empty) memory.queries.flags[static_cast<std::size_t>(at.number)].has_empty_row = true;
    if (call.baked.want_sink) {
      const double sink = static_cast<double>(static_cast<const float*>(call.bound.sink)[head]);
      const double share = std::exp(sink - static_cast<double>(lse));
      memory.sink_rows[to] = empty ? 0 : share * static_cast<double>(term);
    }
  }
}

// The rows of a block in f32, one head's after the other. Returns whether they are finite.
bool pack_rows(const Call& call, const NumberedBlock& at, const BoundTensor& tensor,
               const TensorSpec& spec, float factor, const Panels& to) {
  const bool of_q = &tensor == &call.bound.q;
  const auto columns = static_cast<int>(of_q ? call.sizes.d : call.sizes.dv);
  const std::int64_t row = at.sequence.q_first + at.position;
  const int rows = at.rows;
  bool finite = true;
  for (int i = 0; i < at.heads; ++i) {
    const Strided from = call.rows(tensor, spec, call.batch(at.sequence), at.first_head + i, row);
    finite &= call.kernels.pack(from, rows, columns, factor,
                                from_row(to, i * rows, call.kernels.panel_width), rows);
  }
  return finite;
}

// From f32, which holds bf16 exactly, to pairs of columns and pairs of rows.
void pair_up(const Call& call, const BackwardMemory& memory, const NumberedBlock& at,
             const BackwardWorker& mine) {
  const QueryBlocks& queries = memory.queries;
  const KernelTable& kernels = call.kernels;
  const auto narrow = [&](const Panels& from, std::int64_t columns, const Panels& by_columns,
                          const Panels& by_rows) {
    const MatrixPart all{0, at.all_rows(), 0, static_cast<int>(columns)};
    kernels.pairs->narrow(from, all,
                          block_of(by_columns, kernels, at.number, call.plan.cells(columns)));
    kernels.pairs->narrow_rows(from, all,
                               block_of(by_rows, kernels, at.number, columns, block_rows / 2));
  };
  narrow(mine.q, call.sizes.d, queries.q, queries.q_rows);
  narrow(mine.grad_o, call.sizes.dv, queries.grad_o, queries.grad_o_rows);
}

void find_row_work(const Call& call, const BackwardMemory& memory, const NumberedBlock& at,
                   int worker) {
  const std::int64_t head_in_wave = at.number / memory.queries.blocks;
  const std::int64_t tiles = chunk_tiles(at.sequence.k_length);
  const auto of_chunk = memory.queries.row_work_of(at.number);
  std::ranges::fill(of_chunk, 0u);
  TileWalk walk(call.plan.tiles, memory.keys.walk(worker));
  walk.start(call.keys(at), memory.keys.table(head_in_wave), rows_seen(call, at));
  for (Tile tile; walk.next(tile);) {
    of_chunk[static_cast<std::size_t>(tile.number / tiles)] +=
        tile.full ? work_of_full_tile : work_of_cut_tile;
  }
}

void read_block(const Call& call, const BackwardMemory& memory, const NumberedBlock& at,
                const BackwardWorker& mine) {
  const KernelTable& kernels = call.kernels;
  const bool pairs = call.plan.pairs;
  const Panels q = pairs ? mine.q : block_of(memory.queries.q, kernels, at.number, call.sizes.d);
  const Panels grad_o =
      pairs ? mine.grad_o : block_of(memory.queries.grad_o, kernels, at.number, call.sizes.dv);
  QueryBlocks::BlockFlags flags;
  flags.q_finite = pack_rows(call, at, call.bound.q, call.baked.q, pairs ? 1 : call.scale, q);
  flags.grad_o_finite = pack_rows(call, at, call.bound.grad_o, call.baked.grad_o, 1, grad_o);
  pack_rows(call, at, call.bound.o, call.baked.o, 1, mine.o);
  memory.queries.flags[static_cast<std::size_t>(at.number)] = flags;
  if (pairs) pair_up(call, memory, at, mine);
  float* const dots = memory.queries.row_term.data() + at.number * block_rows;
  kernels.row_dots(grad_o, mine.o, at.all_rows(), static_cast<int>(call.sizes.dv), dots);
  const RowShifts& shifts = mine.formulas.shifts;
  shifts.start(call, at);
  read_row_values(call, memory, at, shifts.shift);
}

// dQ of all chunks that the block sees some of, in order, into the place of the first chunk: rows
// from `first` of the block on, as many as at.block has.
void write_rows(const Call& call, const BackwardMemory& memory, const NumberedBlock& at,
                int first) {
  const KernelTable& kernels = call.kernels;
  const int d = static_cast<int>(call.sizes.d), width = kernels.panel_width;
  const std::int64_t blocks = memory.queries.blocks;
  const std::int64_t i = at.number / blocks, index = at.number % blocks;
  const std::int64_t floats = at.all_rows() * std::int64_t{width};
  const auto place = [&](std::int64_t c) {
    const Panels all =
        block_of(memory.grad_q, kernels, (i * memory.chunks + c) * blocks + index, d);
    return from_row(all, first, width);
  };
  const Panels sum = place(0);
  const auto row_work = memory.queries.row_work_of(at.number);
  for (std::int64_t column = 0; column < d; column += width) {
    float* const to = from_column(sum, column).data;
    const float* terms[most_chunks];
    int count = 0;
    for (std::int64_t c = 0; c < chunk_count(at.sequence.k_length); ++c) {
      if (row_work[static_cast<std::size_t>(c)] == 0) continue;
      terms[count++] = from_column(place(c), column).data;
    }
    if (count == 0) {
      std::fill_n(to, floats, 0.0f);
    } else {
      kernels.add_up(to, terms, count, floats);
    }
  }
  float scale[block_rows];
  std::fill_n(scale, block_rows, call.scale);
  for (int h = 0; h < at.heads; ++h) {
    kernels.unpack(from_row(sum, h * at.rows, width), at.rows, d, scale,
                   call.rows(call.bound.grad_q, call.baked.grad_q, call.batch(at.sequence),
                             at.first_head + h, at.sequence.q_first + at.position));
  }
}

// One half of a block's rows. The first half of a block of several heads is all of it.
void write_half(const Call& call, const BackwardMemory& memory, NumberedBlock at, bool second) {
  const int middle = at.heads > 1 ? at.rows : (at.rows + 1) / 2;
  const int first = second ? middle : 0;
  at.rows = second ? at.rows - middle : middle;
  at.position += first;
  if (at.rows > 0) write_rows(call, memory, at, first);
}

// Goes chunk after chunk, so that sums do not depend on the number of threads.
void balance_row(const Call& call, const BackwardMemory& memory, const NumberedBlock& at, int r,
                 const CapturedRun& captured) {
  const std::int64_t row = at.sequence.q_first + at.position_of(r);
  const std::int64_t from = call.geometry.row_number(at.sequence.b, at.head_of(r), row);
  const std::int64_t blocks = memory.queries.blocks, chunks = chunk_count(at.sequence.k_length);
  const auto in_chunk = [&](std::int64_t chunk) {
    const std::int64_t part = (at.number / blocks * memory.chunks + chunk) * blocks;
    return static_cast<std::size_t>((part + at.number % blocks) * block_rows + r);
  };
  const auto row_work = memory.queries.row_work_of(at.number);
  const auto is_seen = [&](std::int64_t c) { return row_work[static_cast<std::size_t>(c)] != 0; };
  RowTotals total;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    if (!is_seen(chunk)) continue;  // nothing was stored
    total.gradients += memory.row_totals[in_chunk(chunk)].gradients;
    total.probabilities += memory.row_totals[in_chunk(chunk)].probabilities;
  }
  if (!total.complete(static_cast<double>(static_cast<const float*>(call.bound.lse)[from]))) return;
  double too_much = total.gradients;
  if (call.baked.grad_lse) {
    too_much -= static_cast<double>(static_cast<const float*>(call.bound.grad_lse)[from]);
  }
  const std::size_t terms = call.plan.captured.row_terms();
  for (std::size_t i = 0; i < terms; ++i) {
    RowTerm term;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (!is_seen(chunk)) continue;
      const RowTerm& part = memory.row_terms[in_chunk(chunk) * terms + i];
      term.mean += part.mean;
      term.at = std::max(term.at, part.at);
    }
    const double x = -too_much * term.mean;
    if (term.at >= 0 && std::isfinite(x)) captured.add_to_row_term(i, term.at, x);
  }
}

}  // namespace

void add_sinks(const Call& call, const BackwardMemory& memory, const Wave& wave) {
  for (std::int64_t task = 0; task < wave.count * memory.queries.blocks; ++task) {
    const auto at = find(call, memory, wave, task);
    for (int r = 0; at && r < at->all_rows(); ++r) {
      memory.sink[static_cast<std::size_t>(at->head_of(r))] +=
          memory.sink_rows[static_cast<std::size_t>(at->number * block_rows + r)];
    }
  }
}

double flops_of_queries(const Call& call, const Wave& wave) {
  return 40 * static_cast<double>(wave.count) * static_cast<double>(call.heads_per_group()) *
         static_cast<double>(call.sizes.sq) * static_cast<double>(call.sizes.d + call.sizes.dv);
}

void read_query_block(const Call& call, const BackwardMemory& memory, const Wave& wave,
                      std::int64_t number, int worker) {
  const auto at = find(call, memory, wave, number);
  if (!at) return;
  find_row_work(call, memory, *at, worker);
  read_block(call, memory, *at, memory.workers.find(call, worker));
}

void balance_rows(const Call& call, const BackwardMemory& memory, const Wave& wave,
                  const CapturedRun& captured) {
  if (memory.row_totals.empty() || value_of(call.bound.dropout) > 0) return;
  const std::int64_t blocks = memory.queries.blocks;
  for (std::int64_t task = 0; task < wave.count * blocks; ++task) {
    const auto at = find(call, memory, wave, task);
    for (int r = 0; at && r < at->all_rows(); ++r) balance_row(call, memory, *at, r, captured);
  }
}

void write_query_gradients(const Call& call, const BackwardMemory& memory, const Wave& wave) {
  if (!call.baked.want_q) return;
  call.parallel(2 * wave.count * memory.queries.blocks, flops_of_queries(call, wave),
                [&](std::int64_t task, int) {
                  const auto at = find(call, memory, wave, task / 2);
                  if (at) write_half(call, memory, *at, /*second=*/task % 2 != 0);
                });
}

}  // namespace fovea::cpu
