// The problem line: what it reads, and that printing reads back. What it refuses:
// tests/error/lines.txt.
#include "attention/problem_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "attention/problem.h"
#include "attention/validate.h"
#include "base/error.h"
#include "base/words.h"
#include "ir/expr.h"
#include "ir/print.h"
#include "ir/program.h"
#include "tests/ir/random.h"

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

// Valid, with every feature switched on now and then.
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

namespace fovea {
namespace {

Problem forward_of(const std::string& line) {
  const ProblemLine parsed = parse_problem_line(line);
  EXPECT_TRUE(parsed.forward) << line;
  return parsed.forward.value_or(Problem{});
}

Problem backward_of(const std::string& line) {
  const ProblemLine parsed = parse_problem_line(line);
  EXPECT_TRUE(parsed.backward) << line;
  return parsed.backward.value_or(Problem{});
}

TEST(ProblemLine, RandomProblemsReadBackEqual) {
  const std::uint64_t seed = test::printed_seed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    const Problem problem = test::random_problem(random);
    ASSERT_NO_THROW(validate(problem)) << print(problem);
    const std::string line = print(problem);
    ProblemLine parsed;
    ASSERT_NO_THROW(parsed = parse_problem_line(line)) << line;
    const bool is_forward = problem.direction == Direction::Forward;
    ASSERT_EQ(parsed.forward.has_value(), is_forward) << line;
    ASSERT_EQ(parsed.backward.has_value(), !is_forward) << line;
    const Problem& back = is_forward ? *parsed.forward : *parsed.backward;
    ASSERT_TRUE(back == problem) << line << "\n" << print(back) << "\nseed " << seed;
    ASSERT_EQ(back.hash(), problem.hash()) << line;
    ASSERT_EQ(print(back), line);
  }
}

// The same words in any order are the same problem.
TEST(ProblemLine, OrderDoesNotCount) {
  const std::uint64_t seed = test::printed_seed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 500; ++i) {
    const std::string line = print(test::random_problem(random));
    std::vector<Word> words = split_words(line);
    std::ranges::shuffle(words, random);
    std::string shuffled;
    for (const Word& word : words) shuffled += join_word(word.key, word.value) + " ";
    const ProblemLine a = parse_problem_line(line), b = parse_problem_line(shuffled);
    EXPECT_TRUE(a.forward == b.forward && a.backward == b.backward) << line << "\n" << shuffled;
  }
}

constexpr const char* pieces[] = {"=",     "\"",       "[",           "]",
                                  ",",     "(",        ")",           "-1",
                                  "0",     "1e400",    "nan",         "inf",
                                  "bound", "score",    "let ",        ";",
                                  "?",     " mod=",    " mask=",      " b=",
                                  " sq=",  " tensor=", " scalar=",    "f32[H]",
                                  "\\",    "\t",       "\x80",        "f32(",
                                  "i32(",  "//",       "&&",          "!",
                                  ":",     "tanh",     "1.5e-3",      "%",
                                  "||",    "k",        "4294967296",  "9223372036854775807",
                                  " q_",   "_dtype",   " layout=thd", " direction=both"};

std::string mutated(std::string line, test::Random& random) {
  const auto below = [&](std::size_t n) { return random.below(static_cast<std::uint32_t>(n)); };
  for (std::uint32_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(line.size() + 1), length = below(12);
    switch (below(5)) {
      case 0: line.erase(at, length); break;
      case 1: line.insert(at, random.pick(pieces)); break;
      case 2: line.insert(at, line.substr(below(line.size() + 1), length)); break;
      case 3: line.replace(at, length, random.pick(pieces)); break;
      case 4: line.insert(at, 1, static_cast<char>(below(256))); break;
    }
  }
  return line;
}

std::string random_bytes(test::Random& random) {
  // Half of them from the alphabet of lines: those get further.
  constexpr std::string_view alphabet = "bhqkdmoszlstancre=\"()[]+-*/%<>&|!?:;., 0123456789";
  const bool printable = random.chance(50);
  std::string text(random.below(64), ' ');
  for (char& c : text) {
    c = static_cast<char>(printable ? alphabet[random.below(alphabet.size())] : random.below(256));
  }
  return text;
}

// Whatever one changes in a line, it is refused with a text, or reads back as what it was read as.
// No formula is left behind.
TEST(ProblemLine, MutatedLinesAndBytesAreReadOrRefused) {
  const std::uint64_t seed = test::test_seed(), count = test::cases(100000);
  const std::size_t nodes = ir::live_nodes();
  std::mt19937_64 source(seed);
  std::uint64_t refused = 0, read = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    test::Random random(seed, i);
    const std::string line = random.chance(25)
                                 ? random_bytes(random)
                                 : mutated(print(test::random_problem(source)) + " seed=7", random);
    try {
      const ProblemLine parsed = parse_problem_line(line);
      for (const auto& problem : {parsed.forward, parsed.backward}) {
        if (!problem) continue;
        const ProblemLine again = parse_problem_line(print(*problem));
        ASSERT_TRUE((again.forward ? *again.forward : *again.backward) == *problem)
            << line << test::seed_text(seed, i);
      }
      ++read;
    } catch (const InvalidArgument& error) {
      ASSERT_STRNE(error.what(), "") << line;
      ++refused;
    }
  }
  EXPECT_EQ(ir::live_nodes(), nodes);
  EXPECT_GT(read, count / 100);
  EXPECT_GT(refused, count / 4);
}

TEST(ProblemLine, DefaultsAreWhatTheHeaderSays) {
  const Problem p = forward_of("");
  EXPECT_TRUE((p.sizes == Sizes{1, 1, 1, 128, 128, 64, 64, 0, 0}));
  EXPECT_EQ(p.q.dtype, DType::F32);
  EXPECT_EQ(p.layout, Layout::Bhsd);
  EXPECT_FALSE(p.lse);
  EXPECT_EQ(print(p), "");
  EXPECT_TRUE((forward_of("h=8 sq=32 d=16").sizes == Sizes{1, 8, 8, 32, 32, 16, 16, 0, 0}));
}

TEST(ProblemLine, DesignsExample) {
  const ProblemLine line = parse_problem_line(
      "b=2 h=8 hkv=2 sq=1024 skv=1024 d=64 dv=64 dtype=bf16 layout=bshd scale=0.125 direction=both "
      R"~(mod="softcap*tanh(score/softcap) + slopes[h]*(k-q)" mask="q>=k" scalar="softcap=30" )~"
      R"~(tensor="slopes:f32[H]" grads="q,k,v,slopes,softcap" dropout=0.1 rng=portable sink=1 )~"
      "qlens=100,1024 klens=100,1024 q_offset=0 k_offset=0 deterministic=1 capture=0 lse=1 "
      "row_max=1 max_logit=1 o_dtype=f32 grad_dtype=f32 seed=1 offset=0 b_offset=0 h_offset=0 "
      "h_global=8");
  ASSERT_TRUE(line.forward && line.backward);
  EXPECT_TRUE(line.forward->program == line.backward->program);
  EXPECT_TRUE(line.forward->lse && line.forward->row_max && line.forward->max_logit);
  EXPECT_FALSE(line.backward->lse);
  EXPECT_EQ(line.backward->grad_q.dtype, DType::F32);
  EXPECT_EQ(line.backward->grad_o.dtype, DType::BF16);
  EXPECT_EQ(line.backward->want_tensors, std::vector<bool>{true});
  EXPECT_EQ(line.backward->want_scalars, std::vector<bool>{true});
  EXPECT_FALSE(line.backward->want_sink);
  EXPECT_EQ(line.values.q_lengths, (std::vector<std::int32_t>{100, 1024}));
  EXPECT_EQ(print(*line.backward),
            "direction=backward b=2 h=8 hkv=2 sq=1024 qlens=bound klens=bound dtype=bf16 "
            "layout=bshd " +
                ir::print(line.backward->program) +
                " scale=0.125 sink=1 dropout=0.1 grads=q,k,v,slopes,softcap h_global=8 "
                "o_dtype=f32 grad_dtype=f32 deterministic=1");
}

TEST(ProblemLine, BothGivesAForwardWithLse) {
  const ProblemLine line = parse_problem_line("direction=both dlse=1");
  EXPECT_TRUE(line.forward->lse);
  EXPECT_FALSE(line.forward->grad_lse);
  EXPECT_TRUE(line.backward->grad_lse);
}

TEST(ProblemLine, NumbersOfF64TensorsAreDoubles) {
  const std::string line =
      "sq=8 d=11 dtype=f64 mod=\"score * 0.1 + x * 0.3333333333333333\" scalar=x:f32=0.7 "
      "scale=0.30151134457776363";
  const Problem problem = forward_of(line);
  EXPECT_EQ(print(problem), line);
  EXPECT_EQ(problem.scale, 0.30151134457776363);
  EXPECT_EQ(forward_of("scale=0.1").scale, static_cast<double>(0.1f));
}

TEST(ProblemLine, PackedSizesComeFromTheStarts) {
  const ProblemLine line = parse_problem_line("layout=thd cu_q=0,100,612 cu_k=0,7,7 h=2");
  const Sizes& s = line.forward->sizes;
  EXPECT_TRUE((s == Sizes{2, 2, 2, 512, 7, 64, 64, 612, 7}));
  EXPECT_EQ(line.values.q_starts, (std::vector<std::int32_t>{0, 100, 612}));
  const Problem bound = forward_of("layout=thd cu_q=bound cu_k=bound tq=612 tk=7 b=2 sq=512 skv=7");
  EXPECT_TRUE(bound == forward_of("layout=thd cu_q=0,100,612 cu_k=0,7,7"));
  EXPECT_EQ(forward_of("layout=thd cu_q=0,100,612 cu_k=0,7,7 tq=1000 sq=600").sizes.t_q, 1000);
}

TEST(ProblemLine, ValuesToBindAreKeptBesideTheProblem) {
  const ProblemLine line = parse_problem_line(
      "q_offset=5,6,7 k_offset=bound klens=0,1,2 seed=18446744073709551615 "
      "offset=4294967295");
  EXPECT_EQ(line.forward->sizes.b, 3);
  EXPECT_TRUE(line.forward->has_q_offsets && line.forward->has_k_offsets);
  EXPECT_TRUE(line.forward->has_k_lengths && !line.forward->has_q_lengths);
  EXPECT_EQ(line.values.q_offsets, (std::vector<std::int32_t>{5, 6, 7}));
  EXPECT_TRUE(line.values.k_offsets.empty());
  EXPECT_EQ(line.values.seed, 18446744073709551615u);
  EXPECT_EQ(line.values.offset, 4294967295u);
  EXPECT_EQ(forward_of("q_offset=5").q_offset, 5);
}

TEST(ProblemLine, GradsNameCapturedFloats) {
  const std::string program =
      R"~(direction=backward mod="score*heat + bias[h]" scalar=heat tensor=bias:f16[H] )~";
  const Problem p = backward_of(program + "grads=heat,bias,sink sink=1");
  EXPECT_FALSE(p.want_q || p.want_k || p.want_v);
  EXPECT_TRUE(p.want_sink && p.want_tensors[0] && p.want_scalars[0]);
  EXPECT_EQ(backward_of(program).want_tensors, std::vector<bool>{false});
}

}  // namespace
}  // namespace fovea
