// The gradient of a captured tensor by q and k that is added to the scores unchanged (a bias): the
// whole dS of a tile, once it is in shared memory.
#pragma once

#include "captured.h"

namespace fovea::device {

// As many neighbours in a tile's row as are added at once.
template <class Element>
struct CellPiece {
  static constexpr int width = adds_vectors ? 4 : 1;
  static constexpr int bytes = width * bytes_of<Element>;

  FOVEA_DEVICE static void add(float* to, Shared from) {
    if constexpr (width == 1) {
      add_global(to, to_float(Element{}, load_shared<typename Stored<Element>::Type>(from)));
    } else if constexpr (bytes == 16) {
      add_global(to, load_shared<Floats4>(from));
    } else {
      const auto two = load_shared<Words2>(from);
      const auto low = [](unsigned x) {
        return to_float(Element{}, static_cast<unsigned short>(x));
      };
      add_global(to, Floats4{low(two.x), low(two.x >> 16), low(two.y), low(two.y >> 16)});
    }
  }
};

// Sums are of f32, by atomics.
template <class Term>
struct CellsTerm {
  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void new_head(const Arguments&, const typename Formula::Uniform&) {}
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void add(const CapturedScore&) {}
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void end(const Arguments&) {}

  // By all threads, between barriers. What is not kept is 0 in ds.
  template <class Tile>
  FOVEA_DEVICE void read(const Arguments& a, const typename Formula::Uniform& u, const Tile& ds,
                         const TileBox& at, Shared) const {
    using Piece = CellPiece<typename Tile::Element>;
    const long long sums = a.words[Term::word];
    if (sums == 0) return;
    const long long first = element_at<Term>(a, u, at, 0, 0),
                    row_step = element_at<Term>(a, u, at, 1, 0) - first;
    const bool inside = at.q_first >= 0 && at.k_first >= 0 &&
                        static_cast<long long>(at.q_first) + Config::rows <= Term::rows(a) &&
                        static_cast<long long>(at.k_first) + Config::columns <= Term::last(a);
    if (!inside || (first | row_step) % Piece::width != 0) return read_slowly(a, u, ds, at);
    constexpr int pieces = Config::columns / Piece::width;                         // of a row
    constexpr int step = Config::threads > pieces ? Config::threads / pieces : 1;  // rows at a time
    static_assert(Config::threads % pieces == 0 && Config::rows % step == 0);
    const int row = thread_index() / pieces, column = thread_index() % pieces * Piece::width;
    float* to = reinterpret_cast<float*>(sums) + first + row * row_step + column;
    FOVEA_UNROLL for (int i = 0; i < Config::rows; i += step, to += step * row_step) {
      Piece::add(to, ds.at(row + i, column));
    }
  }

 private:
  // One by one, if the tile leaves the tensor (then indices are clamped) or rows are not aligned.
  template <class Tile>
  FOVEA_DEVICE static void read_slowly(const Arguments& a, const typename Formula::Uniform& u,
                                       const Tile& ds, const TileBox& at) {
    using Element = typename Tile::Element;
    FOVEA_NO_UNROLL
    for (int i = thread_index(); i < Config::rows * Config::columns; i += Config::threads) {
      const int row = i / Config::columns, column = i % Config::columns;
      const float x =
          to_float(Element{}, load_shared<typename Stored<Element>::Type>(ds.at(row, column)));
      if (x != 0) F32Sums::add(a.words[Term::word], element_at<Term>(a, u, at, row, column), x);
    }
  }
};

}  // namespace fovea::device
