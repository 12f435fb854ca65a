#include "engines/jit/arguments.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "attention/extents.h"
#include "base/error.h"
#include "engines/jit/backward_kernels.h"
#include "engines/jit/bake.h"
#include "engines/jit/captured_launches.h"
#include "engines/jit/device/shared_layout.h"
#include "engines/jit/hopper.h"
#include "engines/jit/hopper_backward.h"

namespace fovea::jit {
namespace {

// In the order of named_tensors().
struct TensorFields {
  const BoundTensor Bindings::* bound;
  device::TensorArgument device::CallArguments::* packed;
};
constexpr TensorFields fields[] = {
    {&Bindings::q, &device::CallArguments::q},
    {&Bindings::k, &device::CallArguments::k},
    {&Bindings::v, &device::CallArguments::v},
    {&Bindings::o, &device::CallArguments::o},
    {&Bindings::grad_o, &device::CallArguments::grad_o},
    {&Bindings::grad_q, &device::CallArguments::grad_q},
    {&Bindings::grad_k, &device::CallArguments::grad_k},
    {&Bindings::grad_v, &device::CallArguments::grad_v},
};

template <class T, class U>
device::PerCall<T> per_call(const PerCall<U>& x) {
  static_assert(sizeof(T) == sizeof(U));
  return {reinterpret_cast<const T*>(x.device), static_cast<T>(x.value)};
}

int number(std::int64_t x) { return static_cast<int>(x); }

void pack_tensors(const Problem& baked, const Bindings& b, device::CallArguments& call) {
  for (std::size_t i = 0; i < std::size(fields); ++i) {
    const NamedTensor& tensor = named_tensors()[i];
    const BoundTensor& bound = b.*fields[i].bound;
    const Strides& s = bound.strides;
    const std::int64_t bytes = dtype_size((baked.*tensor.spec).dtype);
    call.*fields[i].packed = {
        bound.data, s.b,
        s.h,        s.s,
        s.d,        copy_bytes(bound.data, s, extents_of(b.sizes, baked.layout, tensor), bytes)};
  }
}

void pack_rows(const Bindings& b, device::CallArguments& call) {
  call.lse = static_cast<float*>(b.lse);
  call.grad_lse = static_cast<const float*>(b.grad_lse);
  if (b.row_max != nullptr) call.row_max = static_cast<float*>(b.row_max);
  call.max_logit = static_cast<float*>(b.max_logit);
  call.sink = static_cast<const float*>(b.sink);
  call.grad_sink = static_cast<float*>(b.grad_sink);
  call.q_lengths = b.q_lengths;
  call.k_lengths = b.k_lengths;
  call.q_starts = b.q_starts;
  call.k_starts = b.k_starts;
  call.q_offsets = b.q_offsets;
  call.k_offsets = b.k_offsets;
}

void pack_sizes(const Problem& baked, const Bindings& b, device::CallArguments& call) {
  const Sizes& s = b.sizes;
  const bool packed = baked.layout == Layout::Thd;
  call.b = number(s.b);
  call.h = number(s.h);
  call.hkv = number(s.hkv);
  call.sq = number(s.sq);
  call.skv = number(s.skv);
  call.d = number(s.d);
  call.dv = number(s.dv);
  call.group = s.hkv == 0 ? 1 : number(s.h / s.hkv);
  call.heads_seen = number(heads_seen(s, b.h_global));
  call.rows_q = packed ? s.t_q : s.sq;
  call.rows_k = packed ? s.t_k : s.skv;
}

void pack_values(const Bindings& b, device::CallArguments& call) {
  call.scale = per_call<float>(b.scale);
  call.dropout = per_call<float>(b.dropout);
  call.seed = per_call<unsigned long long>(b.seed);
  call.offset = per_call<unsigned long long>(b.offset);
  call.b_offset = per_call<int>(b.b_offset);
  call.h_offset = per_call<int>(b.h_offset);
  call.q_offset = per_call<int>(b.q_offset);
  call.k_offset = per_call<int>(b.k_offset);
}

long long word(const void* address) {
  return static_cast<long long>(reinterpret_cast<std::uintptr_t>(address));
}

// The form is in words.h. `data` and `stride` are the tensor's own, or its gradient's.
void pack_captured(const ir::TensorView& view, const void* data,
                   const std::array<std::int64_t, ir::limits::rank>& stride, long long* to) {
  bool empty = data == nullptr;
  for (int i = 0; i < view.rank; ++i)
    empty = empty || view.extent[static_cast<std::size_t>(i)] == 0;
  constexpr std::int64_t furthest = (std::int64_t{1} << 31) - 1;
  to[0] = empty ? 0 : word(data);
  for (int i = 0; i < view.rank; ++i) {
    const auto at = static_cast<std::size_t>(i);
    to[WordLayout::extent(0, i)] = empty ? 0 : std::min(view.extent[at], furthest);
    to[WordLayout::stride(0, i)] = empty ? 0 : stride[at];
  }
}

void pack_tensor_words(const WordLayout& layout, const Bindings& b, long long* words) {
  for (std::size_t slot = 0; slot < layout.tensors.size(); ++slot) {
    const ir::TensorView& view = b.tensors[slot];
    if (const int at = layout.tensors[slot]; at >= 0) {
      pack_captured(view, view.data, view.stride, words + at);
    }
  }
}

// Declared scalars, then the literals that bake lifted.
void pack_scalar_words(const WordLayout& layout, const Problem& baked, const Bindings& b,
                       long long* words) {
  for (std::size_t slot = 0; slot < layout.scalars.size(); ++slot) {
    const int at = layout.scalars[slot];
    if (at < 0) continue;
    std::uint32_t bits = 0;
    words[at] = 0;
    const bool whole = baked.program.scalars()[slot].type == ir::Type::I32;
    if (slot < b.scalars.size()) {
      const PerCall<ir::ScalarValue>& scalar = b.scalars[slot];
      words[at] = word(scalar.device);
      bits = whole ? static_cast<std::uint32_t>(scalar.value.i)
                   : std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value.f));
    } else {
      const float literal = b.literals[slot - b.scalars.size()];
      bits = whole ? static_cast<std::uint32_t>(static_cast<std::int32_t>(literal))
                   : std::bit_cast<std::uint32_t>(literal);
    }
    words[at + 1] = static_cast<long long>(bits);
  }
}

// Kernels add to sums in the workspace, so their words have the addresses of those; the gradients
// are written from the sums later.
void pack_gradient_words(const PreparedPlan& prepared, const Bindings& b, Arguments& arguments) {
  long long* const words = arguments.words;
  const WordLayout& layout = prepared.formula.layout;
  for_each_sum(prepared, b.sizes, [&](const WantedGradient& target, std::int64_t offset) {
    const std::byte* const sums =
        static_cast<const std::byte*>(arguments.call.captured_sums) + offset;
    if (!target.is_tensor) {
      words[layout.scalar_gradients[target.slot]] = word(sums);
      return;
    }
    const ir::TensorView& view = b.tensors[target.slot];
    pack_captured(view, sums, view.stride, words + layout.tensor_gradients[target.slot]);
  });
}

}  // namespace

int copy_bytes(const void* data, const Strides& strides, const std::array<std::int64_t, 4>& extents,
               std::int64_t element_bytes) {
  if (strides.d != 1 && extents[3] > 1) return 0;
  auto all = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data));
  const std::int64_t steps[] = {strides.b, strides.h, strides.s};
  for (std::size_t i = 0; i < 3; ++i) {
    if (extents[i] > 1) all |= static_cast<std::uint64_t>(steps[i] * element_bytes);
  }
  for (const int bytes : {16, 8, 4}) {
    if (all % static_cast<std::uint64_t>(bytes) == 0) return bytes;
  }
  return 0;
}

void pack(const PreparedPlan& prepared, const Bindings& bindings, const CallWorkspace& memory,
          Arguments& arguments) {
  device::CallArguments& call = arguments.call;
  const Problem& baked = prepared.baked;
  pack_tensors(baked, bindings, call);
  pack_rows(bindings, call);
  pack_sizes(baked, bindings, call);
  pack_values(bindings, call);
  pack_tensor_words(prepared.formula.layout, bindings, arguments.words);
  pack_scalar_words(prepared.formula.layout, baked, bindings, arguments.words);
  pack_gradient_words(prepared, bindings, arguments);
  for (std::size_t i = 0; i < prepared.formula.summaries.size(); ++i) {
    const Summary& summary = prepared.formula.summaries[i];
    const bool empty = arguments.words[prepared.formula.layout.tensors[summary.slot]] == 0;
    const bool has_table = i < most_summaries && !empty;  // those that do not pay are null
    arguments.words[summary.address] = has_table ? word(memory.summaries[i]) : 0;
  }
}

namespace {

// Whether summaries, by which tiles of keys are left out, save more than the launch that makes them
// takes. With deterministic=1 bits may depend on which tiles are left out, so that this must not
// follow from the size of the batch.
bool summaries_pay(const PreparedPlan& prepared, const Sizes& sizes) {
  constexpr std::int64_t rows = 64, few_keys = 256;
  const std::int64_t blocks = sizes.b * sizes.h * ceil_div(sizes.sq, rows);
  return prepared.baked.deterministic || sizes.skv > few_keys || blocks > prepared.multiprocessors;
}

}  // namespace

CallWorkspace::CallWorkspace(Arena& arena, const PreparedPlan& prepared, const Sizes& sizes,
                             device::CallArguments& call) {
  const Problem& baked = prepared.baked;
  const std::int64_t rows = row_count(sizes, baked.layout);
  const PreparedKernel* const mapped = prepared.mapped_kernel();
  call.delta = call.grad_q_sum = call.row_terms = call.partial_o = call.row_max = nullptr;
  call.key_nans = call.tile_counter = call.query_turns = nullptr;
  call.taken_tiles = call.distances = nullptr;
  call.partial_rows = nullptr;
  call.captured_sums = nullptr;
  call.captured_pieces = call.cell_slices = 0;
  call.split_keys = call.tile_queries = 0;
  call.tile_heads = 1;
  if (baked.direction == Direction::Backward) {
    call.delta = arena.take<float>(rows).data();
    if (baked.want_q && (mapped != nullptr || !baked.deterministic)) {
      call.grad_q_sum = arena.take<float>(grad_q_sum_floats(prepared, sizes)).data();
    }
    if (mapped != nullptr) {
      call.row_terms = arena.take<float>(row_term_floats(prepared, sizes)).data();
      call.key_nans = arena.take<unsigned>(key_nan_words(sizes, mapped->shape)).data();
      call.tile_counter = arena.take<unsigned>(1).data();
      const std::int64_t words = baked.deterministic ? query_turn_words(prepared, sizes) : 0;
      if (words > 0) call.query_turns = arena.take<unsigned>(words).data();
    }
    call.captured_sums = arena.take<std::byte>(captured_sum_bytes(prepared, sizes)).data();
  } else {
    if (baked.max_logit && !baked.row_max) call.row_max = arena.take<float>(rows).data();
    call.split_keys = split_keys(baked, sizes, prepared.multiprocessors);
    const std::int64_t partial =
        split_slots(baked, sizes, call.split_keys) * sizes.hkv * device::decode_group_rows;
    if (call.split_keys > 0) {
      call.partial_o = arena.take<float>(partial, sizes.dv).data();
      call.partial_rows = arena.take<double>(partial, 2).data();
    }
  }
  const std::size_t wanted = summaries_pay(prepared, sizes) ? prepared.formula.summaries.size() : 0;
  for (std::size_t i = 0; i < std::min(wanted, most_summaries); ++i) {
    const Summary& summary = prepared.formula.summaries[i];
    const ResolvedExtents extents =
        resolved_extents(baked.program.tensors()[summary.slot], sizes, baked.h_global);
    summaries[i] = arena.take<std::byte>(summary_bytes(summary, extents)).data();
  }
  if (mapped != nullptr && baked.direction == Direction::Forward) {
    call.tile_heads = tile_heads(prepared.formula, sizes, mapped->shape);
    const std::int64_t tiles = query_tiles(sizes, mapped->shape, call.tile_heads);
    taken_words = (1 + tiles + 3) / 4 * 4;  // cleared four at a time
    call.taken_tiles = arena.take<unsigned>(taken_words).data();
  }
  if (mapped != nullptr) call.tile_queries = mapped->shape.rows / call.tile_heads;
  call.head_tiles = number(sizes.h) / call.tile_heads;
  if (mapped != nullptr && prepared.formula.diagonal_words > 0) {
    const std::int64_t words =
        prepared.formula.diagonal_words *
        device::distance_stride(static_cast<int>(sizes.sq), static_cast<int>(sizes.skv));
    call.distances = arena.take<unsigned>(sizes.b * sizes.h, words).data();
  }
}

namespace {

constexpr std::int64_t key_step = 64, shortest = 256;
constexpr std::int64_t deterministic_keys = 2048;

// Blocks wanted for each multiprocessor. Three run at a time, and the last round of many costs
// little.
constexpr std::int64_t blocks_wanted = 16;

}  // namespace

int split_keys(const Problem& baked, const Sizes& sizes, int multiprocessors) {
  if (!splits_keys(baked) || sizes.hkv == 0 || sizes.skv == 0) return 0;
  const std::int64_t group = sizes.h / sizes.hkv;
  const bool varies = baked.layout == Layout::Thd || baked.has_q_lengths || baked.has_k_lengths;
  const bool decodes = device::decodes(sizes.sq, sizes.skv, static_cast<int>(group));
  // The bits of a sequence must not depend on the others, so its keys are split as if it were
  // alone.
  if (baked.deterministic) return decodes || varies ? deterministic_keys : 0;
  if (!decodes) return 0;
  const std::int64_t row_tiles = (sizes.sq * group + device::decode_rows - 1) / device::decode_rows;
  const std::int64_t blocks = std::max<std::int64_t>(sizes.b * sizes.hkv * row_tiles, 1);
  const std::int64_t splits =
      std::max<std::int64_t>((blocks_wanted * multiprocessors + blocks - 1) / blocks, 1);
  const std::int64_t keys = (sizes.skv + splits - 1) / splits;
  return static_cast<int>(std::max((keys + key_step - 1) / key_step * key_step, shortest));
}

std::int64_t split_slots(const Problem& baked, const Sizes& sizes, int keys) {
  if (keys == 0) return 0;
  return baked.layout == Layout::Thd ? device::decode_slots_packed(sizes.b, sizes.t_k, keys)
                                     : device::decode_slots(sizes.b, sizes.skv, keys);
}

}  // namespace fovea::jit
