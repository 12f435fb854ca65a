#include "attention/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "attention/extents.h"
#include "attention/refuse.h"

namespace fovea {
namespace {

constexpr std::int64_t largest_element = 8;  // bytes

// Nothing if it does not fit 64 bits.
using Checked = std::optional<std::int64_t>;
Checked product(Checked a, std::int64_t b) {
  std::int64_t out = 0;
  if (!a || __builtin_mul_overflow(*a, b, &out)) return std::nullopt;
  return out;
}
Checked sum(Checked a, Checked b) {
  std::int64_t out = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &out)) return std::nullopt;
  return out;
}

// Bytes of a dense tensor. An extent of 0 counts as 1: strides are products of the others.
bool fits(std::span<const std::int64_t> extents, std::int64_t element_bytes) {
  Checked bytes = element_bytes;
  for (const std::int64_t extent : extents)
    bytes = product(bytes, std::max<std::int64_t>(extent, 1));
  return bytes.has_value();
}

// The furthest element from the first one.
Checked reach(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides) {
  Checked last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    last = sum(last, product(std::max<std::int64_t>(extents[i], 1) - 1, strides[i]));
  }
  return last;
}

void check_one_size(std::string_view name, std::int64_t value, std::int64_t largest) {
  if (value < 0) refuse(name, value, "must be 0 or more");
  if (value > largest) refuse(name, value, "must be below 2^31");
}

}  // namespace

void check_sizes(const Sizes& s, Layout layout) {
  constexpr std::int64_t largest = most_positions - 1;
  check_one_size("b", s.b, largest);
  check_one_size("h", s.h, largest);
  check_one_size("hkv", s.hkv, largest);
  check_one_size("sq", s.sq, largest);
  check_one_size("skv", s.skv, largest);
  check_one_size("d", s.d, largest);
  check_one_size("dv", s.dv, largest);
  check_one_size("tq", s.t_q, largest);
  check_one_size("tk", s.t_k, largest);
  if (s.hkv == 0 && s.h != 0) refuse("hkv", s.hkv, "must be 1 or more if there are heads");
  if (s.hkv != 0 && s.h % s.hkv != 0) {
    refuse("h", s.h, "must be a multiple of hkv=" + std::to_string(s.hkv));
  }
  if (layout != Layout::Thd) {
    if (s.t_q != 0) refuse("tq", s.t_q, "only layout=thd has packed rows");
    if (s.t_k != 0) refuse("tk", s.t_k, "only layout=thd has packed rows");
  }
  for (const NamedTensor& tensor : named_tensors()) {
    const auto extents = extents_of(s, layout, tensor);
    // Whatever the type: a bound call may have another one than was planned for.
    if (!fits(extents, largest_element)) {
      refuse(tensor.name, "[" + number_list(extents) + "]",
             "has more bytes than 64 bits can count (batch, heads, positions, features)");
    }
  }
}

bool is_free_of_overlap(std::span<const std::int64_t> extents,
                        std::span<const std::int64_t> strides) {
  std::array<std::size_t, ir::limits::rank> order{};  // by stride, the smallest first
  std::size_t count = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] <= 1) continue;
    std::size_t at = count++;
    for (; at > 0 && strides[order[at - 1]] > strides[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  std::int64_t reached = 0;
  for (const std::size_t i : std::span(order.data(), count)) {
    if (strides[i] <= reached) return false;
    reached += (extents[i] - 1) * strides[i];
  }
  return true;
}

void check_reach(const ArgumentName& name, std::span<const std::int64_t> extents,
                 std::span<const std::int64_t> strides, std::int64_t element_bytes) {
  if (std::ranges::any_of(strides, [](std::int64_t stride) { return stride < 0; })) {
    refuse(name.text(), number_list(strides), "strides must be 0 or more");
  }
  if (!product(sum(reach(extents, strides), 1), element_bytes)) {
    refuse(name.text(), number_list(strides), "reaches further than 64 bits can count");
  }
}

void check_strides(const StridedTensor& tensor, Layout layout) {
  const std::array<std::int64_t, 4> strides = tensor.strides.list();
  check_reach(tensor.name, tensor.extents, strides, tensor.element_bytes);
  if (layout == Layout::Thd && tensor.strides.b != 0) {
    refuse(tensor.name, number_list(strides), "the batch stride must be 0 under layout=thd");
  }
  const bool empty = std::ranges::find(tensor.extents, 0) != tensor.extents.end();
  if (tensor.output && !empty && !is_free_of_overlap(tensor.extents, strides)) {
    refuse(tensor.name, number_list(strides),
           "elements of an output must not overlap (extents " + number_list(tensor.extents) + ")");
  }
}

std::uintptr_t bytes_of(std::span<const std::int64_t> extents,
                        std::span<const std::int64_t> strides, std::int64_t element_bytes) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 0) return 0;
    last += (extents[i] - 1) * strides[i];
  }
  return static_cast<std::uintptr_t>((last + 1) * element_bytes);
}

void check_coordinates(const Coordinates& c, const Sizes& sizes) {
  struct Row {
    std::string_view name, size_name;
    std::int64_t offset, size;
  };
  const Row rows[] = {{"b_offset", "b", c.b_offset, sizes.b},
                      {"h_offset", "h", c.h_offset, sizes.h},
                      {"q_offset", "sq", c.q_offset, sizes.sq},
                      {"k_offset", "skv", c.k_offset, sizes.skv}};
  for (const Row& row : rows) {
    if (row.offset < 0) refuse(row.name, row.offset, "must be 0 or more");
    if (row.offset + row.size > most_positions) {
      refuse(row.name, row.offset,
             "positions must stay below 2^31 (" + std::string(row.size_name) + "=" +
                 std::to_string(row.size) + ")");
    }
  }
  if (c.h_global < 0) refuse("h_global", c.h_global, "must be 0 or more");
  if (c.h_global != 0 && c.h_global < c.h_offset + sizes.h) {
    refuse("h_global", c.h_global,
           "must be at least h_offset + h = " + std::to_string(c.h_offset + sizes.h));
  }
  if (!c.dropout || sizes.b == 0) return;
  const std::int64_t heads = heads_seen(sizes, c.h_global);
  const Checked last =
      sum(product(c.b_offset + sizes.b - 1, heads), std::int64_t{c.h_offset} + sizes.h);
  if (!last || *last > std::int64_t{1} << 32) {
    refuse("b", sizes.b, "dropout numbers b * H + h (offsets included) in 32 bits");
  }
}

void check_dropout(float probability) {
  if (!(probability >= 0 && probability < 1)) {
    refuse("dropout", probability, "must be at least 0 and less than 1");
  }
}

void check_scale(double scale) {
  if (!std::isfinite(static_cast<float>(scale))) refuse("scale", scale, "must be finite");
}

void check_captured_extents(const ir::Program& program, const Sizes& sizes, std::int32_t h_global) {
  for (const ir::TensorDecl& tensor : program.tensors()) {
    const ResolvedExtents resolved = resolved_extents(tensor, sizes, h_global);
    const std::span<const std::int64_t> extents = resolved;
    if (std::ranges::any_of(extents, [](std::int64_t x) { return x < 0; })) {
      refuse("tensor " + tensor.name, "[" + number_list(extents) + "]",
             "extents must be 0 or more");
    }
    if (!fits(extents, largest_element)) {
      refuse("tensor " + tensor.name, "[" + number_list(extents) + "]",
             "has more bytes than 64 bits can count");
    }
  }
}

namespace {

std::string entry(std::string_view name, std::size_t i) {
  return std::string(name) + "[" + std::to_string(i) + "]";
}

void check_starts(const Sequences& s) {
  if (s.starts.empty()) return;
  if (s.starts[0] != 0) refuse(entry(s.named.starts, 0), s.starts[0], "the first start must be 0");
  for (std::size_t i = 1; i < s.starts.size(); ++i) {
    if (s.starts[i] < s.starts[i - 1]) {
      refuse(entry(s.named.starts, i), s.starts[i],
             "starts must not fall (" + std::to_string(s.starts[i - 1]) + " before it)");
    }
  }
  if (s.starts.back() > s.rows) {
    refuse(entry(s.named.starts, s.starts.size() - 1), s.starts.back(),
           "the last start must be at most " + std::string(s.named.rows) + "=" +
               std::to_string(s.rows));
  }
}

// The room of sequence i in the packed tensor.
std::int64_t room(const Sequences& s, std::size_t i) {
  return s.starts.empty() ? s.longest : std::int64_t{s.starts[i + 1]} - s.starts[i];
}

void check_lengths(const Sequences& s) {
  for (std::size_t i = 0; i < s.lengths.size(); ++i) {
    if (s.lengths[i] < 0 || s.lengths[i] > s.longest) {
      refuse(entry(s.named.lengths, i), s.lengths[i],
             "must lie in 0.." + std::string(s.named.longest) + "=" + std::to_string(s.longest));
    }
    if (s.lengths[i] > room(s, i)) {
      refuse(entry(s.named.lengths, i), s.lengths[i],
             "is more than the " + std::to_string(room(s, i)) + " rows between its starts");
    }
  }
  if (!s.lengths.empty() || s.starts.empty()) return;
  for (std::size_t i = 0; i + 1 < s.starts.size(); ++i) {
    if (room(s, i) <= s.longest) continue;
    refuse(entry(s.named.starts, i + 1), s.starts[i + 1],
           "gives a sequence of " + std::to_string(room(s, i)) + " rows, more than " +
               std::string(s.named.longest) + "=" + std::to_string(s.longest));
  }
}

void check_offsets(const Sequences& s) {
  for (std::size_t i = 0; i < s.offsets.size(); ++i) {
    if (s.offsets[i] < 0) refuse(entry(s.named.offsets, i), s.offsets[i], "must be 0 or more");
    const std::int64_t length = s.lengths.empty() ? s.longest : s.lengths[i];
    if (s.offsets[i] + length > most_positions) {
      refuse(entry(s.named.offsets, i), s.offsets[i],
             "positions must stay below 2^31 (its length is " + std::to_string(length) + ")");
    }
  }
}

}  // namespace

void check_sequences(const Sequences& sequences) {
  check_starts(sequences);
  check_lengths(sequences);
  check_offsets(sequences);
}

namespace {

// The bytes that elements take within one period of `pitch`: from `first` on, `bytes` of them.
struct Window {
  std::int64_t first = 0, bytes = 0;
};

// Dimensions that step by whole periods do not move the window; the others widen it.
Window window_of(const Region& region, std::int64_t pitch) {
  Window window{static_cast<std::int64_t>(region.address % static_cast<std::uintptr_t>(pitch)),
                region.element_bytes};
  for (std::size_t i = 0; i < region.rank; ++i) {
    if (region.stride[i] % pitch != 0) window.bytes += (region.extent[i] - 1) * region.stride[i];
  }
  return window;
}

// Both windows lie on a circle of `pitch` bytes.
bool apart(const Window& a, const Window& b, std::int64_t pitch) {
  const std::int64_t ahead = (b.first - a.first + pitch) % pitch;  // from a to b
  return a.bytes <= ahead && b.bytes <= pitch - ahead;
}

bool separated_by_stride_of(const Region& which, const Region& a, const Region& b) {
  for (std::size_t i = 0; i < which.rank; ++i) {
    const std::int64_t pitch = which.stride[i];
    if (which.extent[i] > 1 && pitch > 0 &&
        apart(window_of(a, pitch), window_of(b, pitch), pitch)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::uintptr_t Region::bytes() const {
  const std::uintptr_t to_last = bytes_of({extent.data(), rank}, {stride.data(), rank}, 1);
  return to_last == 0 ? 0 : to_last - 1 + static_cast<std::uintptr_t>(element_bytes);
}

bool overlap(const Region& a, const Region& b) {
  return meet({a.address, a.bytes()}, {b.address, b.bytes()}) && !separated_by_stride_of(a, a, b) &&
         !separated_by_stride_of(b, a, b);
}

}  // namespace fovea
