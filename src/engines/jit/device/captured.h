// Gradients of captured tensors and scalars, summed while backward.h visits its scores.
// captured_score.h says what a score adds. How that gets to its sums depends on what the element
// changes with: one class below for each kind.
#pragma once

#include "backward_scores.h"
#include "captured_load.h"
#include "captured_table.h"

namespace fovea::device {

// --- the kinds of terms; `rows` is how many rows of a tile a lane has ---
// begin: once, with this term's part of shared memory, before a barrier. new_head: by all threads,
// at the first tile of a head, between barriers. begin_tile, add (columns in pairs, for each column
// its rows), end_tile: by each warp. end: once, by all threads, after a barrier.

// Changes with b and h alone: in registers until the head changes.
template <class Term, class Sums>
struct UniformTerm {
  double sum;
  long long element;
  float tile;

  FOVEA_DEVICE void begin(Shared) {
    element = -1;
    sum = 0;
  }
  FOVEA_DEVICE void new_head(const Arguments& a, const typename Formula::Uniform& u) {
    end(a);
    const NoPosition nowhere;
    element = element_of<Term>(nowhere.score(a, u));
  }
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {
    tile = 0;
  }
  FOVEA_DEVICE void add(const CapturedScore& x) { tile += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {
    sum += static_cast<double>(tile);
  }
  FOVEA_DEVICE void end(const Arguments& a) {
    if (element < 0) return;
    FOVEA_UNROLL for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (lane_index() == 0) Sums::add(a.words[Term::word], element, sum);
    sum = 0;
  }
};

// Changes with q, not with k.
template <class Term, class Sums, int rows>
struct RowTerm {
  float sum[rows];

  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void new_head(const Arguments&, const typename Formula::Uniform&) {}
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {
    FOVEA_UNROLL for (int i = 0; i < rows; ++i) sum[i] = 0;
  }
  FOVEA_DEVICE void add(const CapturedScore& x) { sum[x.i] += value_of_term<Term>(x); }
  FOVEA_DEVICE void end_tile(const Arguments& a, const typename Formula::Uniform& u,
                             const typename Formula::Row* row, const ScorePlace& at) {
    const typename Formula::Column nowhere{};
    FOVEA_UNROLL for (int i = 0; i < rows; ++i) {
      float x = sum[i];
      x += shuffle_xor(x, 1);
      x += shuffle_xor(x, 2);
      if (lane_index() % 4 == 0 && at.row + 8 * i < at.q_count && x != 0) {
        const CapturedScore score{a, u, row[i], nowhere, 0, 0, true, i, 0};
        Sums::add(a.words[Term::word], element_of<Term>(score), x);
      }
    }
  }
  FOVEA_DEVICE void end(const Arguments&) {}
};

// Changes with k, not with q.
template <class Term, class Sums, int rows>
struct ColumnTerm {
  float sum;

  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void new_head(const Arguments&, const typename Formula::Uniform&) {}
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void add(const CapturedScore& x) {
    sum = (x.i == 0 ? 0.0f : sum) + value_of_term<Term>(x);
    if (x.i != rows - 1) return;
    FOVEA_UNROLL for (int mask = 16; mask >= 4; mask /= 2) sum += shuffle_xor(sum, mask);
    // Columns past the sequence have 0.
    if (lane_index() < 4 && sum != 0) {
      Sums::add(x.a.words[Term::word], element_of<Term>(x), sum);
    }
  }
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void end(const Arguments&) {}
};

// Has q and k among its indices, k as the last of its sums: each score of a head has an element of
// its own.
template <class Term, class Sums, int rows>
struct ElementTerm {
  float left[rows];
  // Where a lane's elements are all inside and lie in pairs: its first, and how far its rows are
  // apart. null: some are not.
  float* first;
  long long row_step;

  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void new_head(const Arguments&, const typename Formula::Uniform&) {}
  FOVEA_DEVICE void begin_tile(const Arguments& a, const typename Formula::Uniform& u,
                               const typename Formula::Row* row, const ScorePlace& at) {
    first = nullptr;
    if constexpr (!Sums::exact) {
      typename Formula::Column column{};
      column.k = seen(at.column, at.k_first);
      const CapturedScore top{a, u, row[0], column, 0, 0, true, 0, 0};
      const CapturedScore below{a, u, row[rows > 1 ? 1 : 0], column, 0, 0, true, 0, 0};
      const long long element = element_of<Term>(top);
      row_step = element_of<Term>(below) - element;
      // The rows that a lane has lie 8 apart: none is clamped if they all exist.
      const bool inside = column.k >= 0 && at.k_count >= Config::columns &&
                          static_cast<long long>(at.k_first) + Config::columns <= Term::last(a) &&
                          row[0].q >= 0 && at.q_count >= Config::rows &&
                          static_cast<long long>(at.q_first) + Config::rows <= Term::rows(a);
      const long long sums = a.words[Term::word];
      if (inside && sums != 0 && (element | row_step) % 2 == 0) {
        first = reinterpret_cast<float*>(sums) + element;
      }
    }
  }
  FOVEA_DEVICE void add(const CapturedScore& x) {
    const float value = value_of_term<Term>(x);
    if (x.c == 0) {
      left[x.i] = value;
      return;
    }
    const float before = left[x.i];
    if (before == 0 && value == 0) return;
    if (first != nullptr) {
      return add_global(first + x.i * row_step + 8 * x.j, Floats2{before, value});
    }
    const long long sums = x.a.words[Term::word];
    typename Formula::Column neighbour = x.column;
    neighbour.k = seen(neighbour.k, -1);
    const CapturedScore other{x.a, x.u, x.row, neighbour, x.s, x.grad, true, x.i, 0, x.j};
    if (before != 0) Sums::add(sums, element_of<Term>(other), before);
    if (value != 0) Sums::add(sums, element_of<Term>(x), value);
  }
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void end(const Arguments&) {}
};

// A table that all threads of a block add to.
template <class Term, class Sums, int room>
struct BlockTable : SharedTable<Term, Sums, room> {
  FOVEA_DEVICE void begin(Shared at) { SharedTable<Term, Sums, room>::begin(at, whole_block()); }
  FOVEA_DEVICE void new_head(const Arguments& a, const typename Formula::Uniform& u) {
    end(a);
    this->take_head(a, u);
    if constexpr (!Sums::exact) sync_block();  // the table is clear
  }
  FOVEA_DEVICE void end(const Arguments& a) { this->flush(a, whole_block()); }
};

// Changes with k - q alone, and is added to as the plain score's gradient is: a thread for each
// diagonal of a tile's dS, once that is in shared memory.
template <class Term, class Sums, int room>
struct DiagonalTerm {
  BlockTable<Term, Sums, room> table;

  FOVEA_DEVICE void begin(Shared at) { table.begin(at); }
  FOVEA_DEVICE void new_head(const Arguments& a, const typename Formula::Uniform& u) {
    table.new_head(a, u);
  }
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void add(const CapturedScore&) {}
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {}
  // By all threads, between barriers. What is not kept is 0 in ds.
  template <class Tile>
  FOVEA_DEVICE void read(const Arguments& a, const typename Formula::Uniform& u, const Tile& ds,
                         const TileBox& at, Shared staged) const {
    const int diagonals = at.q_count + at.k_count - 1;
    FOVEA_NO_UNROLL for (int first = 0; first < diagonals; first += block_threads()) {
      const int difference = first + thread_index() - (at.q_count - 1);  // k - q
      const int start = difference < 0 ? -difference : 0;
      const int end = min(at.q_count, at.k_count - difference);
      const float sum = diagonal_sum(ds, start, end, difference);
      table.put_together(
          a, start < end && sum != 0 ? element(a, u, at, start, difference, staged) : -1, sum);
    }
  }
  FOVEA_DEVICE void end(const Arguments& a) { table.end(a); }

 private:
  // Elements of rows [start, end): eight loads are under way at a time.
  template <class Tile>
  FOVEA_DEVICE static float diagonal_sum(const Tile& ds, int start, int end, int difference) {
    using Element = typename Tile::Element;
    constexpr int step = 8, down = Tile::stride + bytes_of<Element>;
    const auto load = [](Shared at) {
      return to_float(Element{}, load_shared<typename Stored<Element>::Type>(at));
    };
    float sum = 0;
    int row = start;
    Shared at = ds.at(start, start + difference);
    FOVEA_NO_UNROLL for (; row + step <= end; row += step, at += step * down) {
      float x[step];
      FOVEA_UNROLL for (int i = 0; i < step; ++i) x[i] = load(at + i * down);
      FOVEA_UNROLL for (int width = step / 2; width > 0; width /= 2) {
        FOVEA_UNROLL for (int i = 0; i < width; ++i) x[i] += x[i + width];
      }
      sum += x[0];
    }
    FOVEA_NO_UNROLL for (; row < end; ++row, at += down) sum += load(at);
    return sum;
  }

  FOVEA_DEVICE static long long element(const Arguments& a, const typename Formula::Uniform& u,
                                        const TileBox& at, int row, int difference, Shared staged) {
    constexpr int count = Formula::diagonal_words;
    unsigned words[count > 0 ? count : 1];
    load_words<count>(staged, Config::rows + Config::columns, difference + Config::rows - 1, words);
    return diagonal_element<Term>(a, u, seen(row, at.q_first), seen(row + difference, at.k_first),
                                  words);
  }
};

// Anything else. Neighbours along k often have one element (buckets of distances): a row's scores
// are added up as long as it stays the same.
template <class Term, class Sums, int rows, int room>
struct GatherTerm {
  float sum[rows];
  int element[rows];  // of the head's; -1: none
  BlockTable<Term, Sums, room> table;

  FOVEA_DEVICE void begin(Shared at) { table.begin(at); }
  FOVEA_DEVICE void new_head(const Arguments& a, const typename Formula::Uniform& u) {
    table.new_head(a, u);
  }
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {
    FOVEA_UNROLL for (int i = 0; i < rows; ++i) element[i] = -1;
  }
  FOVEA_DEVICE void add(const CapturedScore& x) {
    const float value = value_of_term<Term>(x);
    if (value == 0) return;
    if (table.huge(x.a)) return Sums::add(x.a.words[Term::word], element_of<Term>(x), value);
    const auto at = static_cast<int>(Term::inner(x));
    if (at != element[x.i]) {
      table.put(x.a, element[x.i], sum[x.i]);
      element[x.i] = at;
      sum[x.i] = 0;
    }
    sum[x.i] += value;
  }
  FOVEA_DEVICE void end_tile(const Arguments& a, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {
    FOVEA_UNROLL for (int i = 1; i < rows; ++i) {
      if (element[i] == element[i - 1] || element[i] < 0) {
        sum[i] = element[i] < 0 ? sum[i - 1] : sum[i] + sum[i - 1];
        element[i] = element[i - 1];
      } else {
        table.put(a, element[i - 1], sum[i - 1]);
      }
    }
    table.put_together(a, element[rows - 1], sum[rows - 1]);
  }
  FOVEA_DEVICE void end(const Arguments& a) { table.end(a); }
};

}  // namespace fovea::device
