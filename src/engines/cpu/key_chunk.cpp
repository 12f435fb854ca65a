#include "engines/cpu/key_chunk.h"

#include <algorithm>
#include <atomic>

namespace fovea::cpu {
namespace {

void clear_rows(const Panels& panels, std::int64_t rows, std::int64_t columns, int panel_width) {
  for (std::int64_t c = 0; c < columns; c += panel_width) {
    std::fill_n(from_column(panels, c).data, rows * panel_width, 0.0f);
  }
}

}  // namespace

KeyChunkBackward::KeyChunkBackward(const Call& call, const BackwardMemory& memory, int worker)
    : call_(call),
      kernels_(call.kernels),
      memory_(memory),
      mine_(memory.workers.find(call, worker)),
      formulas_(call, mine_.formulas),
      walk_(call.plan.tiles, memory.keys.walk(worker)) {}

bool KeyChunkBackward::start(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk) {
  head_ = call_.key_head(head);
  const Sequence& sequence = head_.sequence;
  if (chunk >= chunk_count(sequence.k_length)) return false;
  head_in_wave_ = head_in_wave;
  chunk_ = chunk;
  const std::int64_t tiles = chunk_tiles(sequence.k_length);
  first_tile_ = chunk * tiles;
  last_tile_ = std::min(tiles_of(sequence.k_length), first_tile_ + tiles);
  blocks_ = block_count(sequence.q_length, call_.heads_per_group());
  work_ = 0;
  for (std::int64_t index = 0; index < blocks_; ++index) {
    work_ += work_of_row(index) * call_.query_block(head_, index)->all_rows();
  }
  parts_ = parts_of_work(blocks_, work_);
  return true;
}

void KeyChunkBackward::run(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk,
                           const CapturedRun* captured, std::int64_t lane) {
  if (!start(head_in_wave, head, chunk)) return;
  captured_ = captured;
  lane_ = lane;
  const float* const both[] = {mine_.sums.all.data(), mine_.part.all.data()};
  bool any = false;
  for (int part = 0; part < row_parts; ++part) {
    if (!sum_part(part, any ? mine_.part : mine_.sums)) continue;
    if (any) add_up(mine_.sums, both);
    any = true;
  }
  if (!any) add_up(mine_.sums, {});
  write_keys(mine_.sums);
}

void KeyChunkBackward::run_parts(std::int64_t head_in_wave, std::int64_t head, std::int64_t chunk,
                                 int first, int last) {
  if (!start(head_in_wave, head, chunk)) return;
  const std::int64_t number = head_in_wave * memory_.chunks + chunk;
  const auto sums_of = [&](int part) {
    return memory_.parts.find(call_, number * row_parts + part);
  };
  constexpr std::uint32_t part_with_sums = 256;  // above the number of parts that are done
  auto now = static_cast<std::uint32_t>(last - first);
  for (int part = first; part < last; ++part) {
    if (sum_part(part, sums_of(part))) now += part_with_sums << part;
  }
  const std::atomic_ref<std::uint32_t> done(memory_.parts_done[static_cast<std::size_t>(number)]);
  const std::uint32_t all = done.fetch_add(now, std::memory_order_acq_rel) + now;
  if (all % part_with_sums < row_parts) return;
  const float* terms[row_parts];
  std::size_t count = 0;
  for (int part = 0; part < row_parts; ++part) {
    if ((all & part_with_sums << part) != 0) terms[count++] = sums_of(part).all.data();
  }
  const KeySums sums = sums_of(0);
  add_up(sums, {terms, count});
  write_keys(sums);
}

// See QueryBlocks::row_work.
std::int64_t KeyChunkBackward::row_work(std::int64_t index) const {
  const std::int64_t number = memory_.queries.number(head_in_wave_, index);
  return memory_.queries.row_work_of(number)[static_cast<std::size_t>(chunk_)];
}

// With deterministic=1 all rows count alike, so that a chunk's parts follow from the queries alone:
// if keys are shared out among devices, their chunks are others, and dK and dV have the same bits.
std::int64_t KeyChunkBackward::work_of_row(std::int64_t index) const {
  return call_.baked.deterministic ? work_of_full_tile : row_work(index);
}

// The first row of a part. The work before it is that of `part` equal shares, rounded to a whole
// group of rows. A block of several heads is not cut.
KeyChunkBackward::RowCut KeyChunkBackward::begin_of(int part) const {
  std::int64_t before = work_ * part / parts_;
  for (std::int64_t index = 0; index < blocks_; ++index) {
    const Block block = *call_.query_block(head_, index);
    const std::int64_t rows = block.all_rows(), of_row = work_of_row(index);
    if (before < rows * of_row) {
      const std::int64_t step = block.heads > 1 ? rows : group_rows;
      const std::int64_t row = (before / of_row + step / 2) / step * step;
      return row < rows ? RowCut{index, static_cast<int>(row)} : RowCut{index + 1, 0};
    }
    before -= rows * of_row;
  }
  return {blocks_, 0};
}

// Sums what a part of the query rows adds to dK and dV, and the whole of its dQ. False if its rows
// see none of the keys: nothing of dK and dV is written then.
bool KeyChunkBackward::sum_part(int part, const KeySums& into) {
  if (part >= parts_) return false;
  sums_ = into;
  std::ranges::fill(mine_.has_sums, false);
  bool any = false;
  const RowCut begin = begin_of(part), end = begin_of(part + 1);
  for (std::int64_t index = begin.block; index < end.block + (end.row > 0 ? 1 : 0); ++index) {
    if (row_work(index) == 0) continue;
    start_block(index, index == begin.block ? begin.row : 0,
                index == end.block ? end.row : block_rows);
    for (Tile tile; walk_.next(tile); any = true) differentiate(tile);
    if (call_.baked.want_q && !has_grad_q_) into_grad_q(/*whole=*/false);
    if (captured_ != nullptr && !memory_.row_totals.empty()) store_row_sums();
  }
  for (std::size_t panel = 0; any && panel < mine_.has_sums.size(); ++panel) {
    if (!mine_.has_sums[panel]) clear_keys(panel);
  }
  return any;
}

void KeyChunkBackward::add_up(const KeySums& to, std::span<const float* const> terms) const {
  const std::span<float> all = to.all;
  if (terms.empty()) {
    std::ranges::fill(all, 0.0f);
  } else {
    kernels_.add_up(all.data(), terms.data(), static_cast<int>(terms.size()),
                    static_cast<std::int64_t>(all.size()));
  }
}

// Rows [first, last) of a block, or as many of them as it has.
void KeyChunkBackward::start_block(std::int64_t index, int first, int last) {
  const std::int64_t number = memory_.queries.number(head_in_wave_, index);
  block_ = *call_.query_block(head_, index);
  if (block_.heads == 1) {
    block_.rows = std::min(last, block_.rows) - first;
    block_.position += first;
  }
  block_index_ = index;
  first_row_ = first;
  if (!memory_.row_totals.empty()) mine_.row_sums.clear();
  const auto rows_of = [&](const Panels& all, std::int64_t place, std::int64_t columns) {
    return from_row(block_of(all, kernels_, place, columns), first, kernels_.panel_width);
  };
  const auto pairs_of = [&](const Panels& all, std::int64_t columns) {
    return from_row(block_of(all, kernels_, number, columns, block_rows / 2), first / 2,
                    kernels_.panel_width);
  };
  const QueryBlocks& queries = memory_.queries;
  q_ = rows_of(queries.q, number, call_.plan.cells(call_.sizes.d));
  grad_o_ = rows_of(queries.grad_o, number, call_.plan.cells(call_.sizes.dv));
  q_rows_ = call_.plan.pairs ? pairs_of(queries.q_rows, call_.sizes.d) : q_;
  grad_o_rows_ = call_.plan.pairs ? pairs_of(queries.grad_o_rows, call_.sizes.dv) : grad_o_;
  lse_ = queries.lse.data() + number * block_rows + first;
  row_term_ = queries.row_term.data() + number * block_rows + first;
  flags_ = queries.flags[static_cast<std::size_t>(number)];
  if (call_.baked.want_q) {
    const std::int64_t chunk = head_in_wave_ * memory_.chunks + chunk_;
    grad_q_ = rows_of(memory_.grad_q, chunk * queries.blocks + index, call_.sizes.d);
  }
  has_grad_q_ = false;
  formulas_.start(block_);

  RowBlock rows = rows_seen(call_, block_);
  rows.first_tile = static_cast<int>(first_tile_);
  rows.last_tile = static_cast<int>(last_tile_);
  walk_.start(call_.keys(head_), memory_.keys.table(head_in_wave_), rows);
}

void KeyChunkBackward::differentiate(const Tile& tile) {
  tile_ = tile.number;
  keys_ = memory_.keys.find(call_, head_.sequence, head_in_wave_, tile_);
  const int rows = block_.all_rows();
  const bool masked = formulas_.start_tile(tile, keys_.columns);
  for (int r = 0; r < rows; ++r) {
    mine_.lse[static_cast<std::size_t>(r)] =
        lse_[r] - mine_.formulas.shifts.of_tile[static_cast<std::size_t>(r)];
    if (formulas_.drops()) formulas_.draw(r, 0, keys_.columns, mine_.drop.row(r));
  }
  if (!masked) {
    const MatrixPart all{0, rows, 0, keys_.columns};
    score_products(all);
    strips(all, /*masked=*/false);
    query_product(all, /*masked=*/false);
    key_products(all, /*masked=*/false);
    return;
  }
  const std::int64_t floats = block_rows * std::int64_t{tile_columns};
  std::fill_n(mine_.scores.data, floats, 0.0f);
  std::fill_n(mine_.grad_p.data, floats, 0.0f);
  MatrixPart parts[block_rows / trim_rows];
  std::size_t count = 0;
  formulas_.for_kept([&](const MatrixPart& part) {
    score_products(part);
    strips(part, /*masked=*/true);
    query_product(part, /*masked=*/true);
    parts[count++] = part;
  });
  key_products_of_mixed({parts, count});
}

// S = Q K^T and dP = dO V^T.
void KeyChunkBackward::score_products(const MatrixPart& part) {
  const int width = kernels_.panel_width;
  Product product;
  product.m = part.rows();
  product.n = part.columns();
  product.a = from_row(q_, part.first, width);
  product.b = from_column(keys_.k_transposed, part.column_first);
  product.c = from_row(from_column(mine_.scores, part.column_first), part.first, width);
  product.k_last = static_cast<int>(call_.plan.cells(call_.sizes.d));
  product.factor = call_.scale;  // of pairs; elsewhere q is scaled already
  call_.plan.multiply(product);
  product.a = from_row(grad_o_, part.first, width);
  product.b = from_column(keys_.v_transposed, part.column_first);
  product.c = from_row(from_column(mine_.grad_p, part.column_first), part.first, width);
  product.k_last = static_cast<int>(call_.plan.cells(call_.sizes.dv));
  product.factor = 1;
  call_.plan.multiply(product);
}

// From scores and dP to P and dS, strip by strip, so that a modifier's values are computed once and
// stay in the first-level cache for its derivative.
void KeyChunkBackward::strips(const MatrixPart& part, bool masked) {
  if (BlockProgram* const mod = formulas_.mod()) {
    mod->for_strips(part, [&](const StripRun::Strip& one, int base) { strip(one, base, masked); });
  } else {
    for_strips(part, kernels_, [&](const StripRun::Strip& one) { strip(one, 0, masked); });
  }
}

// `base`: the first row of the strip's head in the block.
void KeyChunkBackward::strip(StripRun::Strip at, int base, bool masked) {
  const int row = base + at.row, width = kernels_.panel_width;
  float* const scores = from_row(from_column(mine_.scores, at.column), row, width).data;
  float* const grad_p = from_row(from_column(mine_.grad_p, at.column), row, width).data;
  at.score = scores;
  SoftmaxBackward x;
  const bool has_mod = formulas_.mod() != nullptr;
  x.scores = has_mod ? modified_scores(at) : scores;
  x.grad_p = grad_p;
  x.p = grad_p;
  const bool direct = !has_mod || (call_.plan.grad_passes && captured_ == nullptr);
  x.grad = direct ? scores : mine_.grad_strip.data();
  x.rows = at.rows;
  x.columns = at.columns;
  x.keep = masked ? mine_.formulas.keep.row(row) : nullptr;
  x.drop = formulas_.drops() ? mine_.drop.row(row) : nullptr;
  x.drop_scale = formulas_.drop_scale();
  x.keep_words = keep_words;
  x.keep_shift = at.column;
  x.lse = mine_.lse.data() + row;
  x.row_term = row_term_ + row;
  x.live = mine_.live.data();
  kernels_.softmax_backward(x);
  if (!direct) modified_gradients(at, row, scores);
}

// The modified scores as a strip, copied unless they lie like one already.
const float* KeyChunkBackward::modified_scores(StripRun::Strip& at) {
  StripRun& run = formulas_.mod()->run();
  run.elements(0, at);
  const StripValue value = run.value(score_root);
  if (value.row_step == kernels_.panel_width && value.column_step == 1) return value.f32();
  kernels_.spread(value, at.rows, at.columns, nullptr, mine_.score_strip.data());
  return mine_.score_strip.data();
}

void KeyChunkBackward::modified_gradients(const StripRun::Strip& at, int row, float* grad_scores) {
  StripRun& run = formulas_.mod()->run();
  StripRun::Strip second = at;
  second.grad = mine_.grad_strip.data();
  run.elements(1, second);
  if (captured_ != nullptr) {
    captured_->add(lane_, run, first_captured_root, second, mine_.live.data());
    if (call_.plan.captured.row_terms() != 0) {
      const Panels p = from_row(from_column(mine_.grad_p, at.column), row, kernels_.panel_width);
      captured_->balance(run, first_captured_root, second, {p.data, row, mine_.row_sums, kernels_});
    }
  }
  kernels_.spread(run.value(gradient_root), at.rows, at.columns, mine_.live.data(), grad_scores);
}

void KeyChunkBackward::store_row_sums() const {
  const std::size_t terms = call_.plan.captured.row_terms();
  const std::int64_t first =
      ((head_in_wave_ * memory_.chunks + chunk_) * memory_.queries.blocks + block_index_) *
          block_rows +
      first_row_;
  for (int r = 0; r < block_.all_rows(); ++r) {
    const auto row = static_cast<std::size_t>(first + r);
    memory_.row_totals[row] = {mine_.row_sums.sum(BalanceSums::gradients, r),
                               mine_.row_sums.sum(BalanceSums::probabilities, r)};
    for (std::size_t i = 0; i < terms; ++i) {
      memory_.row_terms[row * terms + i] = {mine_.row_sums.sum(BalanceSums::first_term + i, r),
                                            mine_.row_sums.at(i, r)};
    }
  }
}

// dQ begins as the first product, if that covers all rows, or as zeros.
Into KeyChunkBackward::into_grad_q(bool whole) {
  const int width = kernels_.panel_width;
  if (!has_grad_q_ && !whole) clear_rows(grad_q_, block_.all_rows(), call_.sizes.d, width);
  const bool sets = !has_grad_q_ && whole;
  has_grad_q_ = true;
  return sets ? Into::Set : Into::Add;
}

// dQ += dS K.
void KeyChunkBackward::query_product(const MatrixPart& part, bool masked) {
  if (!call_.baked.want_q) return;
  const bool pairs = call_.plan.pairs;
  if (pairs) kernels_.pairs->narrow(mine_.scores, part, mine_.grad_scores_columns);
  Product product;
  product.a =
      from_row(pairs ? mine_.grad_scores_columns : mine_.scores, part.first, kernels_.panel_width);
  product.b = keys_.k;
  product.c = from_row(grad_q_, part.first, kernels_.panel_width);
  product.m = part.rows();
  product.n = static_cast<int>(call_.sizes.d);
  product.k_first = static_cast<int>(call_.plan.cells(part.column_first));
  product.k_last = static_cast<int>(call_.plan.cells(part.column_last));
  product.into = into_grad_q(/*whole=*/part.rows() == block_.all_rows());
  product.skip_zeros = (masked || flags_.has_empty_row) && !keys_.k_finite;
  call_.plan.multiply(product);
}

// dV += P^T dO and dK += dS^T Q, of some keys, over some rows. The first key begins a panel, the
// first row is even.
void KeyChunkBackward::key_products(const MatrixPart& part, bool masked) {
  const bool pairs = call_.plan.pairs;
  const std::int64_t row = (tile_ - first_tile_) * tile_columns + part.column_first;
  Product product;
  product.a_transposed = true;
  product.m = part.columns();
  product.k_first = static_cast<int>(call_.plan.cells(part.first));
  product.k_last = static_cast<int>(call_.plan.cells(part.last));
  product.into = into_keys(part);
  const auto add = [&](const Panels& scores, const Panels& narrowed, const Panels& rows,
                       const Panels& sums, bool finite) {
    if (pairs) kernels_.pairs->narrow_rows(scores, part, narrowed);
    product.a = from_column(pairs ? narrowed : scores, part.column_first);
    product.b = rows;
    product.c = from_row(sums, row, kernels_.panel_width);
    product.skip_zeros = (masked || flags_.has_empty_row) && !finite;
    call_.plan.multiply(product);
  };
  if (call_.baked.want_v) {
    product.n = static_cast<int>(call_.sizes.dv);
    add(mine_.grad_p, mine_.p_rows, grad_o_rows_, sums_.v, flags_.grad_o_finite);
  }
  if (call_.baked.want_k) {
    product.n = static_cast<int>(call_.sizes.d);
    add(mine_.scores, mine_.grad_scores_rows, q_rows_, sums_.k, flags_.q_finite);
  }
}

// The sums of a panel of keys begin as its first product, if that covers all of the panel, or as
// zeros.
Into KeyChunkBackward::into_keys(const MatrixPart& part) {
  const int width = kernels_.panel_width;
  const auto first =
      static_cast<std::size_t>(((tile_ - first_tile_) * tile_columns + part.column_first) / width);
  const auto count = static_cast<std::size_t>(ceil_div(part.columns(), width));
  const std::span<bool> has = mine_.has_sums.subspan(first, count);
  const bool sets = part.column_last % width == 0 && std::ranges::count(has, true) == 0;
  for (std::size_t panel = 0; !sets && panel < count; ++panel) {
    if (!has[panel]) clear_keys(first + panel);
  }
  std::ranges::fill(has, true);
  return sets ? Into::Set : Into::Add;
}

void KeyChunkBackward::clear_keys(std::size_t panel) const {
  const int width = kernels_.panel_width;
  const std::int64_t row = static_cast<std::int64_t>(panel) * width;
  const auto clear = [&](const Panels& sums, std::int64_t columns) {
    if (sums.data != nullptr) clear_rows(from_row(sums, row, width), width, columns, width);
  };
  clear(sums_.k, call_.sizes.d);
  clear(sums_.v, call_.sizes.dv);
}

// Each panel of keys is multiplied with the rows from the first part that keeps some of it to the
// last.
void KeyChunkBackward::key_products_of_mixed(std::span<const MatrixPart> parts) {
  for (int key = 0; key < keys_.columns; key += kernels_.panel_width) {
    const int end = std::min(keys_.columns, key + kernels_.panel_width);
    int first = block_rows, last = 0;
    for (const MatrixPart& part : parts) {
      if (part.column_last <= key || part.column_first >= end) continue;
      first = std::min(first, part.first);
      last = std::max(last, part.last);
    }
    if (first < last) key_products({first, last, key, end}, /*masked=*/true);
  }
}

void KeyChunkBackward::write_keys(const KeySums& sums) {
  const std::int64_t position = first_tile_ * tile_columns;
  const auto rows =
      static_cast<int>(std::min(head_.sequence.k_length, last_tile_ * tile_columns) - position);
  const std::int64_t b = call_.batch(head_.sequence), row = head_.sequence.k_first + position;
  if (call_.baked.want_k) {
    float factor[tile_columns];  // pairs of q are not scaled
    std::fill_n(factor, tile_columns, call_.plan.pairs ? call_.scale : 1.0f);
    for (int first = 0; first < rows; first += tile_columns) {
      kernels_.unpack(
          from_row(sums.k, first, kernels_.panel_width), std::min(tile_columns, rows - first),
          static_cast<int>(call_.sizes.d), factor,
          call_.rows(call_.bound.grad_k, call_.baked.grad_k, b, head_.group, row + first));
    }
  }
  if (call_.baked.want_v) {
    kernels_.unpack(sums.v, rows, static_cast<int>(call_.sizes.dv), nullptr,
                    call_.rows(call_.bound.grad_v, call_.baked.grad_v, b, head_.group, row));
  }
}

}  // namespace fovea::cpu
