// What a formula costs per score in the CPU engine's strip interpreter, on a tile that stays in the
// cache, for each instruction set. `cycles` are ticks of the time stamp counter per score, of the
// best pass: what others do to the machine hardly shows in it.
#include <benchmark/benchmark.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <algorithm>
#include <memory>
#include <vector>

#include "attention/device.h"
#include "engines/cpu/call.h"
#include "engines/cpu/strips/strip.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/lift.h"
#include "ir/parse.h"
#include "ir/simplify.h"

namespace {

using namespace fovea;
using namespace fovea::cpu;

// A block of rows goes over several tiles of keys, whose scores all lie in the same 16 KiB.
constexpr int rows = 64, columns = 64, tiles = 8, sequence = 2000;

struct Formula {
  const char* name;
  const char* program;
  bool backward = false;  // its derivative as the second phase
};
constexpr Formula formulas[] = {
    {"multiply", "mod=\"score * s\" scalar=s=0.5"},
    {"multiply_abs", "mod=\"abs(score * s)\" scalar=s=0.5"},
    {"softcap", "mod=\"softcap(30)\""},
    {"alibi", "mod=\"alibi\""},
    {"softcap_alibi", "mod=\"softcap(30) + slope[h] * (k - q)\" tensor=\"slope:f32[H]\""},
    {"distance", "mod=\"score - 0.1 * abs(q - k)\""},
    {"causal_select", "mod=\"q >= k ? score : -inf\""},
    {"bias_f32", "mod=\"score + bias[q, k]\" tensor=\"bias:f32[Sq,Skv]\""},
    {"bias_bf16", "mod=\"score + bias[q, k]\" tensor=\"bias:bf16[Sq,Skv]\""},
    {"relative_bias", "mod=\"score + table[h, q - k + 1999]\" tensor=\"table:f32[H,3999]\""},
    {"clamped_bias", "mod=\"score + table[clamp(q - k + 64, 0, 128)]\" tensor=\"table:f32[129]\""},
    {"softcap_derivative", "mod=\"softcap(30)\"", true},
    {"alibi_derivative", "mod=\"score + slope[h] * (k - q)\" tensor=\"slope:f32[H]\"", true},
    {"sigmoid", "mod=\"score * sigmoid(score)\""},
    {"exp", "mod=\"exp(score)\""},
    {"log1p", "mod=\"score - log1p(0.5 * abs(q - k))\""},
    {"erf", "mod=\"score * (1 + erf(score))\""},
    {"sin", "mod=\"sin(score)\""},
    {"causal_mask", "mask=\"q >= k\""},
    {"sliding_mask", "mask=\"q >= k && q - k < n\" scalar=n:i32=100"},
    {"document_mask", "mask=\"q >= k && doc[q] == doc[k]\" tensor=\"doc:i32[Sq]\""},
};

std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return 0;
#endif
}

void run_formula(benchmark::State& bench, const Formula& formula, const std::string& isa) {
  const ir::Lifted lifted = ir::lift_literals(ir::parse_program(formula.program));
  const bool mask = static_cast<bool>(lifted.program.mask());
  std::vector<ir::Expr> roots{mask ? lifted.program.mask() : lifted.program.mod()};
  const std::size_t second_phase = 1;
  if (formula.backward) {
    const ir::Gradients gradients = ir::differentiate(roots[0], ir::leaf(ir::Op::Grad));
    roots.push_back(ir::simplify(gradients.score));
    for (const auto& load : gradients.loads) roots.push_back(ir::simplify(load.gradient));
  }
  const KernelTable& kernels = kernels_named(isa);
  const StripProgram program({roots, second_phase, !mask}, kernels);

  std::vector<ir::ScalarValue> scalars;
  for (const ir::ScalarDecl& scalar : lifted.program.scalars()) {
    const double value = scalar.value.value_or(0.5);
    scalars.push_back({static_cast<float>(value), static_cast<std::int32_t>(value)});
  }
  for (std::size_t i = 0; i < lifted.literals.size(); ++i) {
    scalars[scalars.size() - lifted.literals.size() + i].f = lifted.literals[i];
  }
  std::vector<std::vector<char>> memory;
  std::vector<ir::TensorView> tensors;
  for (const ir::TensorDecl& tensor : lifted.program.tensors()) {
    std::vector<std::int64_t> extents;
    std::int64_t elements = 1;
    for (const ir::Extent& extent : tensor.extents) {
      const bool number = extent.kind == ir::Extent::Kind::Number;
      extents.push_back(number ? extent.number : extent.kind == ir::Extent::Kind::H ? 8 : sequence);
      elements *= extents.back();
    }
    std::size_t bytes = static_cast<std::size_t>(elements * dtype_size(tensor.dtype)) + 64;
    void* data = memory.emplace_back(bytes).data();
    std::align(64, bytes - 64, data, bytes);
    tensors.push_back(ir::TensorView::dense(data, tensor.dtype, extents));
  }
  LeafValues leaves;
  leaves.b = 0, leaves.h = 3, leaves.B = 1, leaves.H = 8, leaves.Hkv = 8;
  leaves.Sq = leaves.Skv = sequence;
  leaves.scalars = scalars, leaves.tensors = tensors;

  void* const state = ::operator new(program.state_bytes(rows, columns), std::align_val_t{64});
  void* const score = ::operator new(rows * columns * sizeof(float), std::align_val_t{64});
  auto* const scores = static_cast<float*>(score);
  for (int i = 0; i < rows * columns; ++i) scores[i] = static_cast<float>(i % 97) / 31.0f - 1.5f;
  std::vector<std::uint64_t> bits(rows * columns / 64);
  StripRun run(program, state, rows, columns);
  run.begin(leaves);

  std::uint64_t least = ~std::uint64_t{0}, done = 0;
  const int width = kernels.panel_width;
  for (auto _ : bench) {
    const std::uint64_t start = ticks();
    run.rows(640, rows);
    for (int tile = 0; tile < tiles; ++tile) {
      run.columns(tile * columns, columns);
      for (int column = 0; column < columns; column += width) {
        for (int row = 0; row < rows; row += kernels.strip_rows) {
          StripRun::Strip strip{row, kernels.strip_rows, column, width, nullptr, nullptr};
          strip.score = scores + column * rows + row * width;
          run.elements(0, strip);
          if (mask) run.keep_bits(0, strip, bits.data() + row * columns / 64, columns / 64);
          strip.grad = strip.score;
          if (formula.backward) run.elements(1, strip);
        }
      }
    }
    benchmark::ClobberMemory();
    least = std::min(least, ticks() - start);
    done += rows * columns * tiles;
  }
  bench.SetItemsProcessed(static_cast<std::int64_t>(done));
  bench.counters["cycles"] = static_cast<double>(least) / (rows * columns * tiles);
  ::operator delete(state, std::align_val_t{64});
  ::operator delete(score, std::align_val_t{64});
}

const bool registered = [] {
  for (const std::string& isa : cpu_device().isa) {
    for (const Formula& formula : formulas) {
      benchmark::RegisterBenchmark(
          (isa + "/" + formula.name).c_str(),
          [&formula, isa](benchmark::State& bench) { run_formula(bench, formula, isa); });
    }
  }
  return true;
}();

}  // namespace
