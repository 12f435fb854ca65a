#include "engines/cudnn/packed.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cuda/kernels.h"

namespace fovea::cudnn {
namespace {

constexpr unsigned threads = 128;
unsigned blocks_for(std::int64_t count, std::int64_t most) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((count + threads - 1) / threads, 1, most));
}

std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

template <class T>
T* at(std::byte* workspace, std::size_t place) {
  return reinterpret_cast<T*>(workspace + place);
}

// For 16-bit elements, with strides in multiples of 8.
Cleared cleared(const BoundTensor& tensor, std::int64_t heads, std::int64_t features,
                bool of_keys) {
  return {static_cast<std::uint32_t*>(tensor.data),
          tensor.strides.s / 2,
          tensor.strides.h / 2,
          static_cast<std::int32_t>(heads),
          static_cast<std::int32_t>(features / 2),
          0,
          of_keys ? 1 : 0};
}

}  // namespace

PackedCall::PackedCall(const Problem& baked, const GraphSpec& spec, std::int64_t graph_batch)
    : starts_(spec.starts),
      graph_batch_(graph_batch),
      longest_q_(baked.sizes.sq),
      longest_k_(baked.sizes.skv),
      backward_(spec.backward),
      writes_lse_(spec.stats),
      want_q_(baked.want_q),
      want_k_(baked.want_k),
      want_v_(baked.want_v) {
  const auto row_bytes = [&](TensorRole role, bool wanted) -> std::int64_t {
    const GraphTensor* const tensor = spec.find(role);
    if (tensor == nullptr || wanted) return 0;
    return 2 * std::max(tensor->stride[2], tensor->dim[1] * tensor->stride[1]);
  };
  row_bytes_ = {row_bytes(TensorRole::GradQ, want_q_), row_bytes(TensorRole::GradK, want_k_),
                row_bytes(TensorRole::GradV, want_v_)};
  if (starts_.size() > most_start_tables) throw InternalError("too many strides of packed tensors");
}

void PackedCall::load_kernels() {
  const std::string_view ptx = packed_rows_ptx;
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(ptx.data());
  const cuda::Handle module = cuda::module_of({bytes, ptx.size()});
  make_tables_ = cuda::kernel_of(module, "fovea_packed_tables", 0);
  clear_ = cuda::kernel_of(module, "fovea_packed_clear", 0);
  transpose_ = cuda::kernel_of(module, "fovea_packed_transpose", 0);
}

std::size_t PackedCall::start_bytes() const {
  return aligned(static_cast<std::size_t>(graph_batch_ + 1) * sizeof(std::int64_t));
}

PackedCall::WorkspaceBlocks PackedCall::places(const Sizes& s) const {
  std::size_t next = 0;
  const auto take = [&](std::size_t bytes) { return std::exchange(next, next + aligned(bytes)); };
  const auto rows = [&](std::int64_t count, std::int64_t row_bytes) {
    return take(static_cast<std::size_t>(count * row_bytes));
  };
  WorkspaceBlocks p{};
  p.q_lengths = take(static_cast<std::size_t>(graph_batch_) * sizeof(std::int32_t));
  p.k_lengths = take(static_cast<std::size_t>(graph_batch_) * sizeof(std::int32_t));
  p.starts = take(starts_.size() * start_bytes());
  p.stats = rows(s.t_q, has_stats() ? s.h * 4 : 0);
  p.grad_q = rows(s.t_q, row_bytes_.q);
  p.grad_k = rows(s.t_k, row_bytes_.k);
  p.grad_v = rows(s.t_k, row_bytes_.v);
  p.end = next;
  return p;
}

std::size_t PackedCall::bytes(const Sizes& sizes) const { return places(sizes).end; }

PackedTables PackedCall::tables(const Bindings& b, std::byte* workspace) const {
  const WorkspaceBlocks p = places(b.sizes);
  PackedTables out{};
  out.q = {b.q_starts, b.q_lengths, b.sizes.t_q, longest_q_};
  out.k = {b.k_starts, b.k_lengths, b.sizes.t_k, longest_k_};
  out.batch = b.sizes.b;
  out.graph_batch = graph_batch_;
  out.q_lengths = at<std::int32_t>(workspace, p.q_lengths);
  out.k_lengths = at<std::int32_t>(workspace, p.k_lengths);
  out.table_count = static_cast<std::int32_t>(starts_.size());
  for (std::size_t i = 0; i < starts_.size(); ++i) {
    out.tables[i] = {at<std::int64_t>(workspace, p.starts + i * start_bytes()),
                     starts_[i].row_stride, starts_[i].of_keys ? 1 : 0};
  }
  return out;
}

std::int64_t PackedCall::cleared_count() const {
  return backward_ ? want_q_ + want_k_ + want_v_ : 1 + writes_lse_;
}

PackedGaps PackedCall::gaps(const Bindings& b, std::byte* workspace) const {
  const WorkspaceBlocks p = places(b.sizes);
  const Sizes& s = b.sizes;
  PackedGaps out{};
  out.q = {b.q_starts, at<std::int32_t>(workspace, p.q_lengths), s.t_q, longest_q_};
  out.k = {b.k_starts, at<std::int32_t>(workspace, p.k_lengths), s.t_k, longest_k_};
  out.batch = s.b;
  Cleared* next = out.tensors;
  if (!backward_) {
    constexpr std::uint32_t minus_infinity = 0xff800000;
    *next++ = cleared(b.o, s.h, s.dv, false);
    if (writes_lse_) {
      *next++ = {static_cast<std::uint32_t*>(b.lse),
                 1,
                 s.t_q,
                 static_cast<std::int32_t>(s.h),
                 1,
                 minus_infinity,
                 0};
    }
    return out;
  }
  if (want_q_) *next++ = cleared(b.grad_q, s.h, s.d, false);
  if (want_k_) *next++ = cleared(b.grad_k, s.hkv, s.d, true);
  if (want_v_) *next++ = cleared(b.grad_v, s.hkv, s.dv, true);
  return out;
}

// lse, from the caller's form or to it.
void PackedCall::transpose(const Bindings& b, std::byte* workspace) const {
  auto* const lse = static_cast<std::uint32_t*>(b.lse);
  auto* const stats = at<std::uint32_t>(workspace, places(b.sizes).stats);
  const auto heads = static_cast<std::int32_t>(b.sizes.h);
  const Transposed moved = backward_ ? Transposed{lse, stats, b.sizes.t_q, heads, 0}
                                     : Transposed{stats, lse, b.sizes.t_q, heads, 1};
  const cuda::Grid grid{.x = blocks_for(b.sizes.t_q * b.sizes.h, 4096), .threads = threads};
  cuda::launch(transpose_, grid, &moved, b.stream);
}

void PackedCall::begin(const Bindings& b, std::byte* workspace) const {
  const PackedTables made = tables(b, workspace);
  const cuda::Grid grid{.x = blocks_for(graph_batch_ + 1, 1 << 30), .threads = threads};
  cuda::launch(make_tables_, grid, &made, b.stream);
  if (backward_) transpose(b, workspace);
}

void PackedCall::end(const Bindings& b, std::byte* workspace) const {
  if (!backward_ && writes_lse_) transpose(b, workspace);
  const PackedGaps made = gaps(b, workspace);
  // Usually few rows belong to no sequence, or many rows behind the last one.
  const auto before = static_cast<unsigned>(b.sizes.b + 1);
  const cuda::Grid grid{.x = before,
                        .y = std::clamp(4096 / before, 1u, 64u),
                        .z = static_cast<unsigned>(cleared_count()),
                        .threads = threads};
  if (grid.z > 0) cuda::launch(clear_, grid, &made, b.stream);
}

bool PackedCall::has(const GraphTensor& tensor) const {
  switch (tensor.role) {
    case TensorRole::Starts:
    case TensorRole::LengthsQ:
    case TensorRole::LengthsK:
    case TensorRole::Stats: return true;
    case TensorRole::GradQ: return !want_q_;
    case TensorRole::GradK: return !want_k_;
    case TensorRole::GradV: return !want_v_;
    default: return false;
  }
}

void* PackedCall::pointer(const GraphTensor& tensor, const Sizes& sizes, std::byte* workspace,
                          std::int64_t first) const {
  const WorkspaceBlocks p = places(sizes);
  switch (tensor.role) {
    case TensorRole::Starts:
      return at<std::int64_t>(workspace, p.starts + tensor.slot * start_bytes()) + first;
    case TensorRole::LengthsQ: return at<std::int32_t>(workspace, p.q_lengths) + first;
    case TensorRole::LengthsK: return at<std::int32_t>(workspace, p.k_lengths) + first;
    case TensorRole::Stats: return workspace + p.stats;
    case TensorRole::GradQ: return workspace + p.grad_q;
    case TensorRole::GradK: return workspace + p.grad_k;
    case TensorRole::GradV: return workspace + p.grad_v;
    default: throw InternalError("a tensor that packed calls do not have");
  }
}

}  // namespace fovea::cudnn
