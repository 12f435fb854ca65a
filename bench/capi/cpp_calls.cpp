// The same as calls.cpp for fovea::Attention: a call of an object that has made its plan.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/capi/counted.h"
#include "bench/capi/idle_engine.h"
#include "fovea/fovea.hpp"

namespace {

using fovea::Tensor;
using fovea::bench::CountedAllocations;

constexpr std::int64_t b = 4, h = 16, s = 4096, d = 128;

// Addresses that are never read or written, far apart so that nothing overlaps.
float* memory(int i) { return reinterpret_cast<float*>((std::uintptr_t(i) + 1) << 36); }
fovea::View view(int i) { return Tensor::bhsd(memory(i), b, h, s, d); }
std::span<float> rows(int i) { return {memory(i), static_cast<std::size_t>(b * h * s)}; }

fovea::Attention attention(bool captured) {
  fovea::bench::add_idle_engine();
  fovea::AttentionOptions options;
  options.engine = fovea::bench::idle_engine;
  options.mask = "causal";
  if (captured) {
    const Tensor slopes("slopes", fovea::f32, {fovea::H});
    const Tensor bias("bias", fovea::f32, {fovea::H, fovea::Sq, fovea::Skv});
    options.mod = "score + slopes[h] * (q - k) + bias[h, q, k]";
    options.captured = {fovea::value(slopes, std::span(memory(20), std::size_t{h})),
                        fovea::value(bias, std::span(memory(30), std::size_t{h * s * s}))};
  }
  return {view(0), view(1), view(2), options};
}

void cpp_forward(benchmark::State& state) {
  fovea::Attention attend = attention(state.range(0) != 0);
  state.SetLabel(state.range(0) != 0 ? "two captured tensors" : "causal");
  attend.forward({.o = view(3), .lse = rows(4)});
  const CountedAllocations allocations(state);
  for (auto _ : state) attend.forward({.o = view(3), .lse = rows(4)});
}
void cpp_backward(benchmark::State& state) {
  fovea::Attention attend = attention(state.range(0) != 0);
  state.SetLabel(state.range(0) != 0 ? "two captured tensors" : "causal");
  const fovea::Incoming in{.o = view(3), .lse = rows(4), .grad_o = view(5)};
  const fovea::Gradients out{.q = view(6), .k = view(7), .v = view(8)};
  attend.backward(in, out);
  const CountedAllocations allocations(state);
  for (auto _ : state) attend.backward(in, out);
}
BENCHMARK(cpp_forward)->Arg(0)->Arg(1);
BENCHMARK(cpp_backward)->Arg(0)->Arg(1);

}  // namespace
