// The symbols that XLA calls for a custom call: when it instantiates, initializes and runs it, on
// the host and on CUDA. Nothing here knows Python: the library is loaded with ctypes and its
// addresses are given to XLA.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include <xla/ffi/api/ffi.h>
#include "../src/workspace.h"
#include "call.h"

namespace ffi = xla::ffi;

namespace fovea_jax {
namespace {

// XLA keeps one of these per custom call of a compiled program. Each platform has a type of its
// own: the plugin for CUDA has its own registry of type numbers, in which a number of the host's
// would mean another type.
template <class Platform>
struct CallState {
  static ffi::TypeId id;
  CustomCall call;
  CallState(const Attributes& attributes, fovea_direction direction)
      : call(attributes, direction) {}
};
template <class Platform>
ffi::TypeId CallState<Platform>::id = {};
struct Host;
struct Cuda;
using HostState = CallState<Host>;
using CudaState = CallState<Cuda>;

ffi::ErrorCode code_of(fovea_status status) {
  switch (status) {
    case FOVEA_OK: return ffi::ErrorCode::kOk;
    case FOVEA_INVALID_ARGUMENT: return ffi::ErrorCode::kInvalidArgument;
    case FOVEA_UNSUPPORTED: return ffi::ErrorCode::kUnimplemented;
    case FOVEA_DEVICE_ERROR: return ffi::ErrorCode::kUnavailable;
    case FOVEA_OUT_OF_MEMORY: return ffi::ErrorCode::kResourceExhausted;
    case FOVEA_INTERNAL_ERROR: break;
  }
  return ffi::ErrorCode::kInternal;
}

// No exception may cross into XLA.
template <typename Body>
ffi::Error guarded(Body body) {
  try {
    return body();
  } catch (const fovea::Error& error) {
    return {code_of(error.status()), std::string("fovea: ") + error.what()};
  } catch (const std::bad_alloc&) {
    return {ffi::ErrorCode::kResourceExhausted, "fovea: out of host memory"};
  } catch (const std::exception& error) {
    return ffi::Error::Internal(std::string("fovea: ") + error.what());
  }
}

template <class State, fovea_direction direction>
ffi::ErrorOr<std::unique_ptr<State>> instantiate(std::string_view problem, std::string_view engine,
                                                 std::string_view operands,
                                                 std::string_view results) {
  std::unique_ptr<State> state;
  ffi::Error error = guarded([&] {
    state = std::make_unique<State>(Attributes{problem, engine, operands, results}, direction);
    return ffi::Error::Success();
  });
  if (error.failure()) return ffi::Unexpected<ffi::Error>(std::move(error));
  return state;
}

Binder bind_all(const CustomCall& call, Memory memory, ffi::RemainingArgs& arguments,
                ffi::RemainingRets& results) {
  if (arguments.size() != call.operands().size() || results.size() != call.results().size()) {
    throw std::invalid_argument("a custom call has " + std::to_string(arguments.size()) +
                                " operands and " + std::to_string(results.size()) +
                                " results, other than its attributes say");
  }
  Binder binder(memory);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    binder.bind(call.operands()[i], arguments.get<ffi::AnyBuffer>(i).value());
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    binder.bind(call.results()[i], *results.get<ffi::AnyBuffer>(i).value());
  }
  return binder;
}

// Shared by the caller and its helpers. A helper that starts after the work is done finds nothing
// left to take, so the caller waits for tasks and never for threads: a pool whose threads all sit
// in such calls (eight host devices on two threads) makes progress.
struct Work {
  std::size_t count;
  void (*task)(void*, std::size_t);
  void* context;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};

  void help() {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      task(context, i);
      if (done.fetch_add(1) + 1 == count) done.notify_all();
    }
  }

  void wait() {
    for (std::size_t seen = done.load(); seen != count; seen = done.load()) done.wait(seen);
  }
};

// XLA's thread pool as an executor of Fovea's CPU engine; lives as long as one call.
class Threads {
 public:
  explicit Threads(ffi::ThreadPool& pool) : pool_(pool) {
    executor_.struct_size = sizeof executor_;
    executor_.self = this;
    executor_.threads = static_cast<std::int32_t>(std::max<std::int64_t>(1, pool.num_threads()));
    executor_.run = &Threads::run;
  }
  const fovea_executor* executor() const { return &executor_; }

 private:
  static void run(void* self, std::size_t count, void (*task)(void*, std::size_t), void* context) {
    auto& threads = *static_cast<Threads*>(self);
    auto work = std::make_shared<Work>(count, task, context);
    const std::size_t helpers =
        std::min<std::size_t>(count, static_cast<std::size_t>(threads.executor_.threads));
    for (std::size_t i = 1; i < helpers; ++i) threads.pool_.Schedule([work] { work->help(); });
    work->help();
    work->wait();
  }

  ffi::ThreadPool& pool_;
  fovea_executor executor_{};
};

ffi::Error run_on_host(HostState* state, ffi::ThreadPool pool, ffi::RemainingArgs arguments,
                       ffi::RemainingRets results) {
  return guarded([&] {
    const PreparedPlan& plan = state->call.plan_on("cpu");
    Binder binder = bind_all(state->call, Memory::host, arguments, results);
    fovea_bindings& bindings = binder.bindings();
    const Threads threads(pool);
    bindings.executor = threads.executor();
    const fovea_host::Workspace workspace(plan.workspace_bytes);
    bindings.workspace = workspace.data();
    bindings.workspace_bytes = workspace.size();
    plan.plan->run(bindings);
    return ffi::Error::Success();
  });
}

// Before the first execution, and outside of any graph capture: the plan is built here.
ffi::Error initialize_on_device(CudaState* state, std::int32_t device) {
  return guarded([&] {
    if (device >= 0) state->call.plan_on("cuda:" + std::to_string(device));
    return ffi::Error::Success();
  });
}

ffi::Error run_on_device(CudaState* state, std::int32_t device, void* stream,
                         ffi::ScratchAllocator scratch, ffi::RemainingArgs arguments,
                         ffi::RemainingRets results) {
  return guarded([&] {
    const PreparedPlan& plan = state->call.plan_on("cuda:" + std::to_string(device));
    Binder binder = bind_all(state->call, Memory::device, arguments, results);
    fovea_bindings& bindings = binder.bindings();
    bindings.stream = stream;
    // A program that XLA may record has its workspace among its results: scratch memory goes back
    // to XLA when this function returns, and a recorded graph would write to it later.
    if (bindings.workspace_bytes < plan.workspace_bytes) {
      const std::optional<void*> memory = scratch.Allocate(plan.workspace_bytes, 256);
      if (!memory) {
        return ffi::Error(
            ffi::ErrorCode::kResourceExhausted,
            "fovea: no room for a workspace of " + std::to_string(plan.workspace_bytes) + " bytes");
      }
      bindings.workspace = *memory;
      bindings.workspace_bytes = plan.workspace_bytes;
    }
    plan.plan->run(bindings);
    return ffi::Error::Success();
  });
}

auto instantiate_binding() {
  return ffi::Ffi::BindInstantiate()
      .Attr<std::string_view>("problem")
      .Attr<std::string_view>("engine")
      .Attr<std::string_view>("operands")
      .Attr<std::string_view>("results");
}

auto host_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::State<HostState>>()
      .Ctx<ffi::ThreadPool>()
      .RemainingArgs()
      .RemainingRets();
}

auto initialize_binding() {
  return ffi::Ffi::Bind<ffi::ExecutionStage::kInitialize>()
      .Ctx<ffi::State<CudaState>>()
      .Ctx<ffi::DeviceOrdinal>();
}

auto device_binding() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::State<CudaState>>()
      .Ctx<ffi::DeviceOrdinal>()
      .Ctx<ffi::PlatformStream<void*>>()
      .Ctx<ffi::ScratchAllocator>()
      .RemainingArgs()
      .RemainingRets();
}

}  // namespace

// XLA's macros define symbols; these declarations export them.
#define FOVEA_JAX_EXPORT extern "C" __attribute__((visibility("default")))
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_forward_instantiate_cpu(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_forward_instantiate_cuda(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_backward_instantiate_cpu(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_backward_instantiate_cuda(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_run_cpu(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_initialize_cuda(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_run_cuda(XLA_FFI_CallFrame* frame);
FOVEA_JAX_EXPORT XLA_FFI_Error* fovea_jax_run_cuda_recorded(XLA_FFI_CallFrame* frame);

XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_forward_instantiate_cpu,
                              (instantiate<HostState, FOVEA_FORWARD>), instantiate_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_forward_instantiate_cuda,
                              (instantiate<CudaState, FOVEA_FORWARD>), instantiate_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_backward_instantiate_cpu,
                              (instantiate<HostState, FOVEA_BACKWARD>), instantiate_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_backward_instantiate_cuda,
                              (instantiate<CudaState, FOVEA_BACKWARD>), instantiate_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_run_cpu, run_on_host, host_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_initialize_cuda, initialize_on_device,
                              initialize_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_run_cuda, run_on_device, device_binding());
XLA_FFI_DEFINE_HANDLER_SYMBOL(fovea_jax_run_cuda_recorded, run_on_device, device_binding(),
                              {ffi::Traits::kCmdBufferCompatible});

FOVEA_JAX_EXPORT ffi::TypeId* fovea_jax_type_id_cpu() { return &HostState::id; }
FOVEA_JAX_EXPORT ffi::TypeId* fovea_jax_type_id_cuda() { return &CudaState::id; }

FOVEA_JAX_EXPORT const ffi::TypeInfo* fovea_jax_type_info_cpu() {
  static const ffi::TypeInfo info = ffi::MakeTypeInfo<HostState>();
  return &info;
}
FOVEA_JAX_EXPORT const ffi::TypeInfo* fovea_jax_type_info_cuda() {
  static const ffi::TypeInfo info = ffi::MakeTypeInfo<CudaState>();
  return &info;
}

}  // namespace fovea_jax
