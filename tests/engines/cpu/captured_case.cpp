#include "tests/engines/cpu/captured_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "attention/bindings.h"
#include "attention/extents.h"
#include "base/hash.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/parse.h"
#include "tests/engines/cpu/guarded_memory.h"
#include "tests/engines/cpu/strip_case.h"

namespace fovea::test {
namespace {

constexpr int block_rows = 24, tile_columns = 128;
constexpr std::byte rubbish{0xa5};

std::uint64_t point_hash(std::uint64_t seed, std::int64_t b, std::int64_t h, std::int64_t q,
                         std::int64_t k) {
  std::uint64_t hash = seed;
  for (const std::int64_t x : {b, h, q, k})
    hash = hash_combine(hash, static_cast<std::uint64_t>(x));
  return mix(hash);
}

float from_hash(std::uint64_t hash) {
  return static_cast<float>(static_cast<std::int64_t>(hash >> 40) - (1 << 23)) / (1 << 22);
}

std::int32_t wrap(std::int64_t x) { return static_cast<std::int32_t>(x); }

}  // namespace

CapturedCase::CapturedCase(const std::string& program, const Sizes& sizes, std::uint64_t seed,
                           const CapturedOptions& options)
    : seed_(seed), options_(options) {
  problem.direction = Direction::Backward;
  problem.program = ir::parse_program(program);
  problem.sizes = bindings.sizes = sizes;
  Random random(seed);
  for (std::size_t slot = 0; slot < problem.program.tensors().size(); ++slot) {
    const DType type = problem.program.tensors()[slot].dtype;
    problem.want_tensors.push_back(ir::loaded_type(type) == ir::Type::F32);
    make_tensor(random, slot);
  }
  for (const ir::ScalarDecl& scalar : problem.program.scalars()) {
    problem.want_scalars.push_back(scalar.type == ir::Type::F32);
    scalar_values_.push_back({0.75f + 0.25f * random.normal(), random.between(0, 3)});
  }
  grad = [this](std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) {
    return from_hash(point_hash(seed_ + 2, b, h, q, k));
  };
}

void CapturedCase::make_tensor(Random& random, std::size_t slot) {
  const ir::TensorDecl& declared = problem.program.tensors()[slot];
  Storage storage;
  storage.extents = captured_extents(declared, problem.sizes, problem.h_global);
  storage.elements = 1;
  for (const std::int64_t extent : storage.extents)
    storage.elements *= static_cast<std::size_t>(extent);
  storage.data.resize(storage.elements * 8 + 8);
  for (std::size_t i = 0; i < storage.elements; ++i) {
    const float value = 0.5f + static_cast<float>(random.below(64)) / 64;
    std::byte* const data = storage.data.data();
    const auto put = [&](auto x) { std::memcpy(data + i * sizeof x, &x, sizeof x); };
    switch (declared.dtype) {
      case DType::F32: put(value); break;
      case DType::F64: put(static_cast<double>(value)); break;
      case DType::F16: put(float_to_half(value)); break;
      case DType::BF16: put(float_to_bfloat16(value)); break;
      default: put(random.between(0, 5)); break;
    }
  }
  const DType type =
      options_.gradient_types.empty() ? declared.dtype : options_.gradient_types[slot];
  storage.bound.dtype = type;
  std::int64_t stride = options_.gaps ? 3 : 1;
  for (std::size_t i = storage.extents.size(); i-- > 0;) {
    storage.bound.stride[i] = stride;
    stride = stride * storage.extents[i] + (options_.gaps ? 5 : 0);
  }
  storage.gradient.assign(static_cast<std::size_t>(std::max<std::int64_t>(stride, 1) * 8 + 64),
                          rubbish);
  storage_.push_back(std::move(storage));
}

void CapturedCase::bind() {
  views_.clear(), gradients_.clear(), bound_scalars_.clear(), scalar_pointers_.clear();
  for (std::size_t slot = 0; slot < storage_.size(); ++slot) {
    Storage& storage = storage_[slot];
    std::ranges::fill(storage.gradient, rubbish);
    storage.bound.data = problem.want_tensors[slot] ? storage.gradient.data() : nullptr;
    views_.push_back(ir::TensorView::dense(storage.data.data(),
                                           problem.program.tensors()[slot].dtype, storage.extents));
    gradients_.push_back(storage.bound);
  }
  scalar_gradients_.assign(scalar_values_.size(), NAN);
  for (std::size_t i = 0; i < scalar_values_.size(); ++i) {
    bound_scalars_.push_back({scalar_values_[i], nullptr});
    scalar_pointers_.push_back(&scalar_gradients_[i]);
  }
  bindings.tensors = views_, bindings.tensor_gradients = gradients_;
  bindings.scalars = bound_scalars_, bindings.scalar_gradients = scalar_pointers_;
  bindings.k_lengths = k_lengths.data(), bindings.k_offsets = k_offsets.data();
  problem.has_k_lengths = !k_lengths.empty(), problem.has_k_offsets = !k_offsets.empty();
}

bool CapturedCase::alive(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
  if (options_.dead_percent == 0) return true;
  // Scores are dead by whole rows, by parts of rows, and one by one.
  return point_hash(seed_ + 3, b, h, q, k / 40 + 1000) % 100 >= options_.dead_percent &&
         point_hash(seed_ + 4, b, h, q, k) % 100 >= options_.dead_percent / 4;
}

float CapturedCase::score(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
  return from_hash(point_hash(seed_ + 1, b, h, q, k));
}

cpu::LeafValues CapturedCase::leaves(std::int64_t b, std::int64_t h) const {
  const Sequence sequence = Geometry(problem, bindings).sequence(b);
  cpu::LeafValues leaves;
  leaves.b = wrap(b + bindings.b_offset.value), leaves.h = wrap(h + bindings.h_offset.value);
  leaves.B = wrap(bindings.sizes.b), leaves.Hkv = wrap(bindings.sizes.hkv);
  leaves.H = wrap(heads_seen(bindings.sizes, bindings.h_global));
  leaves.Sq = wrap(sequence.q_length), leaves.Skv = wrap(sequence.k_length);
  leaves.scalars = scalar_values_, leaves.tensors = views_;
  return leaves;
}

// at: b, h, first row, first column, last column.
void CapturedCase::run_tile(cpu::StripRun& strips, const cpu::CapturedRun& run, std::int64_t lane,
                            const std::array<std::int64_t, 5>& at) {
  const cpu::KernelTable& kernels = *strip_isas().back();
  const auto [b, h, q, k, k_last] = at;
  const auto rows = static_cast<int>(std::min<std::int64_t>(bindings.sizes.sq - q, block_rows));
  const auto columns = static_cast<int>(k_last - k);
  std::vector<float> scores(static_cast<std::size_t>(kernels.strip_rows * kernels.panel_width));
  std::vector<float> grads(scores.size());
  std::vector<std::uint64_t> live(static_cast<std::size_t>(kernels.strip_rows));
  cpu::StripRun::Strip strip;
  for (strip.row = 0; strip.row < rows; strip.row += kernels.strip_rows) {
    strip.rows = std::min(kernels.strip_rows, rows - strip.row);
    for (strip.column = 0; strip.column < columns; strip.column += kernels.panel_width) {
      strip.columns = std::min(kernels.panel_width, columns - strip.column);
      std::ranges::fill(live, 0);
      for (int r = 0; r < strip.rows; ++r) {
        for (int c = 0; c < strip.columns; ++c) {
          const std::int64_t row = q + strip.row + r, column = k + strip.column + c;
          const auto cell = static_cast<std::size_t>(r * kernels.panel_width + c);
          const bool on = alive(b, h, row, column);
          scores[cell] = score(b, h, row, column);
          grads[cell] = on ? grad(b, h, row, column) : std::nanf("");
          live[static_cast<std::size_t>(r)] |= std::uint64_t{on} << c;
        }
      }
      strip.score = scores.data();
      strip.grad = nullptr;
      strips.elements(0, strip);
      strip.grad = grads.data();
      strips.elements(1, strip);
      run.add(lane, strips, 1, strip, options_.dead_percent == 0 ? nullptr : live.data());
    }
  }
}

void CapturedCase::run_unit(const cpu::CapturedRun& run, const cpu::CapturedGradients& captured,
                            std::int64_t b, std::int64_t g, std::int64_t chunk) {
  if (captured.roots().empty()) return;
  std::vector<ir::Expr> roots{problem.program.mod()};
  roots.insert(roots.end(), captured.roots().begin(), captured.roots().end());
  const cpu::StripProgram program({roots, 1, false}, *strip_isas().back());
  const GuardedMemory state(program.state_bytes(block_rows, tile_columns));
  cpu::StripRun strips(program, state.data(), block_rows, tile_columns);
  const Sequence sequence = Geometry(problem, bindings).sequence(b);
  const std::int64_t keys = (sequence.k_length + options_.chunks - 1) / options_.chunks;
  const std::int64_t first = chunk * keys, last = std::min(first + keys, sequence.k_length);
  const std::int64_t heads = bindings.sizes.h / bindings.sizes.hkv;
  const std::int64_t lane = run.lane_of(b, g, chunk);
  for (std::int64_t h = g * heads; h < (g + 1) * heads; ++h) {
    strips.begin(leaves(b, h));
    for (std::int64_t q = 0; q < sequence.q_length; q += block_rows) {
      const auto rows = static_cast<int>(std::min<std::int64_t>(sequence.q_length - q, block_rows));
      strips.rows(wrap(q + sequence.q_offset), rows);
      for (std::int64_t k = first; k < last; k += tile_columns) {
        const std::int64_t end = std::min(k + tile_columns, last);
        strips.columns(wrap(k + sequence.k_offset), static_cast<int>(end - k));
        run_tile(strips, run, lane, {b, h, q, k, end});
      }
    }
  }
}

void CapturedCase::run(Random* order) {
  bind();
  const cpu::CapturedGradients captured(problem);
  const cpu::ChunkCounts counts{bindings.sizes.b, bindings.sizes.hkv, options_.chunks};
  workspace_bytes = captured.workspace_bytes(bindings.sizes, counts);
  const GuardedMemory memory(workspace_bytes);
  const cpu::CapturedRun run(captured, bindings, counts, memory.data());
  lanes = run.lanes();
  std::vector<std::int64_t> turn(static_cast<std::size_t>(lanes));
  std::iota(turn.begin(), turn.end(), 0);
  for (std::size_t i = turn.size(); order != nullptr && i-- > 1;) {
    std::swap(turn[i], turn[order->below(static_cast<std::uint32_t>(i + 1))]);
  }
  for (std::int64_t task = run.clear_tasks(); task-- > 0;) run.clear(task);
  for (const std::int64_t lane : turn) {
    for (std::int64_t b = 0; b < counts.sequences; ++b) {
      for (std::int64_t g = 0; g < counts.groups; ++g) {
        for (std::int64_t chunk = 0; chunk < counts.chunks; ++chunk) {
          if (run.lane_of(b, g, chunk) == lane) run_unit(run, captured, b, g, chunk);
        }
      }
    }
  }
  for (std::int64_t task = run.write_tasks(); task-- > 0;) run.write(task);
  if (!memory.intact()) failure = "wrote past the workspace";
  collect();
}

void CapturedCase::collect() {
  tensors.assign(storage_.size(), {}), scalars.assign(scalar_values_.size(), {});
  for (std::size_t slot = 0; slot < storage_.size(); ++slot) {
    if (!problem.want_tensors[slot]) continue;
    Storage& storage = storage_[slot];
    const std::int64_t bytes = dtype_size(storage.bound.dtype);
    for (std::size_t i = 0; i < storage.elements; ++i) {
      std::int64_t at = 0;
      auto rest = static_cast<std::int64_t>(i);
      for (std::size_t d = storage.extents.size(); d-- > 0;) {
        at += rest % storage.extents[d] * storage.bound.stride[d];
        rest /= storage.extents[d];
      }
      tensors[slot].values.push_back(read_number(storage.gradient.data(), storage.bound.dtype, at));
      std::fill_n(storage.gradient.data() + at * bytes, bytes, rubbish);
    }
    for (const std::byte byte : storage.gradient) {
      if (byte != rubbish) failure = "wrote between the elements of a gradient";
    }
  }
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    if (problem.want_scalars[i]) scalars[i].values = {static_cast<double>(scalar_gradients_[i])};
  }
}

void CapturedCase::expect() {
  const ir::Gradients derived = ir::differentiate(problem.program.mod(), ir::leaf(ir::Op::Grad));
  std::vector<ir::Expr> roots;
  for (const ir::LoadGradient& load : derived.loads) {
    roots.push_back(load.gradient);
    roots.insert(roots.end(), load.load->args().begin(), load.load->args().end());
  }
  for (const ir::ScalarGradient& scalar : derived.scalars) roots.push_back(scalar.gradient);
  for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
    tensors[slot].expected.assign(tensors[slot].values.size(), 0);
    tensors[slot].magnitude.assign(tensors[slot].values.size(), 0);
  }
  for (WrittenGradient& scalar : scalars) {
    scalar.expected.assign(scalar.values.size(), 0);
    scalar.magnitude.assign(scalar.values.size(), 0);
  }
  if (roots.empty()) return;
  ir::Evaluator<double> evaluator(roots);
  const auto add = [](WrittenGradient& to, std::size_t at, double x) {
    if (to.values.empty()) return;
    to.expected[at] += x;
    to.magnitude[at] += std::fabs(x);
  };
  const auto add_point = [&] {
    std::size_t root = 0;
    for (const ir::LoadGradient& load : derived.loads) {
      const std::vector<std::int64_t>& extents = storage_[load.load->slot()].extents;
      const double gradient = evaluator.value(root++).f;
      std::int64_t at = 0;
      for (const std::int64_t extent : extents) {
        at = at * extent + ir::clamp_index(evaluator.value(root++).i, extent);
      }
      add(tensors[load.load->slot()], static_cast<std::size_t>(at), gradient);
    }
    for (const ir::ScalarGradient& scalar : derived.scalars) {
      if (scalar.slot >= scalars.size()) continue;
      add(scalars[scalar.slot], 0, evaluator.value(root++).f);
    }
  };
  ir::Point<double> point;
  for (std::int64_t b = 0; b < bindings.sizes.b; ++b) {
    const Sequence sequence = Geometry(problem, bindings).sequence(b);
    for (std::int64_t h = 0; h < bindings.sizes.h; ++h) {
      const cpu::LeafValues at = leaves(b, h);
      point.b = at.b, point.h = at.h, point.B = at.B, point.H = at.H, point.Hkv = at.Hkv;
      point.Sq = at.Sq, point.Skv = at.Skv, point.scalars = at.scalars, point.tensors = at.tensors;
      for (std::int64_t q = 0; q < sequence.q_length; ++q) {
        for (std::int64_t k = 0; k < sequence.k_length; ++k) {
          if (!alive(b, h, q, k)) continue;
          point.q = wrap(q + sequence.q_offset), point.k = wrap(k + sequence.k_offset);
          point.score = static_cast<double>(score(b, h, q, k));
          point.grad = static_cast<double>(grad(b, h, q, k));
          evaluator(point);
          add_point();
        }
      }
    }
  }
}

}  // namespace fovea::test
