#include "tests/host_gpu/spec_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/host_gpu/spec_memory.h"

namespace fovea::cudnn::on_host {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The rows of one head, read once.
struct Rows {
  Rows() = default;
  Rows(const SpecMemory& memory, Role role, At at, std::int64_t count)
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
        hk_(h / (s_.find(Role::Q)->dim[1] / s_.find(Role::K)->dim[1])),
        sq_(s_.find(Role::Q)->dim[2]),
        skv_(s_.find(Role::K)->dim[2]),
        d_(s_.find(Role::Q)->dim[3]),
        dv_(s_.find(Role::V)->dim[3]),
        scale_(memory.get(Role::Scale, {})) {
    if (s_.padding) {
      sq_ = static_cast<std::int64_t>(m_.get(Role::LengthsQ, {b, 0, 0, 0}));
      skv_ = static_cast<std::int64_t>(m_.get(Role::LengthsK, {b, 0, 0, 0}));
    }
    if (is_empty()) return;
    q_ = Rows(m_, Role::Q, {b, h, 0, 0}, sq_);
    k_ = Rows(m_, Role::K, {b, hk_, 0, 0}, skv_);
    v_ = Rows(m_, Role::V, {b, hk_, 0, 0}, skv_);
    if (!s_.backward) return;
    o_ = Rows(m_, Role::O, {b, h, 0, 0}, sq_);
    grad_o_ = Rows(m_, Role::GradO, {b, h, 0, 0}, sq_);
  }

  std::int64_t queries() const { return sq_; }
  std::int64_t keys() const { return skv_; }
  std::int64_t key_head() const { return hk_; }
  bool is_empty() const { return sq_ == 0 || skv_ == 0; }

  void forward(std::int64_t q) {
    std::vector<double> scores;
    const double sink = m_.has(Role::Sink) ? m_.get(Role::Sink, {0, h_, 0, 0}) : -infinity;
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
      m_.set(Role::O, {b_, h_, q, j}, o);
    }
    if (s_.stats) m_.set(Role::Stats, {b_, h_, q, 0}, sum > 0 ? most + std::log(sum) : -infinity);
  }

  // Gradients of one row: dq of it, and what it adds to dk, dv (of one key head), dbias, dsink.
  struct Sums {
    std::vector<double>& dk;
    std::vector<double>& dv;
    std::vector<double>& bias;
    double& sink;
  };
  void backward(std::int64_t q, const Sums& sums) {
    const double lse = m_.get(Role::Stats, {b_, h_, q, 0});
    double own = 0;
    for (std::int64_t j = 0; j < dv_; ++j) own += grad_o_(q, j) * o_(q, j);
    if (m_.has(Role::Sink)) {
      sums.sink -= std::exp(m_.get(Role::Sink, {0, h_, 0, 0}) - lse) * own;
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
      if (m_.has(Role::GradBias)) sums.bias[bias_place(q, k)] += ds;
      if (s_.bprop) ds = steps_.derivative(score(q, k), ds, {b_, h_, q, k});
      for (std::int64_t j = 0; j < d_; ++j) {
        dq[static_cast<std::size_t>(j)] += scale_ * ds * k_(k, j);
        sums.dk[static_cast<std::size_t>(k * d_ + j)] += scale_ * ds * q_(q, j);
      }
    }
    for (std::int64_t j = 0; j < d_; ++j) {
      m_.set(Role::GradQ, {b_, h_, q, j}, dq[static_cast<std::size_t>(j)]);
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
    return m_.has(Role::Bias) ? s + m_.get(Role::Bias, {b_, h_, q, k}) : s;
  }

  std::size_t bias_place(std::int64_t q, std::int64_t k) const {
    const Four& dim = s_.find(Role::GradBias)->dim;
    const std::int64_t b = dim[0] == 1 ? 0 : b_, h = dim[1] == 1 ? 0 : h_;
    return static_cast<std::size_t>(((b * dim[1] + h) * dim[2] + q) * dim[3] + k);
  }

  const SpecMemory& m_;
  const Spec& s_;
  SpecSteps steps_;
  std::int64_t b_, h_, hk_, sq_, skv_, d_, dv_;
  double scale_;
  Rows q_, k_, v_, o_, grad_o_;
};

void run_forward(const SpecMemory& memory) {
  const Four& q = memory.spec().find(Role::Q)->dim;
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
    if (const Tensor* const bias = s_.find(Role::GradBias)) {
      bias_.resize(
          static_cast<std::size_t>(bias->dim[0] * bias->dim[1] * bias->dim[2] * bias->dim[3]));
    }
  }

  void run() {
    const Four &q = s_.find(Role::Q)->dim, &k = s_.find(Role::K)->dim;
    sink_.assign(static_cast<std::size_t>(q[1]), 0);
    for (std::int64_t b = 0; b < q[0]; ++b) {
      for (std::int64_t hk = 0; hk < k[1]; ++hk) run_group(b, hk, q[1] / k[1]);
    }
    write_bias();
    for (std::int64_t h = 0; m_.has(Role::GradSink) && h < q[1]; ++h) {
      m_.set(Role::GradSink, {0, h, 0, 0}, sink_[static_cast<std::size_t>(h)]);
    }
  }

 private:
  // The heads that share one of the keys.
  void run_group(std::int64_t b, std::int64_t hk, std::int64_t heads) {
    const Four &k = s_.find(Role::K)->dim, &v = s_.find(Role::V)->dim;
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
        m_.set(Role::GradK, {b, hk, i, j}, dk[static_cast<std::size_t>(i * k[3] + j)]);
      }
      for (std::int64_t j = 0; j < v[3]; ++j) {
        m_.set(Role::GradV, {b, hk, i, j}, dv[static_cast<std::size_t>(i * v[3] + j)]);
      }
    }
  }

  void write_bias() {
    const Tensor* const bias = s_.find(Role::GradBias);
    if (bias == nullptr) return;
    std::size_t next = 0;
    for (std::int64_t b = 0; b < bias->dim[0]; ++b) {
      for (std::int64_t h = 0; h < bias->dim[1]; ++h) {
        for (std::int64_t q = 0; q < bias->dim[2]; ++q) {
          for (std::int64_t k = 0; k < bias->dim[3]; ++k) {
            m_.set(Role::GradBias, {b, h, q, k}, bias_[next++]);
          }
        }
      }
    }
  }

  const SpecMemory& m_;
  const Spec& s_;
  std::vector<double> bias_, sink_;
};

}  // namespace

SpecGraph::SpecGraph(Spec spec) : spec_(std::move(spec)), by_uid_(spec_.tensors.size()) {
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
