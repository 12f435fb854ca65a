// The only file of the library that includes cudnn-frontend (it compiles for a minute or more).
// What it calls of cuDNN is forwarded by symbols.cpp.
#include "engines/cudnn/graph.h"

#include <cudnn_frontend.h>

#include <algorithm>

#include "base/error.h"

namespace fovea::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Attributes = std::shared_ptr<fe::graph::Tensor_attributes>;
using fe::graph::Pointwise_attributes;
using fe::graph::Tensor_attributes;

// If cuDNN says that it does not support a graph, that is an answer; all else is a failure.
void check(fe::error_t error, const char* step) {
  if (error.is_good()) return;
  const std::string message = error.get_message();
  const bool cannot = error.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED ||
                      message.find("CUDNN_STATUS_NOT_SUPPORTED") != std::string::npos ||
                      message.find("No valid engine configs") != std::string::npos ||
                      message.find("No execution plans support the graph") != std::string::npos;
  const std::string text = std::string("cuDNN, ") + step + ": " + message;
  if (cannot) throw Unsupported(text);
  throw DeviceError(text);
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(std::string("cuDNN: ") + call + " gives " + cudnnGetErrorString(status));
}

fe::DataType_t data_type(Type type) {
  switch (type) {
    case Type::F32: return fe::DataType_t::FLOAT;
    case Type::F16: return fe::DataType_t::HALF;
    case Type::BF16: return fe::DataType_t::BFLOAT16;
    case Type::I32: return fe::DataType_t::INT32;
    case Type::I64: return fe::DataType_t::INT64;
    case Type::Bool: return fe::DataType_t::BOOLEAN;
  }
  throw InternalError("a type that cuDNN does not have");
}

fe::PointwiseMode_t pointwise_mode(Mode mode) {
  using M = fe::PointwiseMode_t;
  switch (mode) {
    case Mode::Index: return M::GEN_INDEX;
    case Mode::Add: return M::ADD;
    case Mode::Sub: return M::SUB;
    case Mode::Mul: return M::MUL;
    case Mode::Div: return M::DIV;
    case Mode::Min: return M::MIN;
    case Mode::Max: return M::MAX;
    case Mode::Pow: return M::POW;
    case Mode::Neg: return M::NEG;
    case Mode::Abs: return M::ABS;
    case Mode::Reciprocal: return M::RECIPROCAL;
    case Mode::Exp: return M::EXP;
    case Mode::Log: return M::LOG;
    case Mode::Sqrt: return M::SQRT;
    case Mode::Rsqrt: return M::RSQRT;
    case Mode::Tanh: return M::TANH_FWD;
    case Mode::Sigmoid: return M::SIGMOID_FWD;
    case Mode::Softplus: return M::SOFTPLUS_FWD;
    case Mode::Erf: return M::ERF;
    case Mode::Sin: return M::SIN;
    case Mode::Cos: return M::COS;
    case Mode::Tan: return M::TAN;
    case Mode::Floor: return M::FLOOR;
    case Mode::Ceil: return M::CEIL;
    case Mode::Convert: return M::IDENTITY;
    case Mode::Less: return M::CMP_LT;
    case Mode::LessEqual: return M::CMP_LE;
    case Mode::Greater: return M::CMP_GT;
    case Mode::GreaterEqual: return M::CMP_GE;
    case Mode::Equal: return M::CMP_EQ;
    case Mode::NotEqual: return M::CMP_NEQ;
    case Mode::Select: return M::BINARY_SELECT;
  }
  throw InternalError("a pointwise mode that cuDNN does not have");
}

class Builder {
 public:
  // The architecture must be known before nodes are made: they copy it.
  Builder(const GraphSpec& spec, int sm)
      : spec_(spec), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_sm_version(sm);
    graph_->set_io_data_type(data_type(spec.io))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    for (const GraphTensor& tensor : spec.tensors) tensors_.push_back(declare(tensor));
    if (spec.backward) {
      backward();
    } else {
      forward();
    }
  }
  const std::shared_ptr<fe::graph::Graph>& graph() const { return graph_; }

 private:
  static bool is_output(TensorRole role, bool backward) {
    if (!backward) return role == TensorRole::O || role == TensorRole::Stats;
    return role == TensorRole::GradQ || role == TensorRole::GradK || role == TensorRole::GradV;
  }

  void describe(Tensor_attributes& attributes, const GraphTensor& tensor) const {
    attributes.set_uid(tensor.uid())
        .set_dim({tensor.dim.begin(), tensor.dim.end()})
        .set_stride({tensor.stride.begin(), tensor.stride.end()})
        .set_data_type(data_type(tensor.type))
        .set_is_pass_by_value(tensor.by_value);
    if (tensor.starts) attributes.set_ragged_offset(starts(*tensor.starts));
  }

  // Comes before the tensors that it is for.
  Attributes starts(std::uint32_t slot) const {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const GraphTensor& tensor = spec_.tensors[i];
      if (tensor.role == TensorRole::Starts && tensor.slot == slot) return tensors_[i];
    }
    throw InternalError("a packed tensor without its starts");
  }

  Attributes declare(const GraphTensor& tensor) {
    if (is_output(tensor.role, spec_.backward)) return nullptr;  // made by the attention node
    Tensor_attributes attributes;
    describe(attributes, tensor);
    return graph_->tensor(attributes);
  }

  Attributes find(TensorRole role) const {
    for (std::size_t i = 0; i < spec_.tensors.size(); ++i) {
      if (spec_.tensors[i].role == role) return tensors_[i];
    }
    return nullptr;
  }

  void bind_output(const Attributes& attributes, TensorRole role) const {
    const GraphTensor* const tensor = spec_.find(role);
    if (tensor == nullptr || attributes == nullptr) return;
    describe(*attributes, *tensor);
    attributes->set_output(true);
  }

  Attributes operand(const Ref& ref, const Attributes& score, const Attributes& grad) const {
    switch (ref.kind) {
      case Ref::Kind::Score: return score;
      case Ref::Kind::Grad: return grad;
      case Ref::Kind::Tensor: return tensors_[ref.index];
      case Ref::Kind::Step: return steps_[ref.index];
      case Ref::Kind::Constant: {
        const Constant& constant = spec_.constants[ref.index];
        return constant.type == Type::I32 ? std::make_shared<Tensor_attributes>(constant.whole)
                                          : std::make_shared<Tensor_attributes>(constant.real);
      }
    }
    throw InternalError("an operand of no kind");
  }

  fe::DataType_t compute_type(const GraphStep& step) const {
    if (step.mode == Mode::Index || step.type == Type::I32) return fe::DataType_t::INT32;
    if (step.type == Type::Bool && whole(step.operands[0]) && whole(step.operands[1])) {
      return fe::DataType_t::BOOLEAN;  // as cuDNN's own masks compare positions
    }
    return fe::DataType_t::FLOAT;
  }

  bool whole(const Ref& ref) const {
    switch (ref.kind) {
      case Ref::Kind::Score:
      case Ref::Kind::Grad: return false;
      case Ref::Kind::Tensor: return spec_.tensors[ref.index].type == Type::I32;
      case Ref::Kind::Step: return spec_.steps[ref.index].type == Type::I32;
      case Ref::Kind::Constant: return spec_.constants[ref.index].type == Type::I32;
    }
    return false;
  }

  void add_steps(fe::graph::Graph& graph, std::size_t first, std::size_t last,
                 const Attributes& score, const Attributes& grad) {
    for (std::size_t i = first; i < last; ++i) {
      const GraphStep& step = spec_.steps[i];
      Pointwise_attributes attributes;
      attributes.set_name("step" + std::to_string(i))
          .set_mode(pointwise_mode(step.mode))
          .set_compute_data_type(compute_type(step));
      std::array<Attributes, 3> x;
      for (int j = 0; j < step.operand_count; ++j) {
        x[static_cast<std::size_t>(j)] =
            operand(step.operands[static_cast<std::size_t>(j)], score, grad);
      }
      Attributes result;
      if (step.mode == Mode::Index) {
        result = graph.pointwise(x[0], attributes.set_axis(step.axis));
      } else if (step.mode == Mode::Select) {
        result = graph.pointwise(x[1], x[2], x[0], attributes);
      } else if (step.operand_count == 1) {
        result = graph.pointwise(x[0], attributes);
      } else {
        result = graph.pointwise(x[0], x[1], attributes);
      }
      result->set_data_type(data_type(step.type));
      steps_[i] = result;
    }
  }

  // cuDNN refuses its options beside a modifier, but recognises their graphs at the end of one:
  // they are put there by cudnn-frontend's own functions.
  Attributes modify(const std::shared_ptr<fe::graph::Graph>& graph, const Attributes& score) {
    namespace own = fe::graph::attn::score_modifiers;
    score_ = score;
    steps_.assign(spec_.steps.size(), nullptr);
    add_steps(*graph, 0, spec_.forward_steps, score, nullptr);
    Attributes result = operand(spec_.modified, score, nullptr);
    if (spec_.padding) {
      result =
          own::padding_mask(graph, result, find(TensorRole::LengthsK), find(TensorRole::LengthsQ));
    }
    if (!spec_.band.any()) return result;
    return own::sliding_window_mask(graph, result, alignment(), spec_.band.left, spec_.band.right,
                                    spec_.find(TensorRole::Q)->dim[2],
                                    spec_.find(TensorRole::K)->dim[2], find(TensorRole::LengthsQ),
                                    find(TensorRole::LengthsK), nullptr, nullptr);
  }

  fe::DiagonalAlignment_t alignment() const {
    return spec_.band.bottom_right ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                   : fe::DiagonalAlignment_t::TOP_LEFT;
  }

  // What forward and backward have in common.
  template <class Options>
  void set_options(Options& options) {
    options.set_attn_scale(find(TensorRole::Scale));
    if (spec_.find(TensorRole::LengthsQ) != nullptr) {
      options.set_seq_len_q(find(TensorRole::LengthsQ)).set_seq_len_kv(find(TensorRole::LengthsK));
    }
    if (spec_.find(TensorRole::Bias) != nullptr) options.set_bias(find(TensorRole::Bias));
    if (spec_.find(TensorRole::Sink) != nullptr) options.set_sink_token(find(TensorRole::Sink));
    if (spec_.dropout > 0) {
      options.set_dropout(spec_.dropout, find(TensorRole::Seed), find(TensorRole::Offset));
    }
    if (spec_.has_modifier()) {
      options.set_score_mod([this](std::shared_ptr<fe::graph::Graph> graph, Attributes score) {
        return modify(graph, score);
      });
      return;
    }
    options.set_padding_mask(spec_.padding);
    if (!spec_.band.any()) return;
    options.set_diagonal_alignment(alignment());
    if (spec_.band.left) {
      options.set_diagonal_band_left_bound(static_cast<int>(*spec_.band.left));
    }
    if (spec_.band.right) {
      options.set_diagonal_band_right_bound(static_cast<int>(*spec_.band.right));
    }
  }

  void forward() {
    fe::graph::SDPA_attributes options;
    options.set_name("attention").set_generate_stats(spec_.stats);
    set_options(options);
    const auto [o, stats] = graph_->sdpa(find(TensorRole::Q), find(TensorRole::K),
                                         find(TensorRole::V), std::move(options));
    bind_output(o, TensorRole::O);
    if (spec_.stats) bind_output(stats, TensorRole::Stats);
  }

  void backward() {
    fe::graph::SDPA_backward_attributes options;
    options.set_name("attention_backward").set_deterministic_algorithm(spec_.deterministic);
    set_options(options);
    if (spec_.find(TensorRole::GradBias) != nullptr) options.set_dbias(find(TensorRole::GradBias));
    if (spec_.find(TensorRole::GradSink) != nullptr)
      options.set_dsink_token(find(TensorRole::GradSink));
    if (spec_.bprop) {
      options.set_score_mod_bprop([this](std::shared_ptr<fe::graph::Graph> graph, Attributes grad) {
        add_steps(*graph, spec_.forward_steps, spec_.steps.size(), score_, grad);
        return operand(*spec_.bprop, score_, grad);
      });
    }
    const auto [dq, dk, dv] = graph_->sdpa_backward(
        find(TensorRole::Q), find(TensorRole::K), find(TensorRole::V), find(TensorRole::O),
        find(TensorRole::GradO), find(TensorRole::Stats), std::move(options));
    bind_output(dq, TensorRole::GradQ);
    bind_output(dk, TensorRole::GradK);
    bind_output(dv, TensorRole::GradV);
  }

  const GraphSpec& spec_;
  std::shared_ptr<fe::graph::Graph> graph_;
  std::vector<Attributes> tensors_, steps_;
  Attributes score_;  // before modification
};

std::shared_ptr<const fe::DeviceProperties> properties(const Device& device) {
  auto described = std::make_shared<fe::DeviceProperties>();
  check(described->deserialize({device.description.begin(), device.description.end()}),
        "reading the description of a device");
  return described;
}

std::shared_ptr<fe::graph::Graph> supported(const Builder& builder, const Device& device,
                                            void* handle) {
  const auto& graph = builder.graph();
  if (handle == nullptr) graph->set_device_properties(properties(device));
  check(graph->validate(), "validating the graph");
  check(handle == nullptr ? graph->build_operation_graph()
                          : graph->build_operation_graph(static_cast<cudnnHandle_t>(handle)),
        "making the graph");
  check(graph->create_execution_plans({fe::HeurMode_t::A}), "asking its heuristics");
  check(graph->check_support(), "checking support");
  return graph;
}

class LoadedGraph : public Graph {
 public:
  LoadedGraph(std::span<const std::uint8_t> bytes, void* handle) {
    check(graph_.deserialize(static_cast<cudnnHandle_t>(handle), {bytes.begin(), bytes.end()},
                             /*enforce_precompiled=*/false, /*run_warmup=*/false),
          "reading a plan back");
    std::int64_t bytes_needed = 0;
    check(graph_.get_workspace_size(bytes_needed), "asking for the workspace");
    workspace_ = static_cast<std::size_t>(std::max<std::int64_t>(bytes_needed, 0));
  }
  std::size_t workspace_bytes() const override { return workspace_; }
  void execute(void* handle, std::span<void*> pointers, void* workspace) const override {
    check(graph_.execute(static_cast<cudnnHandle_t>(handle), pointers.data(),
                         static_cast<int>(pointers.size()), workspace),
          "running a plan");
  }

 private:
  fe::graph::Graph graph_;
  std::size_t workspace_ = 0;
};

}  // namespace

bool graphs_are_built_in() { return true; }

std::string frontend_version() {
  return std::to_string(CUDNN_FRONTEND_MAJOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_MINOR_VERSION) + "." +
         std::to_string(CUDNN_FRONTEND_PATCH_VERSION);
}

void check_support(const GraphSpec& spec, const Device& device, void* handle) {
  const Builder builder(spec, device.sm);
  supported(builder, device, handle);
}

std::vector<std::uint8_t> build(const GraphSpec& spec, const Device& device, void* handle) {
  const Builder builder(spec, device.sm);
  const auto graph = supported(builder, device, handle);
  check(graph->build_plans(), "building the plan");
  std::vector<std::uint8_t> bytes;
  check(graph->serialize(bytes), "serialising the plan");
  return bytes;
}

// The bytes come from a file; if they are no graph, cudnn-frontend's parsers may throw anything.
std::unique_ptr<Graph> load(std::span<const std::uint8_t> serialized, void* handle) try {
  return std::make_unique<LoadedGraph>(serialized, handle);
} catch (const std::bad_alloc&) {
  throw;
} catch (const DeviceError&) {
  throw;
} catch (const Unsupported&) {
  throw;
} catch (const std::exception& error) {
  throw DeviceError(std::string("cuDNN, reading a plan back: ") + error.what());
}

void* create_handle() {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  return handle;
}

void set_stream(void* handle, void* stream) {
  check_cudnn(cudnnSetStream(static_cast<cudnnHandle_t>(handle), static_cast<cudaStream_t>(stream)),
              "cudnnSetStream");
}

}  // namespace fovea::cudnn
