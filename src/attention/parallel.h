// Attention over many ranks: how tokens are distributed, which rank computes which tiles in which
// step, and what it needs for that from which rank. This only makes the plan, the same on every
// rank; fovea.torch.context_parallel and fovea.jax's ring follow it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/live_share.h"
#include "attention/problem.h"

namespace fovea {

// Ring: keys come from one rank after the other, and results are merged by lse. AllGather: all that
// are needed come first. AllToAll: every rank gets all positions of a part of the heads. TwoLevel:
// all-to-all inside groups of neighbours, a ring of such groups.
enum class Strategy : std::uint8_t { Ring, AllGather, AllToAll, TwoLevel };

// Contiguous: rank i has the i-th part. Zigzag: the i-th and the i-th last of twice as many, so
// that causal masks give all ranks the same work; packed sequences are dealt out one by one.
// Striped: token t is on rank t % n.
enum class TokenOrder : std::uint8_t { Contiguous, Zigzag, Striped };

struct ParallelSpec {
  int ranks = 1;
  Strategy strategy = Strategy::Ring;
  TokenOrder order = TokenOrder::Contiguous;
  int head_ranks = 0;  // TwoLevel: ranks of one group
};
Strategy strategy_of(const std::string& name);  // ring, all_gather, all_to_all, a2a+p2p
TokenOrder order_of(const std::string& name);   // contiguous, zigzag, striped

// What is known of the sequences of queries, or of keys, in a call. An empty span: absent, or not
// known.
struct SequenceValues {
  std::span<const std::int32_t> starts;   // [B + 1], packed
  std::span<const std::int32_t> lengths;  // [B]
};
struct ParallelValues {
  SequenceValues q, k;
  std::span<const ir::TensorView> tensors;  // by slot; one without data is not known
  std::span<const std::optional<ir::ScalarValue>> scalars;
};

// The rows of one sequence in a piece: its positions first .. first + length - 1, which begin at
// row `at` of the piece.
struct Run {
  std::int64_t first = 0, length = 0, at = 0;
};
// One entry per sequence; one for all of them if they are alike.
using Piece = std::vector<Run>;

// One side of the scores, dealt out.
struct Dealt {
  // Rows that a piece has of each sequence, with padding, as ranks hold them: [pieces][sequences].
  std::vector<std::vector<std::int64_t>> rows;
  // What the ranks of a group hold together: as many as steps compute with.
  std::vector<Piece> pieces;
  std::vector<std::int64_t> piece_rows;  // of all sequences
};

struct ParallelTile {
  int q = 0, k = 0;   // pieces
  double scores = 0;  // kept ones of a head, over all sequences; an upper bound
};

// What a rank does in one step. If it has nothing to compute, it receives nothing.
struct ParallelStep {
  int from = 0, to = 0;             // ranks
  std::vector<int> received, sent;  // pieces of keys
  std::vector<int> looking;         // pieces of queries of `to` that look at what is sent
  std::vector<ParallelTile> tiles;
};

class ParallelPlan {
 public:
  // `problem` is the whole attention, as one device would see it. Throws InvalidArgument.
  ParallelPlan(const Problem& problem, const ParallelValues& values, const ParallelSpec& spec);

  const ParallelSpec& spec() const { return spec_; }
  int head_ranks() const { return head_ranks_; }            // that share the heads of a group
  int places() const { return spec_.ranks / head_ranks_; }  // of the ring
  const Dealt& q() const { return q_; }
  const Dealt& k() const { return k_; }

  // Pieces that a place of the ring holds, or, with head_ranks 1, a rank.
  std::vector<int> held(int place) const;
  std::vector<ParallelStep> steps(int rank);

  struct Bytes {
    std::int64_t forward = 0, backward = 0;
  };
  Bytes sent(int rank, const std::vector<ParallelStep>& steps) const;

 private:
  std::vector<ParallelTile> tiles(int place, int source);
  double scores(int q_piece, int k_piece);
  std::int64_t rows_of_queries(const ParallelStep& step) const;

  const Problem& problem_;
  ParallelValues values_;
  ParallelSpec spec_;
  int head_ranks_ = 1;
  Dealt q_, k_;
  LiveShare share_;
  bool by_sequence_ = false;  // do sequences differ in what is kept?
};

// For people: who computes, receives and sends what. For programs (JSON): the pieces, and the steps
// of one rank.
std::string to_table(ParallelPlan& plan);
std::string to_json(ParallelPlan& plan, int rank);

}  // namespace fovea
