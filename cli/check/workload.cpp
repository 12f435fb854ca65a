#include "cli/check/workload.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>

#include "cli/check/captured.h"
#include "cli/check/placed.h"

namespace fovea::cli {
namespace {

std::vector<std::int32_t> numbers(const std::string& line, const char* key) {
  const std::string text = line_value(line, key);
  std::vector<std::int32_t> out;
  const char* at = text.data();
  const char* const last = text.data() + text.size();
  while (at < last) {
    const auto [end, error] = std::from_chars(at, last, out.emplace_back());
    if (error != std::errc{} || (end < last && *end != ',')) {
      throw std::invalid_argument(std::string(key) + "=" + text + ": must be numbers a,b,c");
    }
    at = end + 1;
  }
  return out;
}

std::uint64_t seed_value(const std::string& line, const char* key, std::uint64_t otherwise) {
  const std::string text = line_value(line, key);
  return text.empty() ? otherwise : std::stoull(text);
}

// Drawn densely and read back from where it will lie: repeated elements are equal then.
Array normal_tensor(const Workload& workload, const std::string& name, std::uint64_t seed) {
  const Placement placement = placement_of(workload, name);
  const Array drawn =
      make_data({name, placement.dtype, "normal(1)", placement.extents, seed_for(seed, name), 1});
  return Placed(placement, drawn).take();
}

// A forward's config says nothing about gradients.
void clear_gradients(fovea_problem_config& config) {
  config.do_dtype = config.dq_dtype = FOVEA_DTYPE_DEFAULT;
  config.dk_dtype = config.dv_dtype = FOVEA_DTYPE_DEFAULT;
  config.has_grad_lse = 0;
  config.grads = nullptr;
  for (auto* strides :
       {&config.do_strides, &config.dq_strides, &config.dk_strides, &config.dv_strides}) {
    std::fill(std::begin(*strides), std::end(*strides), 0);
  }
}

// The forward whose outputs a lone backward reads.
Problem forward_of(const Workload& backward) {
  fovea_problem_config config = backward.backward_config;
  config.direction = FOVEA_FORWARD;
  config.program = backward.program->get();
  config.lse = 1;
  clear_gradients(config);
  return Problem(config);
}

void parse_problems(Workload& workload, const std::string& line) {
  auto [first, second] = Problem::parse(line);
  describe(first, workload.config);
  if (workload.config.direction == FOVEA_TANGENT) {
    throw std::invalid_argument(
        "direction=tangent: a line has no tangents to run it with; explain takes it, and "
        "fovea.torch and fovea.jax run it");
  }
  if (second) describe(*second, workload.backward_config);
  workload.program = first.program();
  workload.forward = std::move(first);
  workload.backward = std::move(second);
  if (workload.config.direction == FOVEA_FORWARD) return;
  workload.forward_asked = false;
  workload.backward = workload.forward;
  workload.backward_config = workload.config;
  workload.forward = forward_of(workload);
  describe(*workload.forward, workload.config);
  if (workload.config.sizes.dv != workload.backward_config.sizes.dv) {
    throw std::invalid_argument("dv=0: direction=backward needs a forward to run; give both");
  }
}

void need(const std::string& key, std::size_t got, std::int64_t wanted) {
  if (static_cast<std::int64_t>(got) == wanted) return;
  throw std::invalid_argument(key + ": this line needs " + std::to_string(wanted) +
                              " numbers there to run, got " + std::to_string(got));
}

void read_bound_values(Workload& workload, const std::string& line) {
  const fovea_problem_config& config = workload.config;
  const std::int64_t b = config.sizes.b;
  workload.q_lengths = numbers(line, "qlens");
  workload.k_lengths = numbers(line, "klens");
  if (config.has_q_lengths != 0) need("qlens", workload.q_lengths.size(), b);
  if (config.has_k_lengths != 0) need("klens", workload.k_lengths.size(), b);
  if (workload.packed()) {
    workload.q_starts = numbers(line, "cu_q");
    workload.k_starts = numbers(line, "cu_k");
    if (workload.k_starts.empty()) workload.k_starts = workload.q_starts;
    need("cu_q", workload.q_starts.size(), b + 1);
    need("cu_k", workload.k_starts.size(), b + 1);
  }
  if (config.has_q_offsets != 0) {
    workload.q_offsets = numbers(line, "q_offset");
    need("q_offset", workload.q_offsets.size(), b);
  }
  if (config.has_k_offsets != 0) {
    workload.k_offsets = numbers(line, "k_offset");
    need("k_offset", workload.k_offsets.size(), b);
  }
  workload.seed = seed_value(line, "seed", 1);
  workload.offset = seed_value(line, "offset", 0);
}

// For poison_masked_kv: writes NaN and Inf into K and V for keys that no query of any head of the
// group may see. They must not reach a result.
class Poisoner {
 public:
  explicit Poisoner(Workload& workload)
      : workload_(workload),
        config_(workload.config),
        program_(workload.program->get(), workload.captured, seen_sizes(workload.config)) {}

  void run() {
    const fovea_sizes& sizes = config_.sizes;
    for (std::int64_t b = 0; b < sizes.b; ++b) {
      program_.set_lengths(workload_.q_length(b), workload_.k_length(b));
      for (std::int64_t g = 0; g < sizes.hkv; ++g) {
        for (std::int64_t k = 0; k < rows(b); ++k) {
          if (!seen(b, g, k)) fill(b, g, k);
        }
      }
    }
  }

 private:
  // Rows of this sequence in memory: its padding too, unless that is another sequence's.
  std::int64_t rows(std::int64_t b) const {
    const auto i = static_cast<std::size_t>(b);
    return workload_.packed() ? workload_.k_starts[i + 1] - workload_.k_starts[i]
                              : config_.sizes.skv;
  }

  bool seen(std::int64_t b, std::int64_t g, std::int64_t k) const {
    if (k >= workload_.k_length(b)) return false;
    const std::int64_t group = config_.sizes.h / config_.sizes.hkv;
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h) {
      for (std::int64_t q = 0; q < workload_.q_length(b); ++q) {
        if (program_.evaluate(position(b, h, q, k)).keep) return true;
      }
    }
    return false;
  }

  BoundProgram::Position position(std::int64_t b, std::int64_t h, std::int64_t q,
                                  std::int64_t k) const {
    const auto i = static_cast<std::size_t>(b);
    const auto& by_q = workload_.q_offsets;
    const auto& by_k = workload_.k_offsets;
    return {b + config_.b_offset, h + config_.h_offset,
            q + (by_q.empty() ? config_.q_offset : by_q[i]),
            k + (by_k.empty() ? config_.k_offset : by_k[i])};
  }

  void fill(std::int64_t b, std::int64_t g, std::int64_t k) {
    const std::int64_t d = config_.sizes.d, dv = config_.sizes.dv;
    const std::int64_t in_k = key_row(workload_, b, g, k, d),
                       in_v = key_row(workload_, b, g, k, dv);
    constexpr double inf = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t i = 0; i < d; ++i) workload_.k.set(in_k + i, k % 2 == 0 ? nan : -inf);
    for (std::int64_t i = 0; i < dv; ++i) workload_.v.set(in_v + i, k % 3 == 0 ? inf : nan);
  }

  Workload& workload_;
  const fovea_problem_config& config_;
  BoundProgram program_;
};

}  // namespace

void describe(const Problem& problem, fovea_problem_config& config) {
  config = {};
  config.struct_size = sizeof config;
  check(fovea_problem_describe(problem.get(), &config));
}

bool Workload::wants(const std::string& gradient) const {
  if (!backward) return false;
  const std::string all =
      backward_config.grads == nullptr ? "q,k,v" : std::string(backward_config.grads);
  return ("," + all + ",").find("," + gradient + ",") != std::string::npos;
}

std::int64_t Workload::q_length(std::int64_t b) const {
  const auto i = static_cast<std::size_t>(b);
  if (!q_lengths.empty()) return q_lengths[i];
  return packed() ? q_starts[i + 1] - q_starts[i] : config.sizes.sq;
}

std::int64_t Workload::k_length(std::int64_t b) const {
  const auto i = static_cast<std::size_t>(b);
  if (!k_lengths.empty()) return k_lengths[i];
  return packed() ? k_starts[i + 1] - k_starts[i] : config.sizes.skv;
}

fovea_sizes seen_sizes(const fovea_problem_config& config) {
  fovea_sizes sizes = config.sizes;
  if (config.h_global != 0) sizes.h = config.h_global;
  return sizes;
}

Workload make_values(const std::string& line, std::uint64_t seed) {
  Workload out;
  parse_problems(out, line);
  read_bound_values(out, line);
  out.captured =
      make_captured(out.program->get(), seen_sizes(out.config), seed == 0 ? out.seed : seed);
  return out;
}

Workload make_workload(const std::string& line, std::uint64_t seed, const DataOptions& data) {
  Workload out = make_values(line, seed);
  if (seed == 0) seed = out.seed;
  out.q = normal_tensor(out, "q", seed);
  out.k = normal_tensor(out, "k", seed);
  out.v = normal_tensor(out, "v", seed);
  if (out.backward) out.grad_o = normal_tensor(out, "do", seed);
  const Placement rows = row_placement(out);
  if (out.backward && out.backward_config.has_grad_lse != 0) {
    out.grad_lse =
        make_data({"dlse", rows.dtype, "normal(1)", rows.extents, seed_for(seed, "dlse"), 1});
  }
  if (out.config.sink != 0) {
    out.sink = make_data(
        {"sink", rows.dtype, "normal(1)", {out.config.sizes.h}, seed_for(seed, "sink"), 1});
  }
  out.spread_captured = data.spread_captured;
  if (data.poison_masked_kv) Poisoner(out).run();
  return out;
}

std::string with_portable_rng(std::string line) {
  const std::string own = "rng=engine";
  if (const auto at = line.find(own); at != std::string::npos) line.erase(at, own.size());
  return line;
}

namespace {

struct Named {
  const char* name;
  fovea_dtype fovea_problem_config::* dtype;
  std::int64_t (fovea_problem_config::*strides)[4];
  bool of_keys, of_values;
};
constexpr Named eight[] = {
    {"q", &fovea_problem_config::dtype, &fovea_problem_config::q_strides, false, false},
    {"k", &fovea_problem_config::dtype, &fovea_problem_config::k_strides, true, false},
    {"v", &fovea_problem_config::dtype, &fovea_problem_config::v_strides, true, true},
    {"o", &fovea_problem_config::o_dtype, &fovea_problem_config::o_strides, false, true},
    {"do", &fovea_problem_config::do_dtype, &fovea_problem_config::do_strides, false, true},
    {"dq", &fovea_problem_config::dq_dtype, &fovea_problem_config::dq_strides, false, false},
    {"dk", &fovea_problem_config::dk_dtype, &fovea_problem_config::dk_strides, true, false},
    {"dv", &fovea_problem_config::dv_dtype, &fovea_problem_config::dv_strides, true, true},
};

const Named& find(const std::string& name) {
  for (const Named& tensor : eight) {
    if (name == tensor.name) return tensor;
  }
  throw std::logic_error("no tensor is called " + name);
}

// Picks batch, head, position and feature in the order of the layout; packed ones have no batch.
std::vector<std::int64_t> in_order(fovea_layout layout, const std::int64_t (&x)[4]) {
  switch (layout) {
    case FOVEA_BHSD: return {x[0], x[1], x[2], x[3]};
    case FOVEA_BSHD: return {x[0], x[2], x[1], x[3]};
    case FOVEA_SBHD: return {x[2], x[0], x[1], x[3]};
    case FOVEA_THD: return {x[2], x[1], x[3]};
  }
  throw std::logic_error("unknown layout");
}

bool all_zero(const std::int64_t (&strides)[4]) {
  return strides[0] == 0 && strides[1] == 0 && strides[2] == 0 && strides[3] == 0;
}

}  // namespace

Placement placement_of(const Workload& workload, const std::string& name) {
  const Named& tensor = find(name);
  const bool gradient = name.size() == 2;
  const fovea_problem_config& config = gradient ? workload.backward_config : workload.config;
  const fovea_sizes& sizes = config.sizes;
  const std::int64_t rows = workload.packed() ? (tensor.of_keys ? sizes.t_k : sizes.t_q)
                                              : (tensor.of_keys ? sizes.skv : sizes.sq);
  const std::int64_t extents[4] = {sizes.b, tensor.of_keys ? sizes.hkv : sizes.h, rows,
                                   tensor.of_values ? sizes.dv : sizes.d};
  const fovea_dtype own = config.*tensor.dtype;
  const std::string dtype = dtype_name(own == FOVEA_DTYPE_DEFAULT ? config.dtype : own);
  Placement out = Placement::dense(dtype, in_order(config.layout, extents));
  const std::int64_t(&strides)[4] = config.*tensor.strides;
  if (all_zero(strides)) return out;
  out.strides = in_order(config.layout, strides);
  std::ranges::replace(out.strides, std::int64_t{FOVEA_ZERO_STRIDE}, std::int64_t{0});
  return out;
}

Placement captured_placement(const Workload& workload, const CapturedTensor& tensor) {
  Placement out = Placement::dense(tensor.values.dtype, tensor.values.extents);
  const char* const text = workload.config.tensor_strides;
  std::istringstream words(text == nullptr ? "" : text);
  for (std::string word; words >> word;) {
    if (!word.starts_with(tensor.name + ":")) continue;
    std::istringstream numbers(word.substr(tensor.name.size() + 1));
    for (std::int64_t& stride : out.strides) {
      numbers >> stride;
      numbers.ignore();
    }
  }
  return out;
}

Placement row_placement(const Workload& workload) {
  const fovea_sizes& sizes = workload.config.sizes;
  if (workload.packed()) {
    return Placement::dense(statistics_dtype(workload), {sizes.h, sizes.t_q});
  }
  return Placement::dense(statistics_dtype(workload), {sizes.b, sizes.h, sizes.sq});
}

std::int64_t key_row(const Workload& workload, std::int64_t b, std::int64_t g, std::int64_t k,
                     std::int64_t features) {
  const fovea_sizes& sizes = workload.config.sizes;
  switch (workload.config.layout) {
    case FOVEA_BHSD: return ((b * sizes.hkv + g) * sizes.skv + k) * features;
    case FOVEA_BSHD: return ((b * sizes.skv + k) * sizes.hkv + g) * features;
    case FOVEA_SBHD: return ((k * sizes.b + b) * sizes.hkv + g) * features;
    case FOVEA_THD: break;
  }
  const std::int64_t start = workload.k_starts[static_cast<std::size_t>(b)];
  return ((start + k) * sizes.hkv + g) * features;
}

std::string statistics_dtype(const Workload& workload) {
  return workload.config.dtype == FOVEA_F64 ? "f64" : "f32";
}

}  // namespace fovea::cli
