#include "tests/attention/random_problem.h"

#include <array>
#include <cmath>
#include <cstring>

#include "ir/parse.h"

namespace fovea::test {
namespace {

const std::array<const char*, 10> programs{
    "",
    "mask=causal",
    "mod=softcap(30)",
    R"~(mod="score + slopes[h] * (k - q)" tensor=slopes:f32[H])~",
    R"~(mod="cap * tanh(score / cap)" scalar=cap=30)~",
    R"~(mask="doc[b, q] == doc[b, k]" tensor="doc:i32[B,Sq]=docs(5)")~",
    R"~(mod="score + bias[h, q, k]" tensor=bias:bf16[H,Sq,Skv] scalar=unused:i32=3 mask="k < n" scalar=n:i32)~",
    R"~(mod="score * 2" bprop="grad * 2" mask="alive[k]" tensor=alive:bool[Skv])~",
    R"~(mod="let t = score * heat + zero[]; t * t" scalar=heat tensor=zero:f32[] tensor="w:f16[7, 9]")~",
    R"~(mod="a * score + c * table[clamp(k - q, 0, 15)]" scalar=a=0.1 scalar=c=-inf tensor=table:f32[16])~"};

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }
  bool once_in(int n) { return below(n) == 0; }
  std::int64_t size() {
    constexpr std::array<std::int64_t, 9> usual{0, 1, 7, 63, 64, 65, 128, 777, 4096};
    return once_in(3) ? below(5000) : usual[static_cast<std::size_t>(below(usual.size()))];
  }
  float real() {
    return std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random_),
                      static_cast<int>(below(40)) - 20);
  }
  DType half_or_single() {
    constexpr std::array<DType, 3> types{DType::F32, DType::F16, DType::BF16};
    return types[static_cast<std::size_t>(below(3))];
  }

 private:
  std::mt19937_64& random_;
};

Sizes random_sizes(Draw& draw, Layout layout) {
  Sizes s;
  s.b = draw.below(5);
  s.hkv = draw.below(4);
  s.h = s.hkv * draw.below(4);
  s.sq = draw.size();
  s.skv = draw.once_in(2) ? s.sq : draw.size();
  s.d = draw.once_in(2) ? 64 : draw.below(300);
  s.dv = draw.once_in(2) ? s.d : draw.below(300);
  if (layout == Layout::Thd) {
    s.t_q = draw.below(10000);
    s.t_k = draw.below(10000);
  }
  return s;
}

// Dense in another order of dimensions, or padded: never overlapping.
Strides random_strides(Draw& draw, const Problem& p, const NamedTensor& tensor) {
  const std::int64_t pad = 1 + draw.below(3);
  const std::int64_t features = (features_of(p.sizes, tensor) + 1) * pad;
  const std::int64_t heads = heads_of(p.sizes, tensor) + 1;
  const std::int64_t length =
      (tensor.of_keys ? p.sizes.t_k : p.sizes.t_q) + 1 + length_of(p.sizes, tensor);
  const bool heads_outside = draw.once_in(2);
  Strides s{heads * length * features, heads_outside ? length * features : features,
            heads_outside ? features : heads * features, 1};
  if (p.layout == Layout::Thd) s.b = 0;
  return s;
}

void draw_tensors(Draw& draw, Problem& p) {
  const bool f64 = draw.once_in(8);
  const DType own = f64 ? DType::F64 : draw.half_or_single();
  for (const NamedTensor& tensor : named_tensors()) {
    const bool gradient = tensor.name[0] == 'd';
    if (gradient && p.direction == Direction::Forward) continue;
    TensorSpec& spec = p.*tensor.spec;
    const bool input = std::strlen(tensor.name) == 1 && tensor.name[0] != 'o';
    spec.dtype = f64 || input || draw.once_in(2) ? own : draw.half_or_single();
    if (draw.once_in(3)) spec.strides = random_strides(draw, p, tensor);
  }
  if (p.direction == Direction::Backward && draw.once_in(4)) {
    p.grad_o.strides = Strides{};  // of a sum: all zero
  }
}

void draw_gradients(Draw& draw, Problem& p) {
  p.want_q = draw.once_in(2);
  p.want_k = draw.once_in(2);
  p.want_v = true;
  p.want_sink = p.sink && draw.once_in(2);
  for (const ir::TensorDecl& tensor : p.program.tensors()) {
    p.want_tensors.push_back(ir::loaded_type(tensor.dtype) == ir::Type::F32 && draw.once_in(2));
  }
  for (const ir::ScalarDecl& scalar : p.program.scalars()) {
    p.want_scalars.push_back(scalar.type == ir::Type::F32 && draw.once_in(2));
  }
  p.grad_lse = draw.once_in(3);
}

// Of any one of the captured tensors.
void draw_tensor_strides(Draw& draw, Problem& p) {
  const auto& tensors = p.program.tensors();
  if (tensors.empty() || !draw.once_in(2)) return;
  p.tensor_strides.resize(tensors.size());
  const auto slot = static_cast<std::size_t>(draw.below(static_cast<int>(tensors.size())));
  for (std::size_t i = 0; i < tensors[slot].extents.size(); ++i) {
    p.tensor_strides[slot].push_back(draw.below(5000) - 100);
  }
  if (p.tensor_strides[slot].empty()) p.tensor_strides.clear();  // of rank 0
}

void draw_offsets(Draw& draw, Problem& p) {
  p.has_q_offsets = draw.once_in(5);
  p.has_k_offsets = draw.once_in(5);
  if (!p.has_q_offsets && draw.once_in(3)) p.q_offset = static_cast<std::int32_t>(draw.size());
  if (!p.has_k_offsets && draw.once_in(3)) p.k_offset = static_cast<std::int32_t>(draw.size());
  if (draw.once_in(4)) p.b_offset = static_cast<std::int32_t>(draw.below(100));
  if (draw.once_in(4)) p.h_offset = static_cast<std::int32_t>(draw.below(100));
  if (draw.once_in(4)) {
    p.h_global = static_cast<std::int32_t>(p.sizes.h) + p.h_offset +
                 static_cast<std::int32_t>(draw.below(9));
  }
}

}  // namespace

Problem random_problem(std::mt19937_64& random) {
  Draw draw(random);
  Problem p;
  p.direction = draw.once_in(2) ? Direction::Forward : Direction::Backward;
  p.layout = static_cast<Layout>(draw.below(4));
  p.sizes = random_sizes(draw, p.layout);
  p.program = ir::parse_program(programs[static_cast<std::size_t>(draw.below(programs.size()))]);
  p.sink = draw.once_in(3);
  draw_tensors(draw, p);
  if (draw.once_in(2)) p.scale = draw.real();
  p.has_q_lengths = draw.once_in(3);
  p.has_k_lengths = draw.once_in(3);
  if (draw.once_in(3)) p.dropout = std::fabs(std::fmod(draw.real(), 1.0f));
  if (draw.once_in(4)) p.rng = Rng::Engine;
  if (p.direction == Direction::Forward) {
#define FOVEA_OUTPUT(name, extent, saved) p.name = draw.once_in(saved ? 2 : 3);
#include "fovea/fields.def"
  } else {
    draw_gradients(draw, p);
  }
  draw_offsets(draw, p);
  draw_tensor_strides(draw, p);
  p.device_values = draw.once_in(4);
  p.deterministic = draw.once_in(3);
  p.capture = draw.once_in(3);
  if (draw.once_in(3)) p.precision = Precision::Strict;
  return p;
}

}  // namespace fovea::test
