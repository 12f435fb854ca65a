// Every rule of Bindings, each with its text.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/attention/bound_call.h"

namespace fovea {
namespace {

using test::BoundCall;

const std::string forward = "b=2 h=4 hkv=2 sq=8 skv=16 d=32 lse=1 row_max=1 max_logit=1 sink=1";
const std::string backward =
    "direction=backward b=2 h=4 hkv=2 sq=8 skv=16 d=32 sink=1 dlse=1 "
    R"~(mod="score*heat + bias[h, q]" scalar=heat tensor=bias:f16[H,Sq] )~"
    R"~(mask="doc[k] < n" tensor=doc:i32[Skv] scalar=n:i32 grads=q,k,v,bias,heat,sink)~";
const std::string packed =
    "layout=thd cu_q=0,5,8 cu_k=0,7,16 tq=10 tk=16 h=4 d=32 qlens=4,3 klens=7,8 q_offset=1,2";

struct Rule {
  std::string text;
  std::function<void(BoundCall&)> breaks;
};

void expect_rules(const std::string& line, const std::vector<Rule>& rules) {
  ASSERT_EQ(BoundCall(line).outcome(), "accepted") << line;
  ASSERT_EQ(BoundCall(line).outcome(true), "accepted") << line;
  for (const Rule& rule : rules) {
    BoundCall call(line);
    rule.breaks(call);
    EXPECT_EQ(call.outcome(), rule.text);
  }
}

void* shifted(void* data, std::ptrdiff_t bytes) { return static_cast<std::byte*>(data) + bytes; }

TEST(ValidateBindings, Pointers) {
  expect_rules(
      forward,
      {{"q: must not be null", [](BoundCall& c) { c.bindings.q.data = nullptr; }},
       {"k: must not be null", [](BoundCall& c) { c.bindings.k.data = nullptr; }},
       {"v: must not be null", [](BoundCall& c) { c.bindings.v.data = nullptr; }},
       {"o: must not be null", [](BoundCall& c) { c.bindings.o.data = nullptr; }},
       {"lse: must not be null", [](BoundCall& c) { c.bindings.lse = nullptr; }},
       {"row_max: must not be null", [](BoundCall& c) { c.bindings.row_max = nullptr; }},
       {"max_logit: must not be null", [](BoundCall& c) { c.bindings.max_logit = nullptr; }},
       {"sink: must not be null", [](BoundCall& c) { c.bindings.sink = nullptr; }},
       {"workspace: must not be null", [](BoundCall& c) { c.bindings.workspace = nullptr; }},
       {"workspace_bytes=127: these sizes need 128",
        [](BoundCall& c) { c.bindings.workspace_bytes = 127; }}});
  expect_rules(backward,
               {{"grad_o: must not be null", [](auto& c) { c.bindings.grad_o.data = nullptr; }},
                {"grad_q: must not be null", [](auto& c) { c.bindings.grad_q.data = nullptr; }},
                {"lse: must not be null", [](auto& c) { c.bindings.lse = nullptr; }}});
}

// The address is part of these texts; what stands behind it is the rule.
TEST(ValidateBindings, AlignmentAndWhatIsNotWanted) {
  const auto ends = [](BoundCall call, const std::string& name, const std::string& rule) {
    const std::string text = call.outcome();
    EXPECT_TRUE(text.starts_with(name + "=0x") && text.ends_with(": " + rule)) << text;
  };
  const auto broken = [](const std::string& line, const std::function<void(BoundCall&)>& breaks) {
    BoundCall call(line);
    breaks(call);
    return call;
  };
  const std::string none = "is bound, but this problem has none";
  ends(broken(forward, [](auto& c) { c.bindings.q.data = shifted(c.bindings.q.data, 2); }), "q",
       "must be aligned to 4 bytes");
  ends(broken(forward, [](auto& c) { c.bindings.lse = shifted(c.bindings.lse, 1); }), "lse",
       "must be aligned to 4 bytes");
  ends(broken(forward, [](auto& c) { c.bindings.workspace = shifted(c.bindings.workspace, 32); }),
       "workspace", "must be aligned to 64 bytes");
  ends(broken(forward, [](auto& c) { c.bindings.grad_q.data = c.bindings.q.data; }), "grad_q",
       none);
  ends(broken(forward, [](auto& c) { c.bindings.grad_lse = c.bindings.q.data; }), "grad_lse", none);
  ends(broken(backward, [](auto& c) { c.bindings.row_max = c.bindings.q.data; }), "row_max", none);
  ends(broken("direction=backward sq=8 grads=q",
              [](auto& c) { c.bindings.grad_v = c.bindings.grad_q; }),
       "grad_v", none);
  ends(broken("sq=8", [](auto& c) { c.bindings.sink = c.bindings.q.data; }), "sink", none);
  static const std::int32_t lengths[] = {1, 2, 3};
  ends(broken(forward, [](auto& c) { c.bindings.q_lengths = lengths; }), "q_lengths", none);
  ends(broken(forward, [](auto& c) { c.bindings.k_starts = lengths; }), "k_starts", none);
  ends(broken(forward, [](auto& c) { c.bindings.q_offsets = lengths; }), "q_offsets", none);
}

TEST(ValidateBindings, SizesAndStrides) {
  expect_rules(
      forward,
      {{"sq=-1: must be 0 or more", [](BoundCall& c) { c.bindings.sizes.sq = -1; }},
       {"h=3: must be a multiple of hkv=2", [](BoundCall& c) { c.bindings.sizes.h = 3; }},
       {"q.strides=1024,256,32,-1: strides must be 0 or more",
        [](BoundCall& c) { c.bindings.q.strides.d = -1; }},
       {"o.strides=1024,256,0,1: elements of an output must not overlap (extents 2,4,8,32)",
        [](BoundCall& c) { c.bindings.o.strides.s = 0; }},
       {"o.strides=1024,256,32,1: elements of an output must not overlap (extents 2,4,9,32)",
        [](BoundCall& c) { c.bindings.sizes.sq = 9; }}});
  expect_rules(packed, {{"k.strides=1,32,128,1: the batch stride must be 0 under layout=thd",
                         [](BoundCall& c) { c.bindings.k.strides.b = 1; }}});
}

TEST(ValidateBindings, Values) {
  expect_rules(
      forward,
      {{"scale=nan: must be finite", [](BoundCall& c) { c.bindings.scale.value = NAN; }},
       {"dropout=0.5: the problem has no dropout to vary",
        [](BoundCall& c) { c.bindings.dropout.value = 0.5f; }},
       {"offset=4294967296: must be below 2^32",
        [](BoundCall& c) { c.bindings.offset.value = std::uint64_t{1} << 32; }},
       {"q_offset=-1: must be 0 or more", [](BoundCall& c) { c.bindings.q_offset.value = -1; }},
       {"k_offset=2147483640: positions must stay below 2^31 (skv=16)",
        [](BoundCall& c) { c.bindings.k_offset.value = 2147483640; }},
       {"h_global=2: must be at least h_offset + h = 4",
        [](BoundCall& c) { c.bindings.h_global = 2; }}});
  expect_rules(forward + " dropout=0.1", {{"dropout=1: must be at least 0 and less than 1",
                                           [](BoundCall& c) { c.bindings.dropout.value = 1; }}});
}

TEST(ValidateBindings, Sequences) {
  expect_rules(
      packed,
      {{"q_lengths: must not be null", [](BoundCall& c) { c.bindings.q_lengths = nullptr; }},
       {"k_lengths: must not be null", [](BoundCall& c) { c.bindings.k_lengths = nullptr; }},
       {"q_starts: must not be null", [](BoundCall& c) { c.bindings.q_starts = nullptr; }},
       {"k_starts: must not be null", [](BoundCall& c) { c.bindings.k_starts = nullptr; }},
       {"q_offsets: must not be null", [](BoundCall& c) { c.bindings.q_offsets = nullptr; }},
       {"q_starts[0]=1: the first start must be 0", [](BoundCall& c) { c.values.q_starts[0] = 1; }},
       {"q_starts[2]=4: starts must not fall (5 before it)",
        [](BoundCall& c) { c.values.q_starts[2] = 4; }},
       {"q_starts[2]=11: the last start must be at most t_q=10",
        [](BoundCall& c) { c.values.q_starts[2] = 11; }},
       {"q_lengths[0]=6: must lie in 0..sq=5", [](BoundCall& c) { c.values.q_lengths[0] = 6; }},
       {"q_lengths[1]=4: is more than the 3 rows between its starts",
        [](BoundCall& c) { c.values.q_lengths[1] = 4; }},
       {"k_lengths[1]=-1: must lie in 0..skv=9", [](BoundCall& c) { c.values.k_lengths[1] = -1; }},
       {"q_offsets[1]=-2: must be 0 or more", [](BoundCall& c) { c.values.q_offsets[1] = -2; }}});
}

TEST(ValidateBindings, Captured) {
  expect_rules(
      backward,
      {{"tensors: has 1 entries, the program has 2 captured tensors",
        [](BoundCall& c) { c.tensors.pop_back(); }},
       {"scalars: has 0 entries, the program has 2 scalars",
        [](BoundCall& c) { c.scalars.clear(); }},
       {"tensor_gradients: has 1 entries, the program has 2 captured tensors",
        [](BoundCall& c) { c.tensor_gradients.pop_back(); }},
       {"scalar_gradients: has 3 entries, the program has 2 scalars",
        [](BoundCall& c) { c.scalar_gradients.push_back(nullptr); }},
       {"tensor bias: must not be null", [](BoundCall& c) { c.tensors[0].data = nullptr; }},
       {"tensor bias=f32: is declared as f16",
        [](BoundCall& c) { c.tensors[0].dtype = DType::F32; }},
       {"tensor bias=[4]: must have the declared extents [4,8]",
        [](BoundCall& c) { c.tensors[0].rank = 1; }},
       {"tensor bias=[4,9]: must have the declared extents [4,8]",
        [](BoundCall& c) { c.tensors[0].extent[1] = 9; }},
       {"tensor bias=[]: must have the declared extents [4,8]",
        [](BoundCall& c) { c.tensors[0].rank = -7; }},
       {"tensor bias=-8,1: strides must be 0 or more",
        [](BoundCall& c) { c.tensors[0].stride[0] = -8; }},
       {"gradient of tensor bias: must not be null",
        [](BoundCall& c) { c.tensor_gradients[0].data = nullptr; }},
       {"gradient of tensor bias: must not be null",
        [](BoundCall& c) { c.tensor_gradients.clear(); }},
       {"gradient of tensor bias=i32: must be f32, f16, bf16 or f64",
        [](BoundCall& c) { c.tensor_gradients[0].dtype = DType::I32; }},
       {"gradient of tensor bias=[0,1]: elements of an output must not overlap (extents [4,8])",
        [](BoundCall& c) { c.tensor_gradients[0].stride[0] = 0; }},
       {"gradient of tensor doc: is bound, but grads does not name it",
        [](BoundCall& c) { c.tensor_gradients[1].data = c.tensor_gradients[0].data; }},
       {"gradient of scalar heat: must not be null",
        [](BoundCall& c) { c.scalar_gradients[0] = nullptr; }},
       {"grad_sink: must not be null", [](BoundCall& c) { c.bindings.grad_sink = nullptr; }},
       {"grad_lse: must not be null", [](BoundCall& c) { c.bindings.grad_lse = nullptr; }}});
}

// If an index is exactly q or k, clamping would read another position's value in silence.
TEST(ValidateBindings, PositionsMustLieInsideWhatTheyIndex) {
  expect_rules(backward,
               {{"tensor bias: extent 8 of index 1, which is q, must cover offset + length = 11",
                 [](BoundCall& c) { c.bindings.q_offset.value = 3; }},
                {"tensor doc: extent 16 of index 0, which is k, must cover offset + length = 17",
                 [](BoundCall& c) { c.bindings.k_offset.value = 1; }}});
  const std::string table = R"~( mod="score + t[q]" tensor=t:f32[20])~";
  EXPECT_EQ(BoundCall("sq=16 q_offset=4" + table).outcome(), "accepted");
  EXPECT_EQ(BoundCall("sq=16 q_offset=5" + table).outcome(),
            "tensor t: extent 20 of index 0, which is q, must cover offset + length = 21");
  EXPECT_EQ(BoundCall("sq=64 qlens=20,3" + table).outcome(), "accepted");
  EXPECT_EQ(BoundCall("sq=64 qlens=3,21" + table).outcome(),
            "tensor t: extent 20 of index 0, which is q, must cover offset + length = 21");
  EXPECT_EQ(BoundCall("sq=64 qlens=3,21" + table).outcome(true), "accepted");  // not known here
  EXPECT_EQ(BoundCall("sq=16 q_offset=4,9 qlens=16,0" + table).outcome(), "accepted");
  EXPECT_EQ(BoundCall("sq=64"
                      R"~( mod="score + t[q % 20]" tensor=t:f32[20])~")
                .outcome(),
            "accepted");
}

TEST(ValidateBindings, OutputsShareMemoryWithNothing) {
  expect_rules(
      backward,
      {{"grad_q: is written, but shares memory with q",
        [](BoundCall& c) { c.bindings.grad_q.data = c.bindings.q.data; }},
       {"grad_k: is written, but shares memory with grad_v",
        [](BoundCall& c) { c.bindings.grad_v.data = shifted(c.bindings.grad_k.data, 4); }},
       {"grad_sink: is written, but shares memory with sink",
        [](BoundCall& c) { c.bindings.grad_sink = const_cast<void*>(c.bindings.sink); }},
       {"gradient of tensor bias: is written, but shares memory with tensor bias",
        [](BoundCall& c) { c.tensor_gradients[0].data = const_cast<void*>(c.tensors[0].data); }},
       {"gradient of scalar heat: is written, but shares memory with lse",
        [](BoundCall& c) { c.scalar_gradients[0] = shifted(c.bindings.lse, 8); }},
       {"workspace: is written, but shares memory with grad_o",
        [](BoundCall& c) { c.bindings.workspace = c.bindings.grad_o.data; }}});
}

TEST(ValidateBindings, InputsMayShareMemory) {
  BoundCall call("b=2 h=4 sq=8 d=32");
  call.bindings.k = call.bindings.v = call.bindings.q;
  EXPECT_EQ(call.outcome(), "accepted");
}

TEST(ValidateBindings, ZeroSizesNeedNoPointers) {
  BoundCall call("b=0 h=4 sq=8 d=32 lse=1");
  call.bindings.q.data = call.bindings.k.data = call.bindings.v.data = nullptr;
  call.bindings.o.data = call.bindings.lse = nullptr;
  call.workspace_bytes = 0;
  call.bindings.workspace = nullptr;
  EXPECT_EQ(call.outcome(), "accepted");
}

// Sizes that were not baked may differ from the Problem's; the rules are then those of the call.
TEST(ValidateBindings, SmallerBatchesAreValid) {
  BoundCall call(forward);
  call.bindings.sizes.b = 1;
  EXPECT_EQ(call.outcome(), "accepted");
}

TEST(ValidateBindings, DeviceMemoryIsNotReadBehind) {
  BoundCall call(packed);
  const auto* const nowhere = reinterpret_cast<const std::int32_t*>(std::uintptr_t{64});
  call.bindings.q_lengths = call.bindings.k_lengths = call.bindings.q_starts = nowhere;
  EXPECT_EQ(call.outcome(true), "accepted");
}

}  // namespace
}  // namespace fovea
