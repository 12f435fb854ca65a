// Packed sequences in engine cudnn: which tables a graph wants, and what the kernels make of the
// starts and lengths of a call. Their arithmetic runs here on the host, from the header that the
// GPU's code is compiled from.
#include "engines/cudnn/packed.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <random>

#include "attention/bindings.h"
#include "attention/problem_text.h"
#include "engines/cudnn/judge.h"
#include "engines/cudnn/lower.h"

namespace fovea::cudnn {
namespace {

const std::string head = "h=4 hkv=2 d=64 dv=32 dtype=bf16 layout=thd cu_q=0,100,180 cu_k=0,90,300 ";

Problem baked(const std::string& words) {
  const ProblemLine parsed = parse_problem_line(words);
  return bake(parsed.backward ? *parsed.backward : *parsed.forward).baked.problem;
}

GraphSpec spec_of(const std::string& words) {
  const Problem problem = baked(words);
  return lower(problem, batches(problem).front()).spec;
}

TEST(PackedGraph, HasATableForEachStride) {
  const GraphSpec spec = spec_of(head + "lse=1");
  EXPECT_EQ(spec.starts, (std::vector<PackedStarts>{{false, 4 * 64},  // q
                                                    {true, 2 * 64},   // k
                                                    {true, 2 * 32},   // v
                                                    {false, 4 * 32},  // o
                                                    {false, 4}}));    // lse, as [T, H]
  const GraphTensor& q = *spec.find(TensorRole::Q);
  EXPECT_EQ(q.dim, (Dims{2, 4, 100, 64}));
  EXPECT_EQ(q.stride, (Dims{100 * 4 * 64, 64, 4 * 64, 1}));
  EXPECT_EQ(q.starts, 0u);
  EXPECT_EQ(spec.find(TensorRole::Stats)->stride, (Dims{400, 1, 4, 1}));
  EXPECT_TRUE(spec.padding);
  const std::string text = to_text(spec);
  EXPECT_NE(text.find("starts of queries times 256\n"), std::string::npos) << text;
  EXPECT_NE(text.find("starts of keys times 64\n"), std::string::npos) << text;
}

TEST(PackedGraph, SharesTablesAndPutsThemFirst) {
  const GraphSpec spec = spec_of(head + "direction=backward q_strides=0,64,768,1");
  EXPECT_EQ(spec.starts.size(), 6u);  // q alone has rows of 768; dq is dense
  std::vector<bool> there(spec.starts.size());
  for (const GraphTensor& tensor : spec.tensors) {
    if (tensor.role == TensorRole::Starts) there[tensor.slot] = true;
    if (!tensor.starts) continue;
    EXPECT_TRUE(there[*tensor.starts]) << "its table is not known yet";
  }
  EXPECT_EQ(spec.find(TensorRole::O)->starts, spec.find(TensorRole::GradO)->starts);
  EXPECT_EQ(spec.find(TensorRole::K)->starts, spec.find(TensorRole::GradK)->starts);
  EXPECT_NE(spec.find(TensorRole::Q)->starts, spec.find(TensorRole::GradQ)->starts);
}

TEST(PackedGraph, FormulasSeeTheLengthsOfTheirSequence) {
  const GraphSpec spec = spec_of(head + "mod=\"score + f32(Skv)\"");
  bool read = false;
  for (const GraphTensor& tensor : spec.tensors) {
    read = read || (tensor.role == TensorRole::LengthsK && tensor.view == 1);
  }
  EXPECT_TRUE(read);
}

TEST(PackedGraph, DependsOnNeitherRowsNorBatch) {
  const std::string sizes = "h=2 d=64 dtype=bf16 layout=thd sq=100 skv=100 ";
  EXPECT_EQ(baked(sizes + "cu_q=0,100 cu_k=0,100 tq=150"), baked(sizes + "cu_q=0,7 cu_k=0,90"));
  const auto text = [&](const char* starts) { return to_text(spec_of(sizes + starts)); };
  EXPECT_EQ(text("cu_q=0,1,2,3,4,5 cu_k=0,1,2,3,4,5"),
            text("cu_q=0,1,2,3,4,5,6,7 cu_k=0,1,2,3,4,5,6,8"));  // 5 and 7: graphs of 8
  const auto of = [&](const std::string& words) { return batches(baked(sizes + words)); };
  EXPECT_EQ(of("cu_q=0,1,2,3 cu_k=0,1,2,3"), (std::vector<std::int64_t>{4}));
  // Captured tensors end with the last sequence.
  EXPECT_EQ(of("cu_q=0,1,2,3 cu_k=0,1,2,3 mod=\"score+t[b]\" tensor=\"t:f32[B]\""),
            (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(of("cu_q=0,1,2,3 cu_k=0,1,2,3 q_offset=1,2,3 mask=causal"),
            (std::vector<std::int64_t>{2, 1}));
}

TEST(PackedGraph, NeedsACudnnThatGetsItRight) {
  const Problem packed = baked(head), padded = baked("b=2 h=4 sq=100 d=64 dtype=bf16");
  EXPECT_EQ(known_bad(91800, 90, packed).size(), 1u);
  EXPECT_TRUE(known_bad(91801, 90, packed).empty());
  EXPECT_TRUE(known_bad(91800, 90, padded).empty());
}

// Sequences that were drawn: some empty, some with rows of none behind them.
struct DrawnSequences {
  Problem problem;  // baked
  Bindings bindings;
  std::vector<std::int32_t> q_starts{0}, k_starts{0}, q_lengths, k_lengths;
  std::vector<std::byte> workspace;

  DrawnSequences(std::mt19937& random, const std::string& words, bool with_lengths) {
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int batch = 1 + below(9);
    for (int b = 0; b < batch; ++b) {
      for (auto* side : {&q_starts, &k_starts}) {
        const int length = below(4) == 0 ? 0 : below(40);
        (side == &q_starts ? q_lengths : k_lengths).push_back(length == 0 ? 0 : below(length + 1));
        side->push_back(side->back() + length);
      }
    }
    problem = baked("h=3 d=8 dtype=bf16 sq=40 skv=40 layout=thd cu_q=0,5 cu_k=0,5 " + words);
    problem.sizes.b = batch;
    bindings.sizes = problem.sizes;
    bindings.sizes.t_q = q_starts.back() + below(2) * 7;
    bindings.sizes.t_k = k_starts.back() + below(2) * 9;
    bindings.q_starts = q_starts.data(), bindings.k_starts = k_starts.data();
    if (!with_lengths) return;
    problem.has_q_lengths = problem.has_k_lengths = true;
    bindings.q_lengths = q_lengths.data(), bindings.k_lengths = k_lengths.data();
  }
  PackedCall call() const {
    const std::int64_t graph_batch = batches(problem).front();
    return PackedCall(problem, lower(problem, graph_batch).spec, graph_batch);
  }
  // As the kernel would.
  PackedTables make_tables(const PackedCall& packed) {
    workspace.resize(packed.bytes(bindings.sizes) + 8);
    const PackedTables tables = packed.tables(bindings, workspace.data());
    for (std::int64_t b = 0; b <= tables.graph_batch; ++b) write_tables(tables, b);
    return tables;
  }
};

class PackedRows : public testing::TestWithParam<bool> {};

TEST_P(PackedRows, TablesAreTheGeometryInElements) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    DrawnSequences drawn(random, "direction=backward", GetParam());
    const Problem& problem = drawn.problem;
    const PackedTables made = drawn.make_tables(drawn.call());
    const Geometry geometry(problem, drawn.bindings);
    ASSERT_EQ(made.table_count, 3);  // q and its like, k and its like, lse
    for (std::int64_t b = 0; b < made.graph_batch; ++b) {
      const bool real = b < problem.sizes.b;
      const Sequence s = real ? geometry.sequence(b) : Sequence{};
      const bool empty = s.q_length == 0 || s.k_length == 0;
      EXPECT_EQ(made.q_lengths[b], empty ? 0 : s.q_length);
      EXPECT_EQ(made.k_lengths[b], empty ? 0 : s.k_length);
      if (!real) continue;
      for (int t = 0; t < made.table_count; ++t) {
        const StartTable& table = made.tables[t];
        EXPECT_EQ(table.out[b], (table.of_keys ? s.k_first : s.q_first) * table.row_stride);
      }
    }
  }
}

TEST_P(PackedRows, ClearsWhatNoSequenceHasAndNothingElse) {
  std::mt19937 random(4);
  constexpr std::uint32_t kept = 0x3f803f80;
  for (int i = 0; i < 100; ++i) {
    DrawnSequences drawn(random, "lse=1", GetParam());
    Bindings& b = drawn.bindings;
    const auto rows = static_cast<std::size_t>(b.sizes.t_q);
    std::vector<std::uint32_t> o(rows * 3 * 4, kept), lse(rows * 3, kept);
    b.o = {o.data(), {0, 8, 24, 1}};
    b.lse = lse.data();
    const PackedCall packed = drawn.call();
    drawn.make_tables(packed);
    const PackedGaps gaps = packed.gaps(b, drawn.workspace.data());
    ASSERT_EQ(packed.cleared_count(), 2);
    for (std::int64_t gap = 0; gap <= gaps.batch; ++gap) {
      const RowsOfNone none = rows_of_none(gaps.q, gap, gaps.batch);
      for (std::int64_t row = none.first; row < none.last; ++row) {
        for (const Cleared& tensor : {gaps.tensors[0], gaps.tensors[1]}) {
          for (int thread = 0; thread < 5; ++thread) clear_row(tensor, row, thread, 5);
        }
      }
    }
    std::vector<bool> inside(rows);
    const Geometry geometry(drawn.problem, b);
    for (std::int64_t s = 0; s < b.sizes.b; ++s) {
      const Sequence one = geometry.sequence(s);
      if (one.k_length == 0) continue;
      for (std::int64_t q = 0; q < one.q_length; ++q) {
        inside[static_cast<std::size_t>(one.q_first + q)] = true;
      }
    }
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t word = 0; word < 12; ++word) {
        EXPECT_EQ(o[row * 12 + word], inside[row] ? kept : 0u) << "row " << row;
      }
      for (std::size_t h = 0; h < 3; ++h) {
        EXPECT_EQ(lse[h * rows + row], inside[row] ? kept : 0xff800000u) << "row " << row;
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Drawn, PackedRows, testing::Bool());

// Nobody has checked what lies in device memory: no table may lead out of the tensors.
TEST(PackedRows, StartsThatAreNoneStayInside) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    DrawnSequences drawn(random, "direction=backward", (i & 1) != 0);
    for (auto* list : {&drawn.q_starts, &drawn.k_starts, &drawn.q_lengths, &drawn.k_lengths}) {
      for (std::int32_t& x : *list) x = static_cast<std::int32_t>(random()) >> (random() % 32);
    }
    const PackedTables made = drawn.make_tables(drawn.call());
    for (std::int64_t b = 0; b < made.graph_batch; ++b) {
      EXPECT_GE(made.q_lengths[b], 0);
      EXPECT_LE(made.q_lengths[b], 40);
      for (int t = 0; t < made.table_count; ++t) {
        const StartTable& table = made.tables[t];
        const std::int64_t rows = table.of_keys ? made.k.rows : made.q.rows;
        const std::int64_t length = table.of_keys ? made.k_lengths[b] : made.q_lengths[b];
        EXPECT_GE(table.out[b], 0);
        EXPECT_LE(table.out[b] + length * table.row_stride, rows * table.row_stride);
      }
    }
  }
}

TEST(PackedRows, LseIsTurnedRoundAndBack) {
  std::vector<std::uint32_t> lse{0, 1, 2, 3, 4, 5}, stats(6), back(6);
  const Transposed there{lse.data(), stats.data(), 3, 2, 0},
      again{stats.data(), back.data(), 3, 2, 1};
  for (std::int64_t i = 0; i < 6; ++i) transpose_one(there, i);
  EXPECT_EQ(stats, (std::vector<std::uint32_t>{0, 3, 1, 4, 2, 5}));
  for (std::int64_t i = 0; i < 6; ++i) transpose_one(again, i);
  EXPECT_EQ(back, lse);
}

// Gradients that are not wanted are written into the workspace; its blocks do not overlap.
TEST(PackedRows, BlocksOfTheWorkspaceDoNotOverlap) {
  std::mt19937 random(6);
  DrawnSequences drawn(random, "direction=backward grads=v", false);
  const PackedCall packed = drawn.call();
  const Sizes& s = drawn.bindings.sizes;
  std::vector<std::byte> workspace(packed.bytes(s));
  const auto at = [&](TensorRole role) {
    GraphTensor tensor;
    tensor.role = role;
    EXPECT_TRUE(packed.has(tensor));
    return static_cast<std::byte*>(packed.pointer(tensor, s, workspace.data(), 0)) -
           workspace.data();
  };
  GraphTensor wanted;
  wanted.role = TensorRole::GradV;
  EXPECT_FALSE(packed.has(wanted));
  EXPECT_GE(at(TensorRole::GradQ) - at(TensorRole::Stats), s.t_q * s.h * 4);
  EXPECT_GE(at(TensorRole::GradK) - at(TensorRole::GradQ), s.t_q * s.h * s.d * 2);
  EXPECT_GE(static_cast<std::int64_t>(workspace.size()) - at(TensorRole::GradK),
            s.t_k * s.hkv * s.d * 2);
}

// The text has the kernels that are asked for, with parameters of the size that is passed.
TEST(PackedKernels, TextTakesWhatIsPassed) {
  const auto bytes = [](const char* name) {
    const std::string parameter = std::string(name) + "_param_0[";
    const char* const found = std::strstr(packed_rows_ptx, parameter.c_str());
    return found == nullptr ? 0ul : std::strtoul(found + parameter.size(), nullptr, 10);
  };
  EXPECT_EQ(bytes("fovea_packed_tables"), sizeof(PackedTables));
  EXPECT_EQ(bytes("fovea_packed_clear"), sizeof(PackedGaps));
  EXPECT_EQ(bytes("fovea_packed_transpose"), sizeof(Transposed));
}

}  // namespace
}  // namespace fovea::cudnn
