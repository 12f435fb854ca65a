#include "bench/gpu/device_line.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <sstream>
#include <tuple>

#include "cli/check/array.h"
#include "cli/check/captured.h"

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
  const auto fill = [&](auto& strides, auto& of_gradient, auto heads, auto length, auto features) {
    fill_strides(strides, config, heads, length, features);
    fill_strides(of_gradient, config, heads, length, features);
  };
  fill(config.q_strides, config.dq_strides, s.h, s.sq, s.d);
  fill(config.o_strides, config.do_strides, s.h, s.sq, s.dv);
  fill(config.k_strides, config.dk_strides, s.hkv, s.skv, s.d);
  fill(config.v_strides, config.dv_strides, s.hkv, s.skv, s.dv);
}

std::size_t element_bytes(fovea_dtype dtype) {
  return static_cast<std::size_t>(cli::element_size(cli::dtype_name(dtype)));
}

fovea_dtype or_else(fovea_dtype dtype, fovea_dtype otherwise) {
  return dtype == FOVEA_DTYPE_DEFAULT ? otherwise : dtype;
}

std::unique_ptr<DeviceMemory> block_of(const void* from, std::size_t bytes) {
  auto block = std::make_unique<DeviceMemory>(std::max<std::size_t>(bytes, 256));
  block->send(from, bytes);
  return block;
}

std::unique_ptr<DeviceMemory> normal_block(fovea_dtype dtype, std::int64_t count, unsigned seed) {
  // Drawing takes longer than measuring: rows that follow one another share the numbers.
  static std::map<std::tuple<fovea_dtype, std::int64_t, unsigned>, cli::Array> all_drawn;
  const std::int64_t drawn = std::min(count, drawn_at_most);
  cli::Array& values = all_drawn[{dtype, drawn, seed}];
  if (values.bytes.empty()) {
    values = cli::make_data({"x", cli::dtype_name(dtype), "normal(1)", {drawn}, seed, 1});
  }
  const std::size_t bytes = static_cast<std::size_t>(count) * element_bytes(dtype);
  auto block = std::make_unique<DeviceMemory>(std::max<std::size_t>(bytes, 256));
  for (std::size_t at = 0; at < bytes; at += values.bytes.size()) {
    block->send(values.bytes.data(), std::min(values.bytes.size(), bytes - at), at);
  }
  return block;
}

std::unique_ptr<DeviceMemory> integers(const std::string& line, const char* key, bool wanted) {
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

void* data(const std::unique_ptr<DeviceMemory>& block) { return block ? block->data() : nullptr; }
const std::int32_t* numbers(const std::unique_ptr<DeviceMemory>& block) {
  return static_cast<const std::int32_t*>(data(block));
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
  workspace_ = std::make_unique<DeviceMemory>(
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
      blocks_.push_back(std::make_unique<DeviceMemory>(
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
      blocks_.push_back(std::make_unique<DeviceMemory>(256));
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

namespace {

struct Row {
  std::int64_t b = 0, h = 0, q = 0;
};

bool captures_all(const DeviceLine& line) {
  return line.captured().tensors.size() == fovea_program_tensor_count(line.program());
}

// `count` elements from `first` on, as numbers.
std::vector<double> fetch(const DeviceMemory& block, fovea_dtype dtype, std::int64_t first,
                          std::int64_t count) {
  cli::Array array = cli::zeros(cli::dtype_name(dtype), {count});
  const auto size = static_cast<std::size_t>(cli::element_size(array.dtype));
  block.fetch(array.bytes.data(), array.bytes.size(), static_cast<std::size_t>(first) * size);
  std::vector<double> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(array.get(i));
  return out;
}

struct Keys {
  std::vector<double> k, v;  // from the head's first row on, at the tensors' strides
};

class RowOnHost {
 public:
  explicit RowOnHost(const DeviceLine& line)
      : line_(line), c_(line.config()), formula_(line.program(), line.captured(), c_.sizes) {}

  std::vector<double> compute(const Row& row) const {
    const fovea_sizes& s = c_.sizes;
    const std::int64_t g = row.h / (s.h / s.hkv);
    const Keys keys = fetch_keys(row.b, g);
    const std::vector<double> q =
        fetch(*line_.first().q, c_.dtype, at(c_.q_strides, row.b, row.h, row.q), s.d);
    std::vector<double> scores;
    for (std::int64_t k = 0; k < s.skv; ++k) scores.push_back(score(row, q, keys, k));
    const double top = std::ranges::max(scores);
    std::vector<double> o(static_cast<std::size_t>(s.dv), 0);
    if (std::isinf(top)) return o;
    double sum = 0;
    for (std::int64_t k = 0; k < s.skv; ++k) {
      const double p = std::exp(scores[static_cast<std::size_t>(k)] - top);
      sum += p;
      const auto from = static_cast<std::size_t>(k * c_.v_strides[2]);
      for (std::size_t i = 0; i < o.size() && p != 0; ++i) o[i] += p * keys.v[from + i];
    }
    for (double& x : o) x /= sum;
    return o;
  }

 private:
  static std::int64_t at(const std::int64_t (&strides)[4], std::int64_t b, std::int64_t h,
                         std::int64_t i) {
    return b * strides[0] + h * strides[1] + i * strides[2];
  }
  Keys fetch_keys(std::int64_t b, std::int64_t g) const {
    const fovea_sizes& s = c_.sizes;
    return {fetch(*line_.first().k, c_.dtype, at(c_.k_strides, b, g, 0),
                  (s.skv - 1) * c_.k_strides[2] + s.d),
            fetch(*line_.first().v, c_.dtype, at(c_.v_strides, b, g, 0),
                  (s.skv - 1) * c_.v_strides[2] + s.dv)};
  }
  double score(const Row& row, const std::vector<double>& q, const Keys& keys,
               std::int64_t k) const {
    const auto from = static_cast<std::size_t>(k * c_.k_strides[2]);
    double dot = 0;
    for (std::size_t i = 0; i < q.size(); ++i) dot += q[i] * keys.k[from + i];
    const double scale = c_.scale != 0 ? static_cast<double>(c_.scale)
                                       : 1 / std::sqrt(static_cast<double>(q.size()));
    const auto value = formula_.evaluate({row.b, row.h, row.q, k}, static_cast<float>(scale * dot));
    if (!value.keep) return -std::numeric_limits<double>::infinity();
    return static_cast<double>(value.score);
  }

  const DeviceLine& line_;
  const fovea_problem_config& c_;
  cli::BoundProgram formula_;
};

bool can_tell(const DeviceLine& line) {
  const fovea_problem_config& c = line.config();
  const bool plain = c.layout != FOVEA_THD && c.dropout == 0 && c.sink == 0 &&
                     c.has_q_lengths == 0 && c.has_k_lengths == 0 && c.has_q_offsets == 0 &&
                     c.has_k_offsets == 0 && c.q_offset == 0 && c.k_offset == 0 && c.h_offset == 0;
  return plain && captures_all(line);
}

}  // namespace

double error_of_sampled_rows(const DeviceLine& line) {
  if (!can_tell(line)) return -1;
  const fovea_sizes& s = line.config().sizes;
  const Row rows[] = {{0, 0, 0}, {s.b - 1, s.h - 1, s.sq - 1}, {s.b / 2, s.h / 2, s.sq * 5 / 8}};
  const RowOnHost on_host(line);
  double error = 0, square = 1e-300;
  for (const Row& row : rows) {
    const std::vector<double> right = on_host.compute(row);
    const auto& strides = line.config().o_strides;
    const fovea_dtype type =
        line.config().o_dtype == FOVEA_DTYPE_DEFAULT ? line.config().dtype : line.config().o_dtype;
    const std::vector<double> got = fetch(
        *line.first().o, type, row.b * strides[0] + row.h * strides[1] + row.q * strides[2], s.dv);
    for (std::size_t i = 0; i < right.size(); ++i) {
      error += (got[i] - right[i]) * (got[i] - right[i]);
      square += right[i] * right[i];
    }
  }
  return std::sqrt(error / square);
}

double kept_share(const DeviceLine& line) {
  const fovea_sizes& s = line.config().sizes;
  if (line.config().layout == FOVEA_THD || !captures_all(line)) return 1;
  const cli::BoundProgram formula(line.program(), line.captured(), s);
  if (!formula.has_mask()) return 1;
  constexpr std::int64_t tile = 64;
  double kept = 0;
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t q = 0; q < s.sq; q += tile) {
      for (std::int64_t k = 0; k < s.skv; k += tile) {
        const std::int64_t q1 = std::min(q + tile, s.sq), k1 = std::min(k + tile, s.skv);
        const cli::TileClass found = formula.classify({b, 0, q, q1, k, k1});
        const double scores = static_cast<double>((q1 - q) * (k1 - k));
        if (found == cli::TileClass::Full) kept += scores;
        if (found == cli::TileClass::Mixed) kept += scores / 2;
      }
    }
  }
  return kept / static_cast<double>(s.b * s.sq * s.skv);
}

}  // namespace fovea::bench
