// Attention forward and backward, on memory of the caller:
//
//   fovea::Attention attend(q, k, v, {.mod = mod, .mask = "causal"});
//   attend.forward({.o = o, .lse = lse});
//   attend.backward({.o = o, .lse = lse, .grad_o = grad_o}, {.q = dq, .k = dk, .v = dv});
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
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

// The same in one word: fovea::attention(q, k, v, {.mod = mod}).forward({.o = o});
inline Attention attention(const View& q, const View& k, const View& v,
                           AttentionOptions options = {}) {
  return Attention(q, k, v, std::move(options));
}

}  // namespace api
}  // namespace fovea

#include "fovea/attention_inline.hpp"
