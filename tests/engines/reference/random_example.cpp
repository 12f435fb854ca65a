#include "tests/engines/reference/example.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "ir/print.h"

namespace fovea::test {
namespace {

// Smooth wherever random numbers land, since finite differences are wrong across a kink.
constexpr std::array<const char*, 14> mods{
    "",
    R"p(mod="c * tanh(score / c)" scalar="c=2.5")p",
    R"p(mod="score + slopes[h] * (k - q)" tensor="slopes:f32[H]")p",
    R"p(mod="score * 0.7 + bias[b, h, q, k]" tensor="bias:f32[2,4,7,9]")p",
    R"p(mod="score + table[clamp(k - q, -3, 3) + 3]" tensor="table:f32[7]")p",
    R"p(mod="score + gain[] * sin(score) + shift" tensor="gain:f32[]" scalar="shift=0.25")p",
    R"p(mod="score * row[q] * row[k + 1]" tensor="row:f32[5]")p",
    R"p(mod="k % 3 == 1 ? -inf : score + 0.3 * score * score")p",
    R"p(mod="score > 0 ? score : slope * score" scalar="slope=0.125")p",
    R"p(mod="alibi[h] * (k - q) + 0 * score" tensor="alibi:f32[H]")p",
    R"p(mod="c * tanh(score / c)" scalar="c=1.5" )p"
    R"p(bprop="let t = tanh(score / c); grad * (1 - t * t)")p",
    R"p(mod="score + t[h] * score" bprop="grad * (1 + t[h])" tensor="t:f32[H]")p",
    R"p(mod="score + w[doc[k] + 1]" tensor="doc:i32[Skv]" tensor="w:f32[3]")p",
    R"p(mod="score * exp2(-8 * (h + 1) / H) + f32(Skv - Sq) * x" scalar="x=0.5")p",
};
constexpr std::array<const char*, 7> masks{
    "",
    R"p(mask="q >= k")p",
    R"p(mask="q + (Skv - Sq) >= k")p",
    R"p(mask="q >= k && q - k < 3")p",
    R"p(mask="ids[q] == ids[k]" tensor="ids:i32[16]")p",
    R"p(mask="live[b, k]" tensor="live:bool[B,Skv]")p",
    R"p(mask="(q + h) % 4 != 2 && k != b")p",
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class List>
  const auto& one_of(const List& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(list.size())))];
  }

 private:
  std::mt19937_64 random_;
};

Sizes draw_sizes(Draw& draw) {
  Sizes sizes;
  sizes.b = 1 + draw.below(2);
  sizes.hkv = 1 + draw.below(2);
  sizes.h = sizes.hkv * (1 + draw.below(2));
  sizes.sq = 1 + draw.below(6);
  sizes.skv = 1 + draw.below(7);
  sizes.d = 1 + draw.below(4);
  sizes.dv = 1 + draw.below(4);
  return sizes;
}

// Starts of sequences of at most `longest` rows, with gaps between and behind them.
std::vector<std::int32_t> draw_starts(Draw& draw, std::int64_t sequences, std::int64_t longest) {
  std::vector<std::int32_t> starts{0};
  for (std::int64_t i = 0; i < sequences; ++i) {
    starts.push_back(starts.back() + draw.below(static_cast<int>(longest) + 1));
  }
  return starts;
}

// Rows spread out and features apart: strides unlike any layout's.
void spread(TensorSpec& spec, std::int64_t b, std::int64_t heads, std::int64_t features) {
  Strides strides;
  strides.d = 2;
  strides.b = 2 * features + 1;
  strides.h = strides.b * b;
  strides.s = strides.h * heads;
  spec.strides = strides;
}

void draw_features(Problem& problem, Draw& draw) {
  problem.layout = static_cast<Layout>(draw.below(4));
  problem.sink = problem.want_sink = draw.chance(30);
  problem.dropout = draw.chance(30) ? 0.25f : 0.0f;
  problem.grad_lse = draw.chance(50);
  problem.row_max = problem.max_logit = draw.chance(20);
  problem.has_q_lengths = draw.chance(35);
  problem.has_k_lengths = problem.has_q_lengths || draw.chance(20);
  if (draw.chance(25)) problem.b_offset = 1, problem.h_offset = 1;
  if (draw.chance(25)) problem.q_offset = 2, problem.k_offset = 1;
  problem.has_q_offsets = draw.chance(15);
  problem.has_k_offsets = problem.has_q_offsets || draw.chance(10);
  if (draw.chance(25)) problem.h_global = static_cast<std::int32_t>(problem.sizes.h) + 2;
  if (problem.layout == Layout::Thd || !draw.chance(25)) return;
  const Sizes& sizes = problem.sizes;
  spread(problem.q, sizes.b, sizes.h, sizes.d);
  spread(problem.grad_k, sizes.b, sizes.hkv, sizes.d);
  spread(problem.o, sizes.b, sizes.h, sizes.dv);
  spread(problem.v, sizes.b, sizes.hkv, sizes.dv);
}

void draw_lengths(Example& example, Draw& draw) {
  const Problem& problem = example.problem;
  for (std::int64_t b = 0; b < problem.sizes.b; ++b) {
    const auto slot = [&](const std::vector<std::int32_t>& starts, std::int64_t longest) {
      const auto at = static_cast<std::size_t>(b);
      return starts.empty() ? static_cast<int>(longest) : starts[at + 1] - starts[at];
    };
    example.q_lengths.push_back(draw.below(slot(example.q_starts, problem.sizes.sq) + 1));
    example.k_lengths.push_back(draw.below(slot(example.k_starts, problem.sizes.skv) + 1));
    example.q_offsets.push_back(draw.below(4));
    example.k_offsets.push_back(draw.below(4));
  }
}

}  // namespace

Example random_example(std::uint64_t seed) {
  Draw draw(seed);
  const std::string program = std::string(draw.one_of(mods)) + " " + draw.one_of(masks);
  Problem problem = make_problem(draw_sizes(draw), program);
  draw_features(problem, draw);
  std::vector<std::int32_t> q_starts, k_starts;
  if (problem.layout == Layout::Thd) {
    q_starts = draw_starts(draw, problem.sizes.b, problem.sizes.sq);
    k_starts = draw_starts(draw, problem.sizes.b, problem.sizes.skv);
    problem.sizes.t_q = q_starts.back() + draw.below(3);
    problem.sizes.t_k = k_starts.back() + draw.below(3);
  }
  for (const ir::TensorDecl& tensor : problem.program.tensors()) {
    problem.want_tensors.push_back(ir::loaded_type(tensor.dtype) == ir::Type::F32);
  }
  problem.want_scalars.assign(problem.program.scalars().size(), true);
  Example example(problem);
  example.q_starts = q_starts;
  example.k_starts = k_starts;
  draw_lengths(example, draw);
  example.scale = 0.5f + 0.25f * static_cast<float>(draw.below(4));
  example.seed = seed * 0x123456789abcdefu;
  example.offset = seed;
  example.fill(seed);
  return example;
}

std::string describe(const Problem& problem) {
  std::ostringstream out;
  const Sizes& s = problem.sizes;
  out << "layout=" << static_cast<int>(problem.layout) << " b=" << s.b << " h=" << s.h
      << " hkv=" << s.hkv << " sq=" << s.sq << " skv=" << s.skv << " d=" << s.d << " dv=" << s.dv
      << " t_q=" << s.t_q << " t_k=" << s.t_k << " sink=" << problem.sink
      << " dropout=" << problem.dropout << " lengths=" << problem.has_q_lengths
      << problem.has_k_lengths << " offsets=" << problem.q_offset << problem.has_q_offsets
      << problem.has_k_offsets << ' ' << ir::print(problem.program);
  return out.str();
}

}  // namespace fovea::test
