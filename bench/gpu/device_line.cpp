#include "bench/gpu/device_line.h"

#include <algorithm>
#include <chrono>
#include <sstream>

#include "cli/check/array.h"

namespace fovea::bench {
namespace {

constexpr std::int64_t drawn_at_most = std::int64_t{1} << 20;  // elements; then they repeat
constexpr std::size_t rotated_bytes = std::size_t{200} << 20;  // several times an L2 cache
constexpr std::int64_t small_capture = std::int64_t{1} << 22;  // elements drawn as declared

// By batch, head, position, feature, if the line has none: dense in the layout.
void fill_strides(std::int64_t (&strides)[4], const fovea_problem_config& config,
                  std::int64_t heads, std::int64_t length, std::int64_t features) {
  if (strides[0] != 0 || strides[1] != 0 || strides[2] != 0 || strides[3] != 0) return;
  strides[3] = 1;
  switch (config.layout) {
    case FOVEA_BHSD:
      strides[2] = features, strides[1] = length * features, strides[0] = heads * strides[1];
      return;
    case FOVEA_BSHD:
      strides[1] = features, strides[2] = heads * features, strides[0] = length * strides[2];
      return;
    case FOVEA_SBHD:
      strides[1] = features, strides[0] = heads * features;
      strides[2] = config.sizes.b * strides[0];
      return;
    case FOVEA_THD: strides[1] = features, strides[2] = heads * features; return;
  }
}

void describe(const Problem& problem, fovea_problem_config& config) {
  config.struct_size = sizeof config;
  check(fovea_problem_describe(problem.get(), &config));
  const fovea_sizes& s = config.sizes;
  for (auto* strides : {&config.q_strides, &config.dq_strides}) {
    fill_strides(*strides, config, s.h, s.sq, s.d);
  }
  for (auto* strides : {&config.o_strides, &config.do_strides}) {
    fill_strides(*strides, config, s.h, s.sq, s.dv);
  }
  for (auto* strides : {&config.k_strides, &config.dk_strides}) {
    fill_strides(*strides, config, s.hkv, s.skv, s.d);
  }
  for (auto* strides : {&config.v_strides, &config.dv_strides}) {
    fill_strides(*strides, config, s.hkv, s.skv, s.dv);
  }
}

std::size_t element_bytes(fovea_dtype dtype) {
  return static_cast<std::size_t>(cli::element_size(cli::dtype_name(dtype)));
}

fovea_dtype or_else(fovea_dtype dtype, fovea_dtype otherwise) {
  return dtype == FOVEA_DTYPE_DEFAULT ? otherwise : dtype;
}

std::unique_ptr<Block> block_of(const void* from, std::size_t bytes) {
  auto block = std::make_unique<Block>(std::max<std::size_t>(bytes, 256));
  block->send(from, bytes);
  return block;
}

std::unique_ptr<Block> normal_block(fovea_dtype dtype, std::int64_t count, unsigned seed) {
  const std::int64_t drawn = std::min(count, drawn_at_most);
  const cli::Array values =
      cli::make_data({"x", cli::dtype_name(dtype), "normal(1)", {drawn}, seed, 1});
  const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes(dtype);
  auto block = std::make_unique<Block>(std::max<std::size_t>(bytes, 256));
  for (std::size_t at = 0; at < bytes; at += values.bytes.size()) {
    block->send(values.bytes.data(), std::min(values.bytes.size(), bytes - at), at);
  }
  return block;
}

std::unique_ptr<Block> integers(const std::string& line, const char* key, bool wanted) {
  if (!wanted) return nullptr;
  std::vector<std::int32_t> values;
  std::istringstream in(line_value(line, key));
  for (std::int32_t x = 0; in >> x; in.ignore()) values.push_back(x);
  if (values.empty())
    throw std::invalid_argument("the line needs numbers after " + std::string(key));
  return block_of(values.data(), values.size() * sizeof values[0]);
}

// Elements from the first to the last, over [batch, head, position, feature]. Strides that are all
// zero stand for a dense tensor.
std::int64_t span_of(const std::int64_t (&strides)[4], const std::int64_t (&extents)[4]) {
  std::int64_t last = 0, all = 1;
  for (int i = 0; i < 4; ++i) {
    last += std::max<std::int64_t>(extents[i] - 1, 0) * strides[i];
    all *= extents[i];
  }
  return last == 0 ? all : last + 1;
}

const std::int32_t* numbers(const std::unique_ptr<Block>& block) {
  return block ? static_cast<const std::int32_t*>(block->data()) : nullptr;
}

}  // namespace

DeviceLine::DeviceLine(const std::string& line, const std::string& engine) : line_(line) {
  if (line_.find("direction=") == std::string::npos) line_ += " direction=both";
  const auto [forward, backward] = Problem::parse(line_);
  describe(forward, config_);
  if (config_.direction != FOVEA_FORWARD) throw std::invalid_argument("direction: forward or both");
  if (backward) describe(*backward, backward_config_);
  program_ = forward.program();

  const auto start = std::chrono::steady_clock::now();
  const Where where{engine, "cuda:0"};
  forward_plan_.emplace(forward, where);
  if (backward) backward_plan_.emplace(*backward, where);
  plan_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  place_captured();
  place_lengths();
  make_sets();
  const std::size_t of_backward = backward_plan_ ? backward_plan_->workspace() : 0;
  workspace_ = std::make_unique<Block>(
      std::max({forward_plan_->workspace(), of_backward, std::size_t{256}}));
}

std::string DeviceLine::engine_name() const {
  const std::string name = forward_plan_->engine();
  if (!has_backward()) return name;
  const std::string other = backward_plan_->engine();
  return name == other ? name : name + ", " + other;
}

bool DeviceLine::wants(const std::string& gradient) const {
  if (!has_backward()) return false;
  const std::string all = backward_config_.grads == nullptr ? "q,k,v" : backward_config_.grads;
  return ("," + all + ",").find("," + gradient + ",") != std::string::npos;
}

void DeviceLine::place_captured() {
  fovea_sizes sizes = config_.sizes;
  if (config_.h_global != 0) sizes.h = config_.h_global;
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program_->get()); ++i) {
    check(fovea_program_tensor(program_->get(), i, &info));
    const std::vector<std::int64_t> extents = cli::extents_of(info.extents, sizes);
    std::int64_t count = 1;
    for (const std::int64_t x : extents) count *= x;
    fovea_tensor_binding binding{};
    binding.name = info.name;
    if (count <= small_capture || !cli::is_float(cli::dtype_name(info.dtype))) {
      captured_.tensors.push_back(
          {info.name, cli::make_data({info.name, cli::dtype_name(info.dtype), info.data, extents,
                                      cli::seed_for(1, info.name),
                                      cli::index_bound(program_->get(), info.name, sizes)})});
      const auto& bytes = captured_.tensors.back().values.bytes;
      blocks_.push_back(block_of(bytes.data(), bytes.size()));
    } else {
      blocks_.push_back(normal_block(info.dtype, count, 7));
    }
    binding.array.data = blocks_.back()->data();
    tensors_.push_back(binding);
    if (wants(info.name)) {
      blocks_.push_back(std::make_unique<Block>(
          std::max<std::size_t>(static_cast<std::size_t>(count) * element_bytes(info.dtype), 256)));
      binding.gradient.data = blocks_.back()->data();
    }
    tensors_with_gradients_.push_back(binding);
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(program_->get()); ++i) {
    check(fovea_program_scalar(program_->get(), i, &info));
    captured_.scalars.push_back({info.name, info.value, info.dtype == FOVEA_F32});
    fovea_scalar_binding binding{info.name, info.value, nullptr, nullptr};
    scalars_.push_back(binding);
    if (wants(info.name)) {
      blocks_.push_back(std::make_unique<Block>(256));
      binding.gradient = blocks_.back()->data();
    }
    scalars_with_gradients_.push_back(binding);
  }
}

void DeviceLine::place_lengths() {
  lengths_.q_lengths = integers(line_, "qlens", config_.has_q_lengths != 0);
  lengths_.k_lengths = integers(line_, "klens", config_.has_k_lengths != 0);
  const bool packed = config_.layout == FOVEA_THD;
  const bool same = line_value(line_, "cu_k").empty();
  lengths_.q_starts = integers(line_, "cu_q", packed);
  lengths_.k_starts = integers(line_, same ? "cu_q" : "cu_k", packed);
  lengths_.q_offsets = integers(line_, "q_offset", config_.has_q_offsets != 0);
  lengths_.k_offsets = integers(line_, "k_offset", config_.has_k_offsets != 0);
  if (config_.sink != 0) sink_ = normal_block(FOVEA_F32, config_.sizes.h, 8);
  if (wants("sink")) grad_sink_ = normal_block(FOVEA_F32, config_.sizes.h, 9);
}

TensorSet DeviceLine::make_set(unsigned seed) {
  const fovea_sizes& s = config_.sizes;
  const bool packed = config_.layout == FOVEA_THD;
  const std::int64_t batch = packed ? 1 : s.b;
  const std::int64_t rows = packed ? s.t_q : s.sq, keys = packed ? s.t_k : s.skv;
  const fovea_dtype type = or_else(config_.dtype, FOVEA_F32);
  const auto make = [&](const std::int64_t(&strides)[4], std::int64_t heads, std::int64_t length,
                        std::int64_t features, fovea_dtype dtype, unsigned stream) {
    const std::int64_t extents[4] = {batch, heads, length, features};
    const std::int64_t count = span_of(strides, extents);
    set_bytes_ += static_cast<std::size_t>(count) * element_bytes(dtype);
    return normal_block(dtype, count, seed * 16 + stream);
  };
  TensorSet set;
  const fovea_problem_config& f = config_;
  const fovea_problem_config& g = backward_config_;
  set_bytes_ = 0;
  set.k = make(f.k_strides, s.hkv, keys, s.d, type, 2);
  set.v = make(f.v_strides, s.hkv, keys, s.dv, type, 3);
  key_value_bytes_ = set_bytes_;
  set.q = make(f.q_strides, s.h, rows, s.d, type, 1);
  set.o = make(f.o_strides, s.h, rows, s.dv, or_else(f.o_dtype, type), 4);
  const struct {
    std::int64_t rows, heads;
  } count{batch * s.h * rows, s.h};
#define FOVEA_OUTPUT(name, extent, saved) \
  if (f.name != 0 || saved) set.name = normal_block(FOVEA_F32, count.extent, 5);
#include "fovea/fields.def"
  if (!has_backward()) return set;
  set.grad_o = make(g.do_strides, s.h, rows, s.dv, or_else(g.do_dtype, type), 6);
  if (g.has_grad_lse != 0) set.grad_lse = normal_block(FOVEA_F32, count.rows, 10);
  if (wants("q")) set.grad_q = make(g.dq_strides, s.h, rows, s.d, or_else(g.dq_dtype, type), 7);
  if (wants("k")) set.grad_k = make(g.dk_strides, s.hkv, keys, s.d, or_else(g.dk_dtype, type), 8);
  if (wants("v")) set.grad_v = make(g.dv_strides, s.hkv, keys, s.dv, or_else(g.dv_dtype, type), 9);
  return set;
}

void DeviceLine::make_sets() {
  sets_.push_back(make_set(1));
  const std::size_t wanted = std::clamp<std::size_t>(rotated_bytes / set_bytes_ + 1, 2, 8);
  while (sets_.size() < wanted) sets_.push_back(make_set(static_cast<unsigned>(sets_.size()) + 1));
}

fovea_bindings DeviceLine::bindings_of(const TensorSet& set) const {
  const auto data = [](const std::unique_ptr<Block>& block) {
    return block ? block->data() : nullptr;
  };
  fovea_bindings b{};
  b.struct_size = sizeof b;
  b.q.data = data(set.q), b.k.data = data(set.k), b.v.data = data(set.v), b.o.data = data(set.o);
  b.sink = data(sink_);
  b.q_lengths = numbers(lengths_.q_lengths), b.k_lengths = numbers(lengths_.k_lengths);
  b.q_starts = numbers(lengths_.q_starts), b.k_starts = numbers(lengths_.k_starts);
  b.q_offsets = numbers(lengths_.q_offsets), b.k_offsets = numbers(lengths_.k_offsets);
  b.tensors = tensors_.data(), b.tensor_count = tensors_.size();
  b.scalars = scalars_.data(), b.scalar_count = scalars_.size();
  b.seed.value = 1;
  b.workspace = workspace_->data();
  return b;
}

void DeviceLine::forward() {
  const TensorSet& set = sets_[next_++ % sets_.size()];
  fovea_bindings b = bindings_of(set);
#define FOVEA_OUTPUT(name, extent, saved) \
  if (config_.name != 0) b.name = set.name->data();
#include "fovea/fields.def"
  b.workspace_bytes = forward_plan_->workspace();
  forward_plan_->run(b);
}

void DeviceLine::backward() {
  const TensorSet& set = sets_[next_++ % sets_.size()];
  const auto data = [](const std::unique_ptr<Block>& block) {
    return block ? block->data() : nullptr;
  };
  fovea_bindings b = bindings_of(set);
  b.lse = data(set.lse);
  b.grad_o.data = data(set.grad_o), b.grad_q.data = data(set.grad_q);
  b.grad_k.data = data(set.grad_k), b.grad_v.data = data(set.grad_v);
  b.grad_lse = data(set.grad_lse);
  b.grad_sink = data(grad_sink_);
  b.tensors = tensors_with_gradients_.data();
  b.scalars = scalars_with_gradients_.data();
  b.workspace_bytes = backward_plan_->workspace();
  backward_plan_->run(b);
}

}  // namespace fovea::bench
