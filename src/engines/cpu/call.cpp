#include "engines/cpu/call.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "attention/pool.h"
#include "base/error.h"
#include "engines/cpu/schedule.h"

namespace fovea::cpu {
namespace {

// Waking a thread costs up to 0.1 ms. Work that takes less than a few times that is done sooner by
// the caller alone.
constexpr double least_shared_flops = 1e7;

StoredType stored(DType dtype) {
  switch (dtype) {
    case DType::F32: return StoredType::F32;
    case DType::F16: return StoredType::F16;
    case DType::BF16: return StoredType::BF16;
    case DType::F64:
    case DType::I32:
    case DType::I64:
    case DType::U8:
    case DType::Bool: break;
  }
  throw InternalError("engine cpu was given a tensor of type " + std::string(dtype_name(dtype)));
}

std::int32_t seen(std::int64_t index, std::int32_t offset) {
  return static_cast<std::int32_t>(index + offset);  // wraps, as all i32 of formulas
}

int allowed_threads(const Bindings& bindings, const Executor& executor) {
  return bindings.threads > 0 ? std::min(bindings.threads, executor.threads()) : executor.threads();
}

}  // namespace

Call::Call(const Prepared& prepared, const Bindings& bindings, std::span<ir::ScalarValue> values)
    : plan(prepared),
      baked(prepared.baked),
      kernels(prepared.kernels),
      bound(bindings),
      sizes(bindings.sizes),
      geometry(prepared.baked, bindings),
      executor(bindings.executor != nullptr ? *bindings.executor : own_pool()),
      workers(std::clamp(allowed_threads(bindings, executor), 1, prepared.workers)),
      scale(value_of(bindings.scale)),
      scalars(values) {
  const std::size_t declared = bindings.scalars.size();
  for (std::size_t slot = 0; slot < declared; ++slot) {
    values[slot] = scalar_value(bindings.scalars[slot], baked.program.scalars()[slot].type);
  }
  for (std::size_t i = 0; i < bindings.literals.size(); ++i) {
    values[declared + i] = {};
    values[declared + i].f = bindings.literals[i];
  }
}

Strided Call::rows(const BoundTensor& tensor, const TensorSpec& spec, std::int64_t b,
                   std::int64_t head, std::int64_t row) const {
  const Strides& strides = tensor.strides;
  const std::int64_t at = b * strides.b + head * strides.h + row * strides.s;
  return {static_cast<std::byte*>(tensor.data) + at * dtype_size(spec.dtype), strides.s, strides.d,
          stored(spec.dtype)};
}

std::int32_t Call::head_seen(std::int64_t head) const {
  return seen(head, value_of(bound.h_offset));
}

LeafValues Call::leaves(const Sequence& sequence, std::int64_t head) const {
  const KeySequence keys_seen = keys({sequence, 0});
  LeafValues leaves;
  leaves.b = keys_seen.b;
  leaves.h = head_seen(head);
  leaves.B = keys_seen.B;
  leaves.H = keys_seen.H;
  leaves.Hkv = keys_seen.Hkv;
  leaves.Sq = keys_seen.Sq;
  leaves.Skv = keys_seen.Skv;
  leaves.scalars = scalars;
  leaves.tensors = bound.tensors;
  return leaves;
}

std::optional<QueryBlock> Call::query_block(const KeyHead& keys, std::int64_t index,
                                            int rows) const {
  const std::int64_t length = keys.sequence.q_length, heads = heads_per_group();
  if (index >= block_count(length, heads, rows)) return {};
  const Block block = find_block(length, heads, index, rows);
  return QueryBlock{keys, block, keys.group * heads + block.head};
}

KeySequence Call::keys(const KeyHead& head) const {
  const Sequence& sequence = head.sequence;
  const auto size = [](std::int64_t x) { return static_cast<std::int32_t>(x); };
  KeySequence out;
  out.b = seen(sequence.b, value_of(bound.b_offset));
  out.h_first = head_seen(head.group * heads_per_group());
  out.h_last = head_seen((head.group + 1) * heads_per_group() - 1);
  out.B = size(sizes.b);
  out.H = bound.h_global != 0 ? bound.h_global : size(sizes.h);
  out.Hkv = size(sizes.hkv);
  out.Sq = size(sequence.q_length);
  out.Skv = size(sequence.k_length);
  out.k_offset = sequence.k_offset;
  out.k_length = sequence.k_length;
  out.scalars = scalars;
  out.tensors = bound.tensors;
  return out;
}

void Call::parallel(std::int64_t tasks, double flops, TaskBody body) const {
  std::array<std::int64_t, most_homes + 1> homes{};
  const auto nodes =
      static_cast<std::size_t>(std::clamp(executor.nodes(), 1, std::min(workers, most_homes)));
  for (std::size_t n = 0; n <= nodes; ++n) {
    homes[n] = tasks * static_cast<std::int64_t>(n) / static_cast<std::int64_t>(nodes);
  }
  parallel(std::span(homes).first(nodes + 1), flops, body);
}

void Call::parallel(std::span<const std::int64_t> homes, double flops, TaskBody body) const {
  const std::int64_t tasks = homes.back();
  const auto used = static_cast<int>(std::min<std::int64_t>(workers, tasks));
  if (used <= 1 || flops < least_shared_flops) {
    for (std::int64_t task = 0; task < tasks; ++task) {
      executor.begins(task);
      body(task, 0);
    }
    return;
  }
  // Each worker has memory of its own and takes tasks until none is left: first those of its node,
  // then of the others. If the executor runs workers one after the other, the first does it all.
  // The lambda holds one pointer: no allocation.
  struct alignas(64) Home {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };
  struct Region {
    TaskBody body;
    Executor& executor;
    std::size_t count;
    std::array<Home, most_homes> homes;
  } region{body, executor, homes.size() - 1, {}};
  for (std::size_t n = 0; n < region.count; ++n) {
    region.homes[n].next.store(homes[n], std::memory_order_relaxed);
    region.homes[n].end = homes[n + 1];
  }
  executor.run(static_cast<std::size_t>(used), [at = &region](std::size_t worker) {
    const auto here = static_cast<std::size_t>(at->executor.node_here());
    for (std::size_t n = 0; n < at->count; ++n) {
      Home& home = at->homes[(here + n) % at->count];
      for (std::int64_t task = home.next++; task < home.end; task = home.next++) {
        at->executor.begins(task);
        at->body(task, static_cast<int>(worker));
      }
    }
  });
}

Panels take_panels(Arena& arena, const KernelTable& kernels, std::int64_t rows,
                   std::int64_t columns) {
  return {arena.take<float>(round_up(columns, kernels.panel_width), rows).data(), rows};
}

}  // namespace fovea::cpu
