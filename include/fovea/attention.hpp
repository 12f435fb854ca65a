// Attention forward and backward, on memory of the caller:
//
//   fovea::Attention attend(q, k, v, {.mod = mod, .mask = "causal"});
//   attend.forward({.o = o, .lse = lse});
//   attend.backward({.o = o, .lse = lse, .grad_o = grad_o}, {.q = dq, .k = dk, .v = dv});
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/binding.hpp"

namespace fovea {
inline namespace api {

// One number per row [B, H, Sq] (packed [H, T]) or per head [H]: float, or double if q is f64.
struct Rows {
  void* data = nullptr;
  std::size_t count = 0;
  bool is_double = false;

  Rows() = default;
  Rows(std::span<float> rows) : data(rows.data()), count(rows.size()) {}
  Rows(std::span<double> rows) : data(rows.data()), count(rows.size()), is_double(true) {}
  Rows(std::vector<float>& rows) : Rows(std::span<float>(rows)) {}
  Rows(std::vector<double>& rows) : Rows(std::span<double>(rows)) {}
};

struct AttentionOptions {
  FormulaText mod{}, mask{}, bprop{};
  std::vector<Binding> captured{};  // values of what they capture, beyond defaults
  float scale = 0;                  // 0: 1 / sqrt(d)
  float dropout = 0;
  std::uint64_t seed = 0, offset = 0;
  Rows sink{};                                             // [H]
  std::span<const std::int32_t> q_lengths{}, k_lengths{};  // [B]
  std::span<const std::int32_t> q_starts{}, k_starts{};    // [B + 1], packed
  std::int64_t longest_q = 0, longest_k = 0;               // packed; 0: the longest by the starts
  std::int32_t b_offset = 0, h_offset = 0, q_offset = 0, k_offset = 0;
  std::int32_t h_global = 0;
  bool deterministic = false;
  std::string engine{}, device{};  // empty: Fovea's choice; the CPU
  // On a GPU (device "cuda:0") all memory is the device's: lengths, starts and rows, too; packed
  // sequences need longest_q and longest_k.
  void* stream = nullptr;  // a CUstream or cudaStream_t
  // Memory for the workspace, where the device finds it; asked for when a larger one is needed.
  std::function<std::shared_ptr<void>(std::size_t bytes)> allocate{};
};

struct Outputs {
  View o{};
  // If wanted: lse, row_max, max_logit.
#define FOVEA_OUTPUT(name, extent, saved) Rows name{};
#include "fovea/fields.def"
};

struct Incoming {
  View o{};
  Rows lse{};  // as the forward gave it
  View grad_o{};
  Rows grad_lse{};
};

// What a backward writes; what is left out is not computed.
struct Gradients {
  View q{}, k{}, v{};
  Rows sink{};
  std::vector<Binding> captured{};  // fovea::gradient(slopes, memory)
};

// One attention on given tensors. Plans are made once and shared by the process; the workspace is
// kept. Not for several threads at a time: each has its own, which is cheap.
class Attention {
 public:
  Attention(const View& q, const View& k, const View& v, AttentionOptions options = {})
      : q_(q), k_(k), v_(v), options_(std::move(options)), program_(program_line()) {}

  void forward(const Outputs& out);
  void backward(const Incoming& in, const Gradients& gradients);

  const Program& program() const { return program_; }
  std::string engine() const { return engine_; }  // of the last call; "" before
  // The problems of the last calls, to print or explain.
  const std::optional<Problem>& forward_problem() const { return forward_.problem; }
  const std::optional<Problem>& backward_problem() const { return backward_.problem; }

 private:
  struct Prepared {
    std::optional<Problem> problem;
    std::optional<Plan> plan;
    fovea_problem_config config{};  // what the problem was made of, without its texts
    std::string grads{};

    bool is_for(const fovea_problem_config& other) const;
    void remember(const fovea_problem_config& made);
  };
  // How large the memory of a captured tensor must be.
  struct Expected {
    const char* name;  // lives with the program
    std::size_t elements, element_bytes;
  };
  std::string program_line() const;
  fovea_sizes sizes() const;
  fovea_problem_config config(fovea_direction direction, const fovea_sizes& sizes) const;
  fovea_bindings bindings(const fovea_sizes& sizes) const;
  void set_strides(const View& view, std::int64_t (&strides)[4]) const;
  static fovea_tensor bound(const View& view, const char* name, bool written);
  void* memory_of(const Rows& rows, const char* name, std::int64_t count) const;
  std::int64_t row_count() const;
  void expect_memory(const fovea_sizes& sizes);
  void check_memory(const std::vector<Binding>& bindings) const;
  std::optional<Problem> partner_of(const fovea_problem_config& one) const;
  void prepare(Prepared& prepared, const fovea_problem_config& config) const;
  std::shared_ptr<void> allocate(std::size_t bytes) const;
  void run(Prepared& prepared, const fovea_problem_config& config, fovea_bindings bindings);

  View q_, k_, v_;
  AttentionOptions options_;
  Program program_;
  std::string engine_;
  Prepared forward_, backward_;
  std::vector<Expected> expected_;
  fovea_sizes expected_for_{-1, 0, 0, 0, 0, 0, 0, 0, 0};  // none yet
  detail::BindingLists lists_;                            // of the last call
  std::string wanted_;                                    // the gradients of the last backward
  std::shared_ptr<void> workspace_;
  std::size_t workspace_bytes_ = 0;
};

// The same as a function: fovea::attention(q, k, v, {.mod = mod}).forward({.o = o});
inline Attention attention(const View& q, const View& k, const View& v,
                           AttentionOptions options = {}) {
  return Attention(q, k, v, std::move(options));
}

inline std::string Attention::program_line() const {
  std::vector<std::string> words;
  const auto add = [&](const std::string& word) {
    if (!word.empty() && std::ranges::find(words, word) == words.end()) words.push_back(word);
  };
  const std::pair<const char*, const FormulaText*> formulas[] = {
      {"mod", &options_.mod}, {"mask", &options_.mask}, {"bprop", &options_.bprop}};
  for (const auto& [key, formula] : formulas) {
    if (formula->empty()) continue;
    add(formula->word(key));
    for (const std::string& declaration : formula->declarations()) add(declaration);
  }
  for (const Binding& binding : options_.captured) add(binding.word);
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

namespace detail {

inline std::int64_t longest(std::span<const std::int32_t> starts) {
  std::int64_t most = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    most = std::max<std::int64_t>(most, std::int64_t{starts[i]} - starts[i - 1]);
  }
  return most;
}

inline void append(std::string& text, std::string_view word) { text += word; }
inline void append(std::string& text, std::integral auto number) { text += std::to_string(number); }

// The text of the rule is put together only if it is broken.
template <class... Words>
void expect(bool right, const Words&... words) {
  if (right) return;
  std::string rule;
  (append(rule, words), ...);
  throw Error(FOVEA_INVALID_ARGUMENT, rule);
}

}  // namespace detail

inline fovea_sizes Attention::sizes() const {
  if (q_.layout != FOVEA_THD) {
    detail::expect(q_.b() == k_.b() && q_.b() == v_.b(), "q, k, v: their batches differ");
    detail::expect(q_.d() == k_.d(), "k: its features differ from those of q");
    detail::expect(k_.h() == v_.h() && k_.s() == v_.s(), "v: its heads or positions are not k's");
    return {q_.b(), q_.h(), k_.h(), q_.s(), k_.s(), q_.d(), v_.d(), 0, 0};
  }
  const auto& o = options_;
  detail::expect(!o.q_starts.empty() && o.q_starts.size() == o.k_starts.size(),
                 "q_starts, k_starts: packed tensors need both, one more than there are sequences");
  detail::expect(!o.device.starts_with("cuda") || (o.longest_q != 0 && o.longest_k != 0),
                 "longest_q, longest_k: starts in the memory of " + o.device +
                     " cannot be read here, so both must be given");
  return {static_cast<std::int64_t>(o.q_starts.size()) - 1,
          q_.h(),
          k_.h(),
          o.longest_q != 0 ? o.longest_q : detail::longest(o.q_starts),
          o.longest_k != 0 ? o.longest_k : detail::longest(o.k_starts),
          q_.d(),
          v_.d(),
          q_.s(),
          k_.s()};
}

// Dense in the layout of q: left to the problem, so that its line stays short.
inline void Attention::set_strides(const View& view, std::int64_t (&strides)[4]) const {
  if (view.dense && view.layout == q_.layout && q_.dense) return;
  std::ranges::copy(view.stride, strides);
  if (std::ranges::all_of(view.stride, [](std::int64_t s) { return s == 0; })) {
    strides[0] = FOVEA_ZERO_STRIDE;
  }
}

inline fovea_problem_config Attention::config(fovea_direction direction,
                                              const fovea_sizes& sizes) const {
  fovea_problem_config config{};
  config.struct_size = sizeof config;
  config.direction = direction;
  config.layout = q_.layout;
  config.sizes = sizes;
  detail::expect(k_.dtype == q_.dtype && v_.dtype == q_.dtype, "q, k, v: their types differ");
  config.dtype = q_.dtype;
  set_strides(q_, config.q_strides);
  set_strides(k_, config.k_strides);
  set_strides(v_, config.v_strides);
  config.program = program_.get();
  config.scale = options_.scale;
  config.dropout = options_.dropout;
  config.has_q_lengths = !options_.q_lengths.empty();
  config.has_k_lengths = !options_.k_lengths.empty();
  config.sink = options_.sink.data != nullptr;
  config.b_offset = options_.b_offset;
  config.h_offset = options_.h_offset;
  config.q_offset = options_.q_offset;
  config.k_offset = options_.k_offset;
  config.h_global = options_.h_global;
  config.deterministic = options_.deterministic;
  return config;
}

inline fovea_tensor Attention::bound(const View& view, const char* name, bool written) {
  detail::expect(!written || !view.is_const, name, " is const, but it would be written");
  return {view.data, {0, 0, 0, 0}};  // strides are the problem's
}

inline std::int64_t Attention::row_count() const {
  return q_.layout == FOVEA_THD ? q_.h() * q_.s() : q_.b() * q_.h() * q_.s();
}

inline void* Attention::memory_of(const Rows& rows, const char* name, std::int64_t count) const {
  if (rows.data == nullptr) return nullptr;
  detail::expect(rows.count == static_cast<std::size_t>(count), name, " has ", rows.count,
                 " numbers, not ", count);
  detail::expect(rows.is_double == (q_.dtype == FOVEA_F64), name,
                 " is to be float, or double if q is f64");
  return rows.data;
}

inline fovea_bindings Attention::bindings(const fovea_sizes& sizes) const {
  const auto b = static_cast<std::size_t>(sizes.b);
  const auto per_sequence = [](std::span<const std::int32_t> list, std::size_t count,
                               const char* name) {
    detail::expect(list.empty() || list.size() == count, name, " has ", list.size(),
                   " entries, not ", count);
    return list.empty() ? nullptr : list.data();
  };
  fovea_bindings bindings{};
  bindings.struct_size = sizeof bindings;
  bindings.q = bound(q_, "q", false);
  bindings.k = bound(k_, "k", false);
  bindings.v = bound(v_, "v", false);
  bindings.sink = memory_of(options_.sink, "sink", q_.h());
  bindings.q_lengths = per_sequence(options_.q_lengths, b, "q_lengths");
  bindings.k_lengths = per_sequence(options_.k_lengths, b, "k_lengths");
  bindings.q_starts = per_sequence(options_.q_starts, b + 1, "q_starts");
  bindings.k_starts = per_sequence(options_.k_starts, b + 1, "k_starts");
  bindings.seed.value = options_.seed;
  bindings.offset.value = options_.offset;
  bindings.stream = options_.stream;
  return bindings;
}

namespace detail {

// The number of elements of extents such as "H,129".
inline std::int64_t element_count(std::string_view extents, const fovea_sizes& sizes,
                                  std::int64_t heads) {
  const std::pair<std::string_view, std::int64_t> names[] = {
      {"B", sizes.b}, {"H", heads}, {"Hkv", sizes.hkv}, {"Sq", sizes.sq}, {"Skv", sizes.skv}};
  std::int64_t count = 1;
  while (!extents.empty()) {
    const std::string_view one = extents.substr(0, extents.find(','));
    extents.remove_prefix(std::min(one.size() + 1, extents.size()));
    const auto* const named = std::ranges::find(names, one, [](const auto& n) { return n.first; });
    count *= named != std::end(names) ? named->second : std::stoll(std::string(one));
  }
  return count;
}

inline std::size_t dtype_bytes(fovea_dtype dtype) {
  switch (dtype) {
    case FOVEA_F16:
    case FOVEA_BF16: return 2;
    case FOVEA_F64:
    case FOVEA_I64: return 8;
    case FOVEA_U8:
    case FOVEA_BOOL: return 1;
    case FOVEA_DTYPE_DEFAULT:
    case FOVEA_F32:
    case FOVEA_I32: return 4;
  }
  return 0;
}

}  // namespace detail

// Looked up once for all calls of the same sizes.
inline void Attention::expect_memory(const fovea_sizes& sizes) {
  if (std::memcmp(&sizes, &expected_for_, sizeof sizes) == 0) return;
  expected_.clear();
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  const std::int64_t heads = options_.h_global != 0 ? options_.h_global : sizes.h;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program_.get()); ++i) {
    check(fovea_program_tensor(program_.get(), i, &info));
    expected_.push_back(
        {info.name, static_cast<std::size_t>(detail::element_count(info.extents, sizes, heads)),
         detail::dtype_bytes(info.dtype)});
  }
  expected_for_ = sizes;
}

// Captured memory is as large as its declaration says. (Only C++ knows how large it is.)
inline void Attention::check_memory(const std::vector<Binding>& bindings) const {
  for (const Expected& expected : expected_) {
    for (const Binding& binding : bindings) {
      if (!binding.is_tensor || binding.element_bytes == 0 || binding.name != expected.name) {
        continue;
      }
      detail::expect(binding.element_bytes == expected.element_bytes, "'", binding.name,
                     "' has elements of ", binding.element_bytes, " bytes, not ",
                     expected.element_bytes);
      detail::expect(binding.elements >= expected.elements, "'", binding.name, "' has ",
                     binding.elements, " elements, not ", expected.elements);
    }
  }
}

// The other direction, so that one engine is chosen for both: as it was called last, or as it will
// be, by all that is known. None for a forward without lse, which no backward follows.
inline std::optional<Problem> Attention::partner_of(const fovea_problem_config& one) const {
  const bool is_forward = one.direction == FOVEA_FORWARD;
  if (is_forward && one.lse == 0) return std::nullopt;
  if (const auto& seen = (is_forward ? backward_ : forward_).problem) return seen;
  fovea_problem_config other = config(is_forward ? FOVEA_BACKWARD : FOVEA_FORWARD, one.sizes);
  other.o_dtype = one.o_dtype;
  std::ranges::copy(one.o_strides, other.o_strides);
  if (is_forward) {
    other.grads = "q,k,v";
  } else {
    other.lse = 1;
  }
  try {
    return Problem(other);
  } catch (const Error&) {
    return std::nullopt;  // there is no such problem: nothing to choose for
  }
}

inline std::shared_ptr<void> Attention::allocate(std::size_t bytes) const {
  if (options_.allocate) return options_.allocate(bytes);
  detail::expect(!options_.device.starts_with("cuda"), "allocate is empty: device ",
                 options_.device,
                 " needs a workspace in its own memory, for example from cudaMalloc");
  constexpr std::align_val_t alignment{64};
  return std::shared_ptr<void>(::operator new(bytes, alignment), [](void* memory) {
    ::operator delete(memory, std::align_val_t{64});
  });
}

// Byte by byte: padding that differs costs a comparison of problems, and nothing else.
inline bool Attention::Prepared::is_for(const fovea_problem_config& other) const {
  if (!plan || grads != (other.grads == nullptr ? "" : other.grads)) return false;
  fovea_problem_config bare = other;
  bare.grads = nullptr;
  return std::memcmp(&bare, &config, sizeof config) == 0;
}

inline void Attention::Prepared::remember(const fovea_problem_config& made) {
  std::memcpy(&config, &made, sizeof config);
  config.grads = nullptr;
  grads = made.grads == nullptr ? "" : made.grads;
}

inline void Attention::prepare(Prepared& prepared, const fovea_problem_config& config) const {
  if (prepared.is_for(config)) return;
  Problem problem(config);
  if (!prepared.plan || !(*prepared.problem == problem)) {
    prepared.plan.emplace(problem, Where{options_.engine, options_.device, partner_of(config)});
    prepared.problem = std::move(problem);
  }
  prepared.remember(config);
}

inline void Attention::run(Prepared& prepared, const fovea_problem_config& config,
                           fovea_bindings bindings) {
  prepare(prepared, config);
  const std::size_t bytes = prepared.plan->workspace();
  if (bytes > workspace_bytes_) {
    workspace_ = allocate(bytes);
    workspace_bytes_ = bytes;
  }
  bindings.workspace = workspace_.get();
  bindings.workspace_bytes = workspace_bytes_;
  prepared.plan->run(bindings);
  engine_ = prepared.plan->engine();
}

inline void Attention::forward(const Outputs& out) {
  const fovea_sizes n = sizes();
  fovea_problem_config made = config(FOVEA_FORWARD, n);
  made.o_dtype = out.o.dtype;
  set_strides(out.o, made.o_strides);
  fovea_bindings call = bindings(n);
  call.o = bound(out.o, "o", true);
  const std::int64_t rows = row_count(), heads = q_.h();
#define FOVEA_OUTPUT(name, extent, saved) \
  made.name = out.name.data != nullptr;   \
  call.name = memory_of(out.name, #name, extent);
#include "fovea/fields.def"
  expect_memory(n);
  check_memory(options_.captured);
  lists_.fill(options_.captured, {});
  lists_.set(call);
  run(forward_, made, call);
}

inline void Attention::backward(const Incoming& in, const Gradients& gradients) {
  wanted_.clear();
  const auto want = [&](bool is_wanted, std::string_view name) {
    if (is_wanted) wanted_.append(wanted_.empty() ? "" : ",").append(name);
  };
  want(gradients.q.data != nullptr, "q");
  want(gradients.k.data != nullptr, "k");
  want(gradients.v.data != nullptr, "v");
  want(gradients.sink.data != nullptr, "sink");
  for (const Binding& one : gradients.captured) want(true, one.name);

  const fovea_sizes n = sizes();
  fovea_problem_config made = config(FOVEA_BACKWARD, n);
  made.grads = wanted_.c_str();
  made.o_dtype = in.o.dtype;
  made.do_dtype = in.grad_o.dtype;
  made.dq_dtype = gradients.q.dtype;
  made.dk_dtype = gradients.k.dtype;
  made.dv_dtype = gradients.v.dtype;
  made.has_grad_lse = in.grad_lse.data != nullptr;
  set_strides(in.o, made.o_strides);
  set_strides(in.grad_o, made.do_strides);
  if (gradients.q.data != nullptr) set_strides(gradients.q, made.dq_strides);
  if (gradients.k.data != nullptr) set_strides(gradients.k, made.dk_strides);
  if (gradients.v.data != nullptr) set_strides(gradients.v, made.dv_strides);

  fovea_bindings call = bindings(n);
  call.o = bound(in.o, "o", false);
  call.grad_o = bound(in.grad_o, "grad_o", false);
  call.grad_q = bound(gradients.q, "gradients.q", true);
  call.grad_k = bound(gradients.k, "gradients.k", true);
  call.grad_v = bound(gradients.v, "gradients.v", true);
  call.lse = memory_of(in.lse, "lse", row_count());
  call.grad_lse = memory_of(in.grad_lse, "grad_lse", row_count());
  call.grad_sink = memory_of(gradients.sink, "gradients.sink", q_.h());
  expect_memory(n);
  check_memory(options_.captured);
  check_memory(gradients.captured);
  lists_.fill(options_.captured, gradients.captured);
  lists_.set(call);
  run(backward_, made, call);
}

}  // namespace api
}  // namespace fovea
