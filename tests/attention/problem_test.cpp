// A Problem is a value: every field takes part in equality and in the hash. And which values are
// none.
#include "attention/problem.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "attention/engine.h"
#include "attention/extents.h"
#include "attention/problem_text.h"
#include "attention/validate.h"
#include "base/error.h"
#include "ir/program.h"

namespace fovea {
namespace {

struct Change {
  std::string name;
  std::function<void(Problem&)> apply;
};

// Sizeof is pinned, so that a new field cannot be forgotten in the list below.
static_assert(sizeof(Sizes) == 9 * 8 && sizeof(Strides) == 4 * 8);

std::vector<Change> size_changes() {
  const std::pair<const char*, std::int64_t Sizes::*> sizes[] = {
      {"b", &Sizes::b},   {"h", &Sizes::h},     {"hkv", &Sizes::hkv},
      {"sq", &Sizes::sq}, {"skv", &Sizes::skv}, {"d", &Sizes::d},
      {"dv", &Sizes::dv}, {"t_q", &Sizes::t_q}, {"t_k", &Sizes::t_k}};
  std::vector<Change> changes;
  for (const auto& [name, size] : sizes) {
    changes.push_back({name, [=](Problem& p) { ++(p.sizes.*size); }});
  }
  return changes;
}

std::vector<Change> tensor_changes() {
  std::vector<Change> changes;
  for (const NamedTensor& tensor : named_tensors()) {
    const auto spec = tensor.spec;
    const std::string name = tensor.name;
    changes.push_back({name + ".dtype", [=](Problem& p) { (p.*spec).dtype = DType::BF16; }});
    changes.push_back({name + ".strides absent", [=](Problem& p) { (p.*spec).strides.reset(); }});
    const std::pair<const char*, std::int64_t Strides::*> strides[] = {
        {".b", &Strides::b}, {".h", &Strides::h}, {".s", &Strides::s}, {".d", &Strides::d}};
    for (const auto& [suffix, stride] : strides) {
      changes.push_back(
          {name + suffix, [=](Problem& p) { ++((p.*spec).strides.value().*stride); }});
    }
  }
  return changes;
}

std::vector<Change> flag_changes() {
  const std::pair<const char*, bool Problem::*> flags[] = {
#define FOVEA_FLAG(field, config) {#field, &Problem::field},
#include "fovea/fields.def"
      {"want_q", &Problem::want_q},
      {"want_k", &Problem::want_k},
      {"want_v", &Problem::want_v},
      {"want_sink", &Problem::want_sink}};
  std::vector<Change> changes;
  for (const auto& [name, flag] : flags) {
    changes.push_back({name, [=](Problem& p) { p.*flag = !(p.*flag); }});
  }
  return changes;
}

std::vector<Change> other_changes() {
  return {{"direction", [](Problem& p) { p.direction = Direction::Backward; }},
          {"layout", [](Problem& p) { p.layout = Layout::Sbhd; }},
          {"program", [](Problem& p) { p.program = ir::parse_program("mask=causal"); }},
          {"scale", [](Problem& p) { p.scale = 0.5f; }},
          {"scale 0", [](Problem& p) { p.scale = 0.0f; }},
          {"dropout", [](Problem& p) { p.dropout = 0.5f; }},
          {"rng", [](Problem& p) { p.rng = Rng::Engine; }},
          {"want_tensors size", [](Problem& p) { p.want_tensors.push_back(false); }},
          {"want_tensors value", [](Problem& p) { p.want_tensors[1] = true; }},
          {"want_scalars size", [](Problem& p) { p.want_scalars.push_back(false); }},
          {"want_scalars value", [](Problem& p) { p.want_scalars[0] = false; }},
          {"tensor_strides size", [](Problem& p) { p.tensor_strides.pop_back(); }},
          {"tensor_strides value", [](Problem& p) { p.tensor_strides[0][1] = 9; }},
#define FOVEA_NUMBER(name) {#name, [](Problem& p) { p.name = 1; }},
#include "fovea/fields.def"
          {"precision", [](Problem& p) { p.precision = Precision::Strict; }}};
}

Problem start() {
  Problem p;
  for (const NamedTensor& tensor : named_tensors()) (p.*tensor.spec).strides = Strides{5, 6, 7, 8};
  p.want_tensors = {true, false};
  p.want_scalars = {true};
  p.tensor_strides = {{1, 64}, {2}};
  return p;
}

TEST(Problem, EveryFieldCountsInEqualityAndHash) {
  std::set<std::uint64_t> hashes{start().hash()};
  std::size_t changes = 0;
  for (const auto& list : {size_changes(), tensor_changes(), flag_changes(), other_changes()}) {
    for (const Change& change : list) {
      Problem changed = start();
      change.apply(changed);
      EXPECT_FALSE(changed == start()) << change.name;
      EXPECT_TRUE(hashes.insert(changed.hash()).second) << change.name;
      EXPECT_TRUE((Baked{changed} != Baked{start()})) << change.name;
      ++changes;
    }
  }
  EXPECT_EQ(changes, 9u + 8 * 6 + 16 + 20);
  EXPECT_TRUE(start() == start());
}

TEST(Problem, EqualProblemsHashAlike) {
  Problem plus, minus;
  plus.scale = 0.0f;
  minus.scale = -0.0f;
  minus.dropout = -0.0f;
  ASSERT_TRUE(plus == minus);
  EXPECT_EQ(plus.hash(), minus.hash());
}

// Rules that neither a line nor a config of the C interface can break; tests/error has the others.
TEST(Problem, WhatNoLineCanSayIsRefused) {
  const std::string line =
      R"~(h=4 sq=8 d=32 sink=1 mod="score*heat + bias[h]" scalar=heat tensor=bias:f16[H] )~"
      R"~(mask="doc[q] < n" tensor=doc:i32[Sq] scalar=n:i32 direction=)~";
  const std::vector<Change> forward{
      {"direction=7: is no such value",
       [](Problem& p) { p.direction = static_cast<Direction>(7); }},
      {"layout=4: is no such value", [](Problem& p) { p.layout = static_cast<Layout>(4); }},
      {"rng=2: is no such value", [](Problem& p) { p.rng = static_cast<Rng>(2); }},
      {"precision=9: is no such value",
       [](Problem& p) { p.precision = static_cast<Precision>(9); }},
      {"k_dtype=99: is no such value", [](Problem& p) { p.k.dtype = static_cast<DType>(99); }},
      {"k_dtype=bf16: q, k and v must have one type; q is f32",
       [](Problem& p) { p.k.dtype = DType::BF16; }},
      {"o_dtype=u8: must be f32, bf16, f16 or f64", [](Problem& p) { p.o.dtype = DType::U8; }},
      {"k_offset=3: offsets are bound per sequence (has_k_offsets); must be 0",
       [](Problem& p) { p.has_k_offsets = true, p.k_offset = 3; }},
      {"grads: only a backward has gradients to choose; this is a forward",
       [](Problem& p) { p.want_q = false; }},
      {"grads: only a backward has gradients to choose; this is a forward",
       [](Problem& p) { p.want_sink = true; }},
      {"grads: only a backward has gradients to choose; this is a forward",
       [](Problem& p) { p.want_tensors = {true}; }},
      {"do: a forward has no gradients: leave its type f32 and its strides absent",
       [](Problem& p) { p.grad_o.strides = Strides{}; }}};
  const std::vector<Change> backward{
      {"row_max=1: is an output of a forward; this is a backward",
       [](Problem& p) { p.row_max = true; }},
      {"max_logit=1: is an output of a forward; this is a backward",
       [](Problem& p) { p.max_logit = true; }},
      {"grads: has 0 flags for 2 captured tensors", [](Problem& p) { p.want_tensors.clear(); }},
      {"grads: has 3 flags for 2 captured scalars", [](Problem& p) { p.want_scalars.resize(3); }},
      {"grads=doc: is a tensor that is not float",
       [](Problem& p) { p.want_tensors = {true, true}; }},
      {"grads=n: is a scalar that is not float", [](Problem& p) { p.want_scalars = {true, true}; }},
      {"dq_dtype=bool: must be f32, bf16, f16 or f64",
       [](Problem& p) { p.grad_q.dtype = DType::Bool; }}};
  const auto expect_refused = [](const Problem& valid, const std::vector<Change>& changes) {
    for (const Change& change : changes) {
      Problem broken = valid;
      change.apply(broken);
      try {
        validate(broken);
        ADD_FAILURE() << "accepted, instead of: " << change.name;
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.what(), change.name);
      }
    }
  };
  expect_refused(*parse_problem_line(line + "forward").forward, forward);
  expect_refused(*parse_problem_line(line + "backward").backward, backward);
}

// Inputs may overlap themselves: a gradient that comes from a sum has zero strides. So may a
// gradient that is not wanted. The stride of a dimension of one element does not count.
TEST(Problem, StridesOfZeroAreValidWhereNothingIsWrittenTwice) {
  const std::string sizes = "h=4 sq=8 d=32 ";
  const std::string zero = "_strides=0,0,0,0 ";
  for (const std::string& words :
       {"direction=backward q" + zero + "k" + zero + "v" + zero + "o" + zero + "do" + zero,
        "direction=backward grads=q,v dk" + zero, std::string("o_strides=0,256,32,1")}) {
    EXPECT_NO_THROW(parse_problem_line(sizes + words)) << words;
  }
}

TEST(Problem, DenseStridesFollowTheLayout) {
  Problem p;
  p.sizes = {2, 3, 1, 5, 7, 11, 13, 0, 0};
  const auto dense = [&](Layout layout) {
    p.layout = layout;
    return strides_of(p, named_tensors()[0]);
  };
  EXPECT_TRUE((dense(Layout::Bhsd) == Strides{3 * 5 * 11, 5 * 11, 11, 1}));
  EXPECT_TRUE((dense(Layout::Bshd) == Strides{5 * 3 * 11, 11, 3 * 11, 1}));
  EXPECT_TRUE((dense(Layout::Sbhd) == Strides{3 * 11, 11, 2 * 3 * 11, 1}));
  EXPECT_TRUE((dense(Layout::Thd) == Strides{0, 11, 3 * 11, 1}));
}

TEST(Extents, OfCapturedTensorsFollowTheSizes) {
  const Sizes sizes{2, 6, 3, 5, 7, 11, 13, 0, 0};
  const ir::TensorDecl tensor = ir::parse_tensor("t:f32[B,H,Hkv,Sq,Skv,9]");
  EXPECT_EQ(captured_extents(tensor, sizes, 0), (std::vector<std::int64_t>{2, 6, 3, 5, 7, 9}));
  EXPECT_EQ(captured_extents(tensor, sizes, 24), (std::vector<std::int64_t>{2, 24, 3, 5, 7, 9}));
}

TEST(Extents, OfPackedTensorsAreRows) {
  const Sizes sizes{2, 6, 3, 5, 7, 11, 13, 100, 200};
  const auto& v = named_tensors()[2];
  EXPECT_EQ(extents_of(sizes, Layout::Thd, v), (std::array<std::int64_t, 4>{1, 3, 200, 13}));
  EXPECT_EQ(extents_of(sizes, Layout::Bhsd, v), (std::array<std::int64_t, 4>{2, 3, 7, 13}));
  EXPECT_EQ(row_count(sizes, Layout::Thd), 600);
  EXPECT_EQ(row_count(sizes, Layout::Sbhd), 60);
}

TEST(Reason, IsOneSentence) {
  EXPECT_EQ(
      describe({"head_dim_too_large", "head_dim <= 256 of cudnn on sm_90", "head_dim 320",
                "use engine jit, or split the head"}),
      "head_dim 320, but head_dim <= 256 of cudnn on sm_90: use engine jit, or split the head");
  EXPECT_EQ(describe({"no_gpu", "needs a GPU", "", ""}), "needs a GPU");
  EXPECT_EQ(describe({"no_gpu", "", "", "name a device"}), "no_gpu: name a device");
  EXPECT_EQ(describe({"dtype", "", "f64", ""}), "f64");
}

}  // namespace
}  // namespace fovea
