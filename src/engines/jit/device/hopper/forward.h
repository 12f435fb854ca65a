// The forward for sm_90: two or three warpgroups multiply, 64 rows of queries each; one warp
// decides what comes next and has the hardware copy queries and keys, another one copies values
// (producer.h); two more compute a formula's staged values (stager.h). Blocks stay and take tiles
// of queries as they come.
//
// Softmax: only the first tile of keys that a row sees gives it a reference, its maximum. Later
// scores are exponentiated relative to that, whatever they are: sums and 16-bit probabilities have
// room upwards (2^60 in bf16, 2^14 in f16). Only if a warp's sums leave that room does it look for
// maxima, do the tile again from its scores, and go on with an ordinary online softmax for the rest
// of these queries. If the formula bounds the scores well (a soft cap), they are exponentiated
// relative to 0, and no maximum is computed.
//
// A warpgroup's step i begins with scores(i) = Q K(i)^T and, behind it, o += P(i - 1) V(i - 1) in
// two parts; while they run it makes P(i) from scores(i), the first part of it as soon as the first
// part of P(i - 1) was read. The warpgroups take turns to begin, so that one multiplies while
// another exponentiates.
//
// Config has, besides what the general forward.h says: q_stages, k_stages (places for queries,
// keys).
#pragma once

#include "../dropout.h"
#include "../softmax.h"
#include "forward_layout.h"
#include "mend.h"
#include "producer.h"
#include "score_unit.h"
#include "stager.h"
#include "warpgroup.h"
#include "wgmma.h"
#include "write_rows.h"

namespace fovea::device {

template <class Config>
struct HopperForward {
  using Layout = ForwardLayout<Config>;
  using Element = typename Config::Element;
  using Barriers = HopperForwardShared;
  static constexpr auto shared = Layout::shared;
  static constexpr int rows = Config::rows, columns = Config::columns;
  static constexpr int keys = columns / 8, features = Config::dv / 8;  // of a row's sums, by 8
  static constexpr int parts = columns / 16;  // of P, as products take them
  // Parts that are ready first, measured: a modifier has more to do while the rest is multiplied.
  static constexpr int early = parts >= 4 ? parts / (Formula::has_mod ? 2 : 4) : 1;
  static constexpr int first_turn = 1;  // a named barrier for each warpgroup
  static constexpr float most_sum = is_same_element<Element, BF16> ? 1e18f : 16384.0f;
  // Probabilities in f16 have no room for scores that are far below the reference.
  static constexpr bool bounded =
      Formula::bound > 0 && is_same_element<Element, BF16> && !Config::row_max;
  static constexpr float most_exponent = 56;  // of scores relative to 0: their sums have room, too

  const Arguments& a;
  const CallArguments& call;
  int group, first_row;   // of this warp
  int first_query, head;  // of its rows: in their head, and which of the tile's heads that is
  typename Formula::Uniform uniform;
  Dropout dropout;
  ScoreUnit units{1, 1, 1};
  float factor;            // from scores as they are kept to exponents of 2
  bool seeks = false;      // maxima in every step
  bool has_none = false;   // some row of this warp has seen nothing but -inf: it has no reference
  bool careful = false;    // some step needs more than what every step does: see run()
  bool nan = false;        // one may have been written
  bool adds = false;       // the next output to o
  Ring k, v;               // the places of keys and values
  Ring staged;             // and of what is staged beside keys
  int last_keys = 0;       // the place of those before
  unsigned q_parity = 0;   // by place
  WarpRows at, ended;      // of this tile of queries, and of the one before
  float base[2] = {0, 0};  // what the scores of a row are relative to, in this tile
  float x[keys][4];
  unsigned p[parts][4];
  unsigned long long drawn = 0;  // a bit for each score: 4 j + i of x[j][i]
  float o[features][4];

  FOVEA_DEVICE HopperForward(const Arguments& arguments, int warpgroup)
      : a(arguments), call(a.call), group(warpgroup) {
    first_row = warpgroup_rows * group + warp_index() % 4 * 16;
    const int queries = TileRows<Formula>::queries(call, rows);
    head = first_row / queries;
    first_query = first_row - head * queries;
  }

  FOVEA_DEVICE static Shared barrier(int which, int stage) { return Layout::barrier(which, stage); }
  FOVEA_DEVICE void release(int which, int stage) const {
    if (lane_index() == 0) arrive(barrier(which, stage));
  }
  FOVEA_DEVICE TilePlace place_at(const ForwardStep& step) const {
    auto place = load_struct<TilePlace>(shared.place + step.place() * tile_place_bytes);
    return place.of_head(head);
  }
  FOVEA_DEVICE ForwardStep step_at(int stage) const {
    const ForwardStep step = load_step(shared.step + 16 * stage);
    return Layout::groups_classified > 1 ? step.of_warpgroup(group) : step;
  }
  FOVEA_DEVICE int row(int r) const { return first_row + lane_index() / 4 + 8 * r; }
  FOVEA_DEVICE int query(int r) const { return first_query + lane_index() / 4 + 8 * r; }

  // --- products ---

  FOVEA_DEVICE void begin_scores(int q_stage, int k_stage) {
    const auto q = along_rows(shared.q + q_stage * Layout::q_bytes + group * warpgroup_rows * 128);
    const auto k = along_rows(shared.k + k_stage * Layout::k_bytes);
    FOVEA_UNROLL for (int i = 0; i < Config::d / 16; ++i) {
      multiply_tiles<false, false>(Element{}, x, moved_by(q, i % 4 * 32 + i / 4 * rows * 128),
                                   moved_by(k, i % 4 * 32 + i / 4 * columns * 128), i > 0);
    }
    commit_products();
  }
  template <int first, int last>
  FOVEA_DEVICE void begin_output(int v_stage, bool adds) {
    const auto v = across_rows(shared.v + v_stage * Layout::v_bytes, columns * 128);
    FOVEA_UNROLL for (int i = first; i < last; ++i) {
      multiply_tiles<false, true>(Element{}, o, p[i], moved_by(v, i * 2048), i > 0 || adds);
    }
    commit_products();
  }

  // --- scores ---

  FOVEA_DEVICE void modify(const ForwardStep& step) {
    if constexpr (Formula::has_mod) {
      wait_for_staged();
      apply<modifier>(step);
    }
  }
  // Part by part: most tiles are masked by one of them at most.
  FOVEA_DEVICE void mask(const ForwardStep& step) {
    if (units.outer != 1) {
      FOVEA_UNROLL for (int i = 0; i < keys * 4; ++i) x[i / 4][i % 4] *= units.outer;
    }
    if (!step.is(ForwardStep::masked)) return;
    if (step.is(ForwardStep::cut)) {
      FOVEA_UNROLL for (int i = 0; i < keys * 4; ++i) {
        const int column = 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2;
        x[i / 4][i % 4] = column < step.keys ? x[i / 4][i % 4] : -infinity();
      }
    }
    wait_for_staged();
    if (step.is(ForwardStep::part)) apply<0>(step);
    if constexpr (Formula::mask_parts > 1) {
      if (step.is(ForwardStep::part << 1)) apply<1>(step);
    }
    if constexpr (Formula::mask_parts > 2) {
      if (step.is(ForwardStep::part << 2)) apply<2>(step);
    }
  }
  FOVEA_DEVICE void wait_for_staged() const {
    if constexpr (Layout::stages_values) {
      wait_for(barrier(Barriers::staged, staged.stage), staged.parity);
    }
  }
  // Waits even if this warp read nothing: nobody is to free a place before it is filled.
  FOVEA_DEVICE void leave_staged(const ForwardStep& step) {
    if constexpr (Layout::stages_values) {
      if (!step.is(ForwardStep::end)) wait_for_staged();
      sync_warp();
      if (!step.is(ForwardStep::end)) release(Barriers::free_staged, staged.stage);
      staged.advance(Layout::staged_stages);
      if (Formula::row_words > 0 && step.is(ForwardStep::last))
        release(Barriers::free_q, step.q_stage());
    }
  }

  // The modifier, or a part of the mask by its number.
  static constexpr int modifier = -1;
  template <int what>
  FOVEA_DEVICE void apply(const ForwardStep& step) {
    constexpr bool masks = what != modifier;
    const TilePlace place = place_at(step);
    const Sequence& s = place.s;
    typename Formula::Row row_values[2];
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      row_values[r] = staged_row<Formula>(a, uniform, Layout::rows_at(step.q_stage()), rows, row(r),
                                          seen(step.q0 + query(r), s.q_offset));
    }
    float slope[2] = {0, 0};
    if constexpr (Formula::shifts && !masks) {
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const RowLine line =
            row_line<Formula>(a, uniform, row_values[r], seen(step.k0, s.k_offset));
        base[r] = line.base, slope[r] = line.slope;
      }
    }
    constexpr PairReads reads =
        masks ? Formula::part_reads[masks ? what : 0] : Formula::score_reads;
    const int lane_column = 2 * (lane_index() % 4);
    WarpPairs<Formula, rows, columns, reads.diagonal, reads.cell> pairs(
        {Layout::diagonal_at(staged.stage), Layout::cells_at(staged.stage)}, first_row);
    FOVEA_UNROLL for (int j = 0; j < keys; ++j) {
      pairs.load(j);
      FOVEA_UNROLL for (int e = 0; e < 2; ++e) {
        const int column_number = 8 * j + lane_column + e;
        auto column =
            staged_column<Formula>(a, uniform, Layout::columns_at(staged.stage), columns,
                                   column_number, seen(step.k0 + column_number, s.k_offset));
        FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
          float& score = x[j][2 * r + e];
          column.pair = pairs.pair(r, e);
          if constexpr (masks) {
            const bool keep = Formula::template keep_part<what>(a, uniform, row_values[r], column);
            score = keep ? score : -infinity();
          } else {
            const float distance = static_cast<float>(lane_column) + static_cast<float>(8 * j + e);
            score = modified<Formula>(a, uniform, row_values[r], column, score * units.scale,
                                      slope[r] * distance);
          }
        }
      }
    }
  }

  // --- softmax ---

  // Probabilities of parts [first, last), as products take them; `sums` gets what they add up to
  // before dropout.
  template <int first, int last>
  FOVEA_DEVICE void exponentiate(float (&sums)[4]) {
    const float shift[2] = {(base[0] - finite_or_zero(at.reference[0])) * factor,
                            (base[1] - finite_or_zero(at.reference[1])) * factor};
    FOVEA_UNROLL for (int i = 4 * first; i < 4 * last; ++i) {
      const int j = i / 4 * 2 + i % 4 / 2, r = i % 2;
      float low = exp2_approx(fma_rn(x[j][2 * r], factor, shift[r]));
      float high = exp2_approx(fma_rn(x[j][2 * r + 1], factor, shift[r]));
      sums[2 * r] += low;
      sums[2 * r + 1] += high;
      if constexpr (Config::dropout) {
        low = (drawn >> (4 * j + 2 * r) & 1) != 0 ? low : 0;
        high = (drawn >> (4 * j + 2 * r + 1) & 1) != 0 ? high : 0;
      }
      p[i / 4][i % 4] = pack(Element{}, low, high);
    }
  }

  // What dropout keeps is drawn while scores are computed. Nobody looks at that of the last turn.
  FOVEA_DEVICE void draw(const ForwardStep& step) {
    if constexpr (Config::dropout) {
      if (step.is(ForwardStep::end)) return;
      const TilePlace place = place_at(step);
      if (step.is(ForwardStep::first)) dropout = dropout_of(call, place.head(call));
      drawn = dropout_keeps_lane<keys>(dropout, seen(step.q0 + query(0), place.s.q_offset),
                                       seen(step.k0, place.s.k_offset));
    }
  }

  FOVEA_DEVICE void begin_exponentials(const ForwardStep& step, float (&sums)[4]) {
    leave_staged(step);
    wait_products<1>();  // the first part of P was read
    FOVEA_UNROLL for (int i = 0; i < early; ++i) settle(p[i]);
    exponentiate<0, early>(sums);
    FOVEA_UNROLL for (int i = 0; i < early; ++i) settle(p[i]);
  }

  // References move to the maxima of this tile if those are well above them. Sums and, later, o
  // shrink by what is returned.
  struct Shrink {
    float by[2];
  };
  template <int columns8 = keys>
  FOVEA_DEVICE Shrink seek_references() {
    Shrink shrink;
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      const float most = row_maximum<columns8>(x, r) + base[r], now = at.reference[r];
      if constexpr (Config::row_max) at.top[r] = fmaxf(at.top[r], most);
      const float to = most > now && !((most - now) * factor <= 8) ? most : now;
      shrink.by[r] = exp2_approx((now - finite_or_zero(to)) * factor);
      at.reference[r] = to;
      at.sum[r] *= shrink.by[r];
    }
    has_none = any_in_warp(at.reference[0] == -infinity() || at.reference[1] == -infinity());
    careful = seeks || has_none || units.outer != 1;
    return shrink;
  }
  // In bf16 any score of a row can be its first reference, since sums have room for 2^60. So if
  // nothing is masked, only the first 16 keys are looked at.
  FOVEA_DEVICE Shrink first_references(const ForwardStep& step) {
    constexpr bool few = is_same_element<Element, BF16> && !Config::row_max && keys > 2;
    if (few && !step.is(ForwardStep::masked | ForwardStep::end)) {
      const Shrink shrink = seek_references<few ? 2 : keys>();
      if (!has_none) return shrink;
    }
    return seek_references();
  }
  FOVEA_DEVICE void shrink_output(const Shrink& shrink) {
    FOVEA_UNROLL for (int i = 0; i < features * 4; ++i) o[i / 4][i % 4] *= shrink.by[i % 4 / 2];
  }

  // What changes with a tile of queries, before its first scores are modified.
  FOVEA_DEVICE void begin_tile(const ForwardStep& step) {
    ended = at;
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
      at.reference[r] = at.top[r] = -infinity();
      at.sum[r] = 0;
    }
    seeks = Config::row_max;
    if (step.is(ForwardStep::end)) return;
    const TilePlace place = place_at(step);
    uniform = Formula::uniform(a, place.head(call));
    units = score_unit<Formula>(a, uniform);
    at.unit = units.unit;
    factor = at.unit * log2_of_e;
    if constexpr (bounded) {
      seeks = !(Formula::bound * arith::absolute(units.outer) * factor <= most_exponent);
      has_none = false;
      careful = seeks || units.outer != 1;
      if (!seeks) at.reference[0] = at.reference[1] = 0;
    }
  }

  // --- the loop ---

  // Every turn of it begins the scores of a step and the output of the step before. There is none
  // before the first: probabilities of 0 then meet values that the producer sends for that, and
  // nobody looks at the result. There are no keys in the last turn: it takes those of the turn
  // before once more, for nothing. So all of this is there once, and no product is in a branch.
  FOVEA_DEVICE void run() {
    wait_for(barrier(Barriers::filled_k, 0), 0);
    ForwardStep step = step_at(0), previous{0, ForwardStep::end, 0, 0};
    if (step.is(ForwardStep::end)) return;
    if (group == Layout::warpgroups - 1) arrive_threads(first_turn, 256);  // the first may begin
    FOVEA_UNROLL for (int i = 0; i < 4 * parts; ++i) p[i / 4][i % 4] = 0;
    for (;;) {
      if (left_out(step, ForwardStep::unseen)) leave_unseen(step);
      const bool ends = step.is(ForwardStep::end), fresh = ends || step.is(ForwardStep::first);
      begin_products(step);
      Shrink shrink{{1, 1}};
      float sums[4] = {0, 0, 0, 0};
      bool shrinks = begin_probabilities(step, shrink, sums);
      const int v_stage = v.stage;
      k.advance(Layout::k_stages);
      v.advance(value_stages);
      // This wait ends a basic block; otherwise the compiler would move the next wait before it.
      wait_for(barrier(Barriers::filled_k, k.stage), k.parity);
      wait_products<0>();
      settle(o), settle(p);
      release(Barriers::free_v, v_stage);
      shrinks |= end_probabilities(shrink, sums);
      adds = !fresh;
      if (left_out(step, ForwardStep::after_unseen)) leave_unseen_values();
      if (fresh) {
        if (!previous.is(ForwardStep::end)) {
          nan |= write_rows<Config>(call, place_at(previous), previous.q0 + first_query, ended,
                                    dropout.factor, o);
        }
        if (ends) return;
      } else if (shrinks) {
        shrink_output(shrink);
      }
      at.sum[0] += sums[0] + sums[1], at.sum[1] += sums[2] + sums[3];
      previous = step;
      step = step_at(k.stage);
    }
  }

  FOVEA_DEVICE static bool left_out(const ForwardStep& step, int flag) {
    return Layout::groups_classified > 1 && step.is(flag);
  }
  // Instead of a step of which this warpgroup sees nothing it takes the next one, at once: for the
  // others it does as if it had done both. What is left of it are its values, which are not there
  // yet. Two such steps never follow each other.
  FOVEA_DEVICE void leave_unseen(ForwardStep& step) {
    take_turn();
    pass_turn();
    leave_staged(step);
    sync_warp();
    release(Barriers::free_k, k.stage);
    k.advance(Layout::k_stages);
    wait_for(barrier(Barriers::filled_k, k.stage), k.parity);
    const int first = step.flags & ForwardStep::first;
    step = step_at(k.stage);
    step.flags |= first | ForwardStep::after_unseen;
  }
  FOVEA_DEVICE void leave_unseen_values() {
    wait_for(barrier(Barriers::filled_v, v.stage), v.parity);
    sync_warp();  // a lane that still waits when the place is filled again would wait for ever
    release(Barriers::free_v, v.stage);
    v.advance(value_stages);
  }

  FOVEA_DEVICE void take_turn() const { sync_threads(first_turn + group, 256); }
  FOVEA_DEVICE void pass_turn() const {
    arrive_threads(first_turn + (group + 1 == Layout::warpgroups ? 0 : group + 1), 256);
  }

  // When it is this warpgroup's turn; scores are there when it returns.
  FOVEA_DEVICE void begin_products(const ForwardStep& step) {
    const int q_stage = step.q_stage();
    if (step.is(ForwardStep::first)) {
      wait_for(barrier(Barriers::filled_q, q_stage), q_parity >> q_stage & 1);
      q_parity ^= 1u << q_stage;
    }
    take_turn();
    settle(x), settle(p), settle(o);
    fence_registers();
    begin_scores(q_stage, step.is(ForwardStep::end) ? last_keys : k.stage);
    last_keys = k.stage;
    wait_for(barrier(Barriers::filled_v, v.stage), v.parity);
    fence_registers();
    begin_output<0, early>(v.stage, adds);
    begin_output<early, parts>(v.stage, true);
    pass_turn();
    draw(step);
    wait_products<2>();
    settle(x);
    release(Barriers::free_k, k.stage);
    if (Formula::row_words == 0 && step.is(ForwardStep::last)) release(Barriers::free_q, q_stage);
  }

  // From scores to the first part of P. One branch for all that most steps do without: each costs
  // some 20 cycles if not taken. What most steps do has none between products and probabilities.
  // Returns whether o shrinks, by `shrink`.
  FOVEA_DEVICE bool begin_probabilities(const ForwardStep& step, Shrink& shrink, float (&sums)[4]) {
    const bool ends = step.is(ForwardStep::end), fresh = ends || step.is(ForwardStep::first);
    bool shrinks = false;
    if (careful || step.is(ForwardStep::first | ForwardStep::masked | ForwardStep::end)) {
      if (fresh) begin_tile(step);
      if (!ends) {
        modify(step);
        mask(step);
      }
      if (fresh && !bounded) {
        shrink = first_references(step);
      } else if (seeks || has_none) {
        shrink = seek_references();
        shrinks = !fresh;
      }
      if (Formula::has_mod) begin_exponentials(step, sums);
    } else if (Formula::has_mod) {
      modify(step);
      begin_exponentials(step, sums);
    }
    if (!Formula::has_mod) begin_exponentials(step, sums);
    return shrinks;
  }

  // The rest of P; all of it again if sums leave the room that they have. Returns whether o shrinks
  // for that.
  FOVEA_DEVICE bool end_probabilities(Shrink& shrink, float (&sums)[4]) {
    exponentiate<early, parts>(sums);
    if constexpr (bounded) return false;
    const bool leaves = sums[0] + sums[1] > most_sum || sums[2] + sums[3] > most_sum;
    if (!any_in_warp(leaves && !seeks)) return false;
    const Shrink again = seek_references();
    FOVEA_UNROLL for (int i = 0; i < 4; ++i) sums[i] = 0;
    exponentiate<0, parts>(sums);
    FOVEA_UNROLL for (int r = 0; r < 2; ++r) shrink.by[r] *= again.by[r];
    seeks = careful = true;
    return true;
  }
};

template <class Config>
FOVEA_DEVICE void hopper_forward(const MappedArgumentsOf<Arguments>& a) {
  using Layout = ForwardLayout<Config>;
  if (thread_index() == 0) {
    Layout::make_barriers();
    FOVEA_UNROLL for (int i = map_q; i <= map_v; ++i) prefetch_map(a.maps[i]);
  }
  await_earlier_kernels();
  sync_block();
  const int group = warpgroup_index();
  if (group == Layout::warpgroups) {
    give_registers_back<Layout::loader_registers>();
    const int warp = warp_index() - 4 * Layout::warpgroups;
    if (warp == 0) {
      Producer<Layout>(a).run();
    } else if (warp == 1) {
      ValueLoader<Layout>(a).run();
    } else if constexpr (Layout::stages_values) {
      Stager<Layout>{a.rest, 32 * (warp - 2) + lane_index()}.run();
    }
  } else {
    take_registers<Layout::registers>();
    HopperForward<Config> own(a.rest, group);
    own.run();
    if (any_in_warp(own.nan)) mend_tiles<Config>(a.rest, own.first_query, own.head);
  }
}

}  // namespace fovea::device
