#include "bench/gpu/peer.h"

#include <cudnn_frontend.h>

#include <stdexcept>

namespace fovea::bench {
namespace {

namespace fe = cudnn_frontend;
using Attributes = std::shared_ptr<fe::graph::Tensor_attributes>;
using fe::graph::Pointwise_attributes;
using fe::graph::Tensor_attributes;
using M = fe::PointwiseMode_t;
using Graph = std::shared_ptr<fe::graph::Graph>;

enum Uid : std::int64_t {
  Q = 1,
  K,
  V,
  O,
  Lse,
  GradO,
  GradQ,
  GradK,
  GradV,
  Bias,
  Slopes,
  Seed,
  Offset,
  Dump
};

void check(fe::error_t error, const char* step) {
  if (error.is_bad()) throw std::runtime_error(std::string(step) + ": " + error.get_message());
}

class FrontendPeer : public Peer {
 public:
  FrontendPeer(const std::string& name, bool backward, const AttentionShape& shape, void* handle)
      : name_(name), backward_(backward), s_(shape), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (has("alibi")) {
      slopes_ = tensor(Slopes, {1, s_.h, 1, 1}, {s_.h, 1, 1, 1}, fe::DataType_t::FLOAT);
    }
    backward ? make_backward() : make_forward();
    const auto cudnn = static_cast<cudnnHandle_t>(handle);
    check(graph_->validate(), "validate");
    check(graph_->build_operation_graph(cudnn), "graph");
    check(graph_->create_execution_plans({fe::HeurMode_t::A}), "heuristics");
    check(graph_->check_support(), "support");
    check(graph_->build_plans(), "build");
  }

  std::size_t workspace_bytes() const override {
    std::int64_t bytes = 0;
    check(graph_->get_workspace_size(bytes), "workspace");
    return static_cast<std::size_t>(bytes);
  }

  void bind(const Tensors& t) override {
    pack_ = {{Q, t.q}, {K, t.k}, {V, t.v}, {O, t.o}, {Lse, t.lse}};
    if (backward_) {
      pack_.insert({{GradO, t.grad_o}, {GradQ, t.grad_q}, {GradK, t.grad_k}, {GradV, t.grad_v}});
    }
    if (has("bias")) pack_.insert({Bias, t.bias});
    if (has("alibi")) pack_.insert({Slopes, t.slopes});
    if (has("dropout")) pack_.insert({{Seed, t.seed}, {Offset, t.offset}, {Dump, t.dump}});
  }

  void run(void* handle, void* workspace) override {
    check(graph_->execute(static_cast<cudnnHandle_t>(handle), pack_, workspace), "execute");
  }

 private:
  bool has(const char* word) const { return name_.find(word) != std::string::npos; }

  Attributes tensor(Uid uid, std::vector<std::int64_t> dim, std::vector<std::int64_t> stride,
                    fe::DataType_t type) {
    return graph_->tensor(
        Tensor_attributes().set_uid(uid).set_dim(dim).set_stride(stride).set_data_type(type));
  }
  Attributes main_tensor(Uid uid) {
    return tensor(uid, {s_.b, s_.h, s_.s, s_.d}, {s_.h * s_.s * s_.d, s_.s * s_.d, s_.d, 1},
                  fe::DataType_t::BFLOAT16);
  }
  void output(const Attributes& made, Uid uid) const {
    made->set_output(true)
        .set_uid(uid)
        .set_dim({s_.b, s_.h, s_.s, s_.d})
        .set_stride({s_.h * s_.s * s_.d, s_.s * s_.d, s_.d, 1});
  }

  template <class Options>
  void set_options(Options& options) {
    namespace own = fe::graph::attn::score_modifiers;
    options.set_attn_scale(0.08838834764f);
    if (has("bias")) {
      options.set_bias(tensor(Bias, {1, s_.h, s_.s, s_.s},
                              {s_.h * s_.s * s_.s, s_.s * s_.s, s_.s, 1},
                              fe::DataType_t::BFLOAT16));
    }
    const bool modifier = has("softcap") || has("alibi") || has("relative");
    if (modifier) {
      options.set_score_mod([this](Graph graph, Attributes score) {
        Attributes result = modify(graph, score);
        if (!has("causal")) return result;
        return own::sliding_window_mask(graph, result, fe::DiagonalAlignment_t::TOP_LEFT, {}, 0,
                                        s_.s, s_.s, nullptr, nullptr, nullptr, nullptr);
      });
      return;
    }
    if (has("causal") || has("sliding")) options.set_diagonal_band_right_bound(0);
    if (has("sliding")) options.set_diagonal_band_left_bound(1024);
  }

  Attributes modify(const Graph& graph, const Attributes& score) {
    if (has("softcap")) return softcap_.forward(graph, score, cap_);
    const auto index = [&](int axis) {
      auto made = graph->pointwise(score, Pointwise_attributes()
                                              .set_mode(M::GEN_INDEX)
                                              .set_axis(axis)
                                              .set_compute_data_type(fe::DataType_t::INT32));
      made->set_data_type(fe::DataType_t::INT32);
      return made;
    };
    const Attributes q = index(2), k = index(3);
    const auto sub =
        Pointwise_attributes().set_mode(M::SUB).set_compute_data_type(fe::DataType_t::INT32);
    Attributes distance = has("alibi") ? graph->pointwise(k, q, sub) : graph->pointwise(q, k, sub);
    distance->set_data_type(fe::DataType_t::INT32);
    if (has("alibi")) {
      distance = graph->pointwise(distance, slopes_, Pointwise_attributes().set_mode(M::MUL));
    }
    return graph->pointwise(score, distance, Pointwise_attributes().set_mode(M::ADD));
  }

  void make_forward() {
    fe::graph::SDPA_attributes options;
    options.set_generate_stats(true);
    set_options(options);
    if (has("dropout")) {
      options
          .set_dropout(0.25f, tensor(Seed, {1, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT64),
                       tensor(Offset, {1, 1, 1, 1}, {1, 1, 1, 1}, fe::DataType_t::INT64))
          .set_rng_dump(tensor(Dump, {s_.b, s_.h, s_.s, s_.s},
                               {s_.h * s_.s * s_.s, s_.s * s_.s, s_.s, 1}, fe::DataType_t::FLOAT));
    }
    const auto [o, lse] = graph_->sdpa(main_tensor(Q), main_tensor(K), main_tensor(V), options);
    output(o, O);
    lse->set_output(true).set_uid(Lse).set_data_type(fe::DataType_t::FLOAT);
  }

  void make_backward() {
    fe::graph::SDPA_backward_attributes options;
    set_options(options);
    if (has("softcap")) {
      options.set_score_mod_bprop(
          [this](Graph graph, Attributes grad) { return softcap_.backward(graph, grad, cap_); });
    }
    const auto lse =
        tensor(Lse, {s_.b, s_.h, s_.s, 1}, {s_.h * s_.s, s_.s, 1, 1}, fe::DataType_t::FLOAT);
    const auto [dq, dk, dv] =
        graph_->sdpa_backward(main_tensor(Q), main_tensor(K), main_tensor(V), main_tensor(O),
                              main_tensor(GradO), lse, options);
    output(dq, GradQ);
    output(dk, GradK);
    output(dv, GradV);
  }

  std::string name_;
  bool backward_;
  AttentionShape s_;
  Graph graph_;
  std::unordered_map<std::int64_t, void*> pack_;
  Attributes slopes_;
  Attributes cap_ = std::make_shared<Tensor_attributes>(20.0f);
  fe::graph::attn::score_modifiers::Softcap softcap_;
};

}  // namespace

std::unique_ptr<Peer> make_peer(const std::string& name, bool backward, const AttentionShape& shape,
                                void* handle) {
  return std::make_unique<FrontendPeer>(name, backward, shape, handle);
}

}  // namespace fovea::bench
