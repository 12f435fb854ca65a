#include "tests/host_gpu/spec_graph.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/dtype.h"
#include "engines/cudnn/graph_spec.h"
#include "tests/engines/cudnn/step_meaning.h"

namespace fovea::cudnn::on_host {
namespace {

// The tensors of a GraphSpec in the memory that one call gave them.
struct At {
  std::int64_t b = 0, h = 0, i = 0, j = 0;  // query and key, or position and feature
};

class SpecMemory {
 public:
  SpecMemory(const GraphSpec& spec, std::vector<void*> pointers) : spec_(spec), data_(pointers) {}

  const GraphSpec& spec() const { return spec_; }
  // Axes of one element broadcast.
  double get(std::size_t tensor, const At& at) const;
  double get(TensorRole role, const At& at) const { return get(place(role), at); }
  void set(TensorRole role, const At& at, double value) const;
  bool has(TensorRole role) const { return spec_.find(role) != nullptr; }

 private:
  std::size_t place(TensorRole role) const;
  std::int64_t element(const GraphTensor& tensor, const At& at) const;

  const GraphSpec& spec_;
  std::vector<void*> data_;  // in the order of spec_.tensors
};

// The values of the steps at one position.
class SpecSteps {
 public:
  explicit SpecSteps(const SpecMemory& memory) : memory_(memory) {}
  double modified(double score, const At& at);
  double derivative(double score, double grad, const At& at);

 private:
  void run(std::size_t first, std::size_t last);
  double value(const Ref& ref) const;
  double apply(const GraphStep& step) const;

  const SpecMemory& memory_;
  std::vector<double> values_;
  At at_;
  double score_ = 0, grad_ = 0;
};

template <class T>
T read(const void* data, std::int64_t element) {
  T out;
  std::memcpy(&out, static_cast<const std::byte*>(data) + element * std::int64_t{sizeof(T)},
              sizeof out);
  return out;
}

template <class T>
void write(void* data, std::int64_t element, T value) {
  std::memcpy(static_cast<std::byte*>(data) + element * std::int64_t{sizeof(T)}, &value,
              sizeof value);
}

std::size_t SpecMemory::place(TensorRole role) const {
  for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
    if (spec_.tensors[i].role == role) return i;
  }
  throw std::logic_error("the GraphSpec has no such tensor");
}

std::int64_t SpecMemory::element(const GraphTensor& tensor, const At& at) const {
  const Dims index{at.b, at.h, at.i, at.j};
  std::int64_t out = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (tensor.dim[axis] == 1) continue;
    if (index[axis] < 0 || index[axis] >= tensor.dim[axis]) throw std::logic_error("out of bounds");
    if (axis == 0 && tensor.starts) continue;
    out += index[axis] * tensor.stride[axis];
  }
  if (!tensor.starts) return out;
  for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
    const GraphTensor& starts = spec_.tensors[i];
    if (starts.role != TensorRole::Starts || starts.slot != *tensor.starts) continue;
    return out + read<std::int64_t>(data_[i], at.b);
  }
  throw std::logic_error("a packed tensor without its starts");
}

double SpecMemory::get(std::size_t i, const At& at) const {
  const GraphTensor& tensor = spec_.tensors[i];
  const std::int64_t place = element(tensor, at);
  switch (tensor.type) {
    case Type::F32: return read<float>(data_[i], place);
    case Type::F16: return half_to_float(read<std::uint16_t>(data_[i], place));
    case Type::BF16: return bfloat16_to_float(read<std::uint16_t>(data_[i], place));
    case Type::I32: return read<std::int32_t>(data_[i], place);
    case Type::I64:
    case Type::Bool: break;
  }
  throw std::logic_error("a type that no formula reads");
}

void SpecMemory::set(TensorRole role, const At& at, double value) const {
  const std::size_t i = place(role);
  const std::int64_t where = element(spec_.tensors[i], at);
  const auto real = static_cast<float>(value);
  switch (spec_.tensors[i].type) {
    case Type::F32: return write(data_[i], where, real);
    case Type::F16: return write(data_[i], where, float_to_half(real));
    case Type::BF16: return write(data_[i], where, float_to_bfloat16(real));
    default: throw std::logic_error("a type that no graph writes");
  }
}

double SpecSteps::modified(double score, const At& at) {
  values_.assign(memory_.spec().steps.size(), 0);
  at_ = at;
  score_ = static_cast<float>(score);
  run(0, memory_.spec().forward_steps);
  return value(memory_.spec().modified);
}

double SpecSteps::derivative(double score, double grad, const At& at) {
  modified(score, at);
  grad_ = static_cast<float>(grad);
  run(memory_.spec().forward_steps, memory_.spec().steps.size());
  return value(*memory_.spec().bprop);
}

// In the types of the steps: decisions must come out as in f32 and i32.
void SpecSteps::run(std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i) {
    const GraphStep& step = memory_.spec().steps[i];
    const double result = apply(step);
    values_[i] = step.type == Type::F32 ? static_cast<double>(static_cast<float>(result))
                 : step.type == Type::I32
                     ? static_cast<std::int32_t>(static_cast<std::int64_t>(result))
                     : result;
  }
}

double SpecSteps::value(const Ref& ref) const {
  switch (ref.kind) {
    case Ref::Kind::Score: return score_;
    case Ref::Kind::Grad: return grad_;
    case Ref::Kind::Step: return values_[ref.index];
    case Ref::Kind::Tensor: return memory_.get(ref.index, at_);
    case Ref::Kind::Constant: {
      const Constant& constant = memory_.spec().constants[ref.index];
      return constant.type == Type::I32 ? constant.whole : static_cast<double>(constant.real);
    }
  }
  throw std::logic_error("an operand of no kind");
}

double SpecSteps::apply(const GraphStep& s) const {
  const auto x = [&](std::size_t i) { return value(s.operands[i]); };
  const std::array<std::int64_t, 4> position{at_.b, at_.h, at_.i, at_.j};
  if (s.mode == Mode::Index) {
    return static_cast<double>(position[static_cast<std::size_t>(s.axis)]);
  }
  return meaning(s.mode, x);
}

constexpr double infinity = std::numeric_limits<double>::infinity();

// The rows of one head, read once.
struct Rows {
  Rows() = default;
  Rows(const SpecMemory& memory, TensorRole role, At at, std::int64_t count)
      : features(memory.spec().find(role)->dim[3]) {
    for (at.i = 0; at.i < count; ++at.i) {
      for (at.j = 0; at.j < features; ++at.j) values.push_back(memory.get(role, at));
    }
  }
  double operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * features + j)];
  }
  std::int64_t features = 0;
  std::vector<double> values;
};

// One head of one sequence.
class Head {
 public:
  Head(const SpecMemory& memory, std::int64_t b, std::int64_t h)
      : m_(memory),
        s_(memory.spec()),
        steps_(memory),
        b_(b),
        h_(h),
        hk_(h / (s_.find(TensorRole::Q)->dim[1] / s_.find(TensorRole::K)->dim[1])),
        sq_(s_.find(TensorRole::Q)->dim[2]),
        skv_(s_.find(TensorRole::K)->dim[2]),
        d_(s_.find(TensorRole::Q)->dim[3]),
        dv_(s_.find(TensorRole::V)->dim[3]),
        scale_(memory.get(TensorRole::Scale, {})) {
    if (s_.padding) {
      sq_ = static_cast<std::int64_t>(m_.get(TensorRole::LengthsQ, {b, 0, 0, 0}));
      skv_ = static_cast<std::int64_t>(m_.get(TensorRole::LengthsK, {b, 0, 0, 0}));
    }
    if (is_empty()) return;
    q_ = Rows(m_, TensorRole::Q, {b, h, 0, 0}, sq_);
    k_ = Rows(m_, TensorRole::K, {b, hk_, 0, 0}, skv_);
    v_ = Rows(m_, TensorRole::V, {b, hk_, 0, 0}, skv_);
    if (!s_.backward) return;
    o_ = Rows(m_, TensorRole::O, {b, h, 0, 0}, sq_);
    grad_o_ = Rows(m_, TensorRole::GradO, {b, h, 0, 0}, sq_);
  }

  std::int64_t queries() const { return sq_; }
  std::int64_t keys() const { return skv_; }
  std::int64_t key_head() const { return hk_; }
  bool is_empty() const { return sq_ == 0 || skv_ == 0; }

  void forward(std::int64_t q) {
    std::vector<double> scores;
    const double sink =
        m_.has(TensorRole::Sink) ? m_.get(TensorRole::Sink, {0, h_, 0, 0}) : -infinity;
    double most = sink;
    for (std::int64_t k = 0; k < skv_; ++k) {
      scores.push_back(modified(q, k));
      most = std::max(most, scores.back());
    }
    double sum = most == -infinity ? 0 : std::exp(sink - most);
    std::vector<double> out(static_cast<std::size_t>(dv_));
    for (std::int64_t k = 0; k < skv_ && most > -infinity; ++k) {
      const double p = std::exp(scores[static_cast<std::size_t>(k)] - most);
      sum += p;
      for (std::int64_t j = 0; j < dv_; ++j) {
        out[static_cast<std::size_t>(j)] += p * v_(k, j);
      }
    }
    for (std::int64_t j = 0; j < dv_; ++j) {
      const double o = sum > 0 ? out[static_cast<std::size_t>(j)] / sum : 0;
      m_.set(TensorRole::O, {b_, h_, q, j}, o);
    }
    if (s_.stats)
      m_.set(TensorRole::Stats, {b_, h_, q, 0}, sum > 0 ? most + std::log(sum) : -infinity);
  }

  // Gradients of one row: dq of it, and what it adds to dk, dv (of one key head), dbias, dsink.
  struct Sums {
    std::vector<double>& dk;
    std::vector<double>& dv;
    std::vector<double>& bias;
    double& sink;
  };
  void backward(std::int64_t q, const Sums& sums) {
    const double lse = m_.get(TensorRole::Stats, {b_, h_, q, 0});
    double own = 0;
    for (std::int64_t j = 0; j < dv_; ++j) own += grad_o_(q, j) * o_(q, j);
    if (m_.has(TensorRole::Sink)) {
      sums.sink -= std::exp(m_.get(TensorRole::Sink, {0, h_, 0, 0}) - lse) * own;
    }
    std::vector<double> dq(static_cast<std::size_t>(d_));
    for (std::int64_t k = 0; k < skv_; ++k) {
      const double s = modified(q, k);
      const double p = s == -infinity || lse == -infinity ? 0 : std::exp(s - lse);
      double dp = 0;
      for (std::int64_t j = 0; j < dv_; ++j) {
        dp += grad_o_(q, j) * v_(k, j);
        sums.dv[static_cast<std::size_t>(k * dv_ + j)] += p * grad_o_(q, j);
      }
      double ds = p * (dp - own);
      if (m_.has(TensorRole::GradBias)) sums.bias[bias_place(q, k)] += ds;
      if (s_.bprop) ds = steps_.derivative(score(q, k), ds, {b_, h_, q, k});
      for (std::int64_t j = 0; j < d_; ++j) {
        dq[static_cast<std::size_t>(j)] += scale_ * ds * k_(k, j);
        sums.dk[static_cast<std::size_t>(k * d_ + j)] += scale_ * ds * q_(q, j);
      }
    }
    for (std::int64_t j = 0; j < d_; ++j) {
      m_.set(TensorRole::GradQ, {b_, h_, q, j}, dq[static_cast<std::size_t>(j)]);
    }
  }

 private:
  double score(std::int64_t q, std::int64_t k) const {
    double dot = 0;
    for (std::int64_t j = 0; j < d_; ++j) {
      dot += q_(q, j) * k_(k, j);
    }
    return dot * scale_;
  }

  bool is_kept(std::int64_t q, std::int64_t k) const {
    const std::int64_t shifted = q + (s_.band.bottom_right ? skv_ - sq_ : 0);
    if (s_.band.right && k > shifted + *s_.band.right) return false;
    return !s_.band.left || k > shifted - *s_.band.left;
  }

  double modified(std::int64_t q, std::int64_t k) {
    if (!is_kept(q, k)) return -infinity;
    const double s = steps_.modified(score(q, k), {b_, h_, q, k});
    return m_.has(TensorRole::Bias) ? s + m_.get(TensorRole::Bias, {b_, h_, q, k}) : s;
  }

  std::size_t bias_place(std::int64_t q, std::int64_t k) const {
    const Dims& dim = s_.find(TensorRole::GradBias)->dim;
    const std::int64_t b = dim[0] == 1 ? 0 : b_, h = dim[1] == 1 ? 0 : h_;
    return static_cast<std::size_t>(((b * dim[1] + h) * dim[2] + q) * dim[3] + k);
  }

  const SpecMemory& m_;
  const GraphSpec& s_;
  SpecSteps steps_;
  std::int64_t b_, h_, hk_, sq_, skv_, d_, dv_;
  double scale_;
  Rows q_, k_, v_, o_, grad_o_;
};

void run_forward(const SpecMemory& memory) {
  const Dims& q = memory.spec().find(TensorRole::Q)->dim;
  for (std::int64_t b = 0; b < q[0]; ++b) {
    for (std::int64_t h = 0; h < q[1]; ++h) {
      Head head(memory, b, h);
      for (std::int64_t i = 0; !head.is_empty() && i < head.queries(); ++i) head.forward(i);
    }
  }
}

class Backward {
 public:
  explicit Backward(const SpecMemory& memory) : m_(memory), s_(memory.spec()) {
    if (const GraphTensor* const bias = s_.find(TensorRole::GradBias)) {
      bias_.resize(
          static_cast<std::size_t>(bias->dim[0] * bias->dim[1] * bias->dim[2] * bias->dim[3]));
    }
  }

  void run() {
    const Dims &q = s_.find(TensorRole::Q)->dim, &k = s_.find(TensorRole::K)->dim;
    sink_.assign(static_cast<std::size_t>(q[1]), 0);
    for (std::int64_t b = 0; b < q[0]; ++b) {
      for (std::int64_t hk = 0; hk < k[1]; ++hk) run_group(b, hk, q[1] / k[1]);
    }
    write_bias();
    for (std::int64_t h = 0; m_.has(TensorRole::GradSink) && h < q[1]; ++h) {
      m_.set(TensorRole::GradSink, {0, h, 0, 0}, sink_[static_cast<std::size_t>(h)]);
    }
  }

 private:
  // The heads that share one of the keys.
  void run_group(std::int64_t b, std::int64_t hk, std::int64_t heads) {
    const Dims &k = s_.find(TensorRole::K)->dim, &v = s_.find(TensorRole::V)->dim;
    std::vector<double> dk(static_cast<std::size_t>(k[2] * k[3]));
    std::vector<double> dv(static_cast<std::size_t>(v[2] * v[3]));
    std::int64_t keys = 0;
    for (std::int64_t h = hk * heads; h < (hk + 1) * heads; ++h) {
      Head head(m_, b, h);
      if (head.is_empty()) return;
      keys = head.keys();
      double& sink = sink_[static_cast<std::size_t>(h)];
      for (std::int64_t i = 0; i < head.queries(); ++i) head.backward(i, {dk, dv, bias_, sink});
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      for (std::int64_t j = 0; j < k[3]; ++j) {
        m_.set(TensorRole::GradK, {b, hk, i, j}, dk[static_cast<std::size_t>(i * k[3] + j)]);
      }
      for (std::int64_t j = 0; j < v[3]; ++j) {
        m_.set(TensorRole::GradV, {b, hk, i, j}, dv[static_cast<std::size_t>(i * v[3] + j)]);
      }
    }
  }

  void write_bias() {
    const GraphTensor* const bias = s_.find(TensorRole::GradBias);
    if (bias == nullptr) return;
    std::size_t next = 0;
    for (std::int64_t b = 0; b < bias->dim[0]; ++b) {
      for (std::int64_t h = 0; h < bias->dim[1]; ++h) {
        for (std::int64_t q = 0; q < bias->dim[2]; ++q) {
          for (std::int64_t k = 0; k < bias->dim[3]; ++k) {
            m_.set(TensorRole::GradBias, {b, h, q, k}, bias_[next++]);
          }
        }
      }
    }
  }

  const SpecMemory& m_;
  const GraphSpec& s_;
  std::vector<double> bias_, sink_;
};

}  // namespace

SpecGraph::SpecGraph(GraphSpec spec) : spec_(std::move(spec)), by_uid_(spec_.tensors.size()) {
  std::iota(by_uid_.begin(), by_uid_.end(), std::size_t{0});
  std::ranges::sort(by_uid_, {}, [&](std::size_t i) { return spec_.tensors[i].uid(); });
}

void SpecGraph::execute(void*, std::span<void*> pointers, void*) const {
  std::vector<void*> data(pointers.size());
  for (std::size_t i = 0; i < pointers.size(); ++i) data[by_uid_[i]] = pointers[i];
  const SpecMemory memory(spec_, std::move(data));
  if (spec_.backward) {
    Backward(memory).run();
  } else {
    run_forward(memory);
  }
}

}  // namespace fovea::cudnn::on_host
