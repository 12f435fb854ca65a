// The gradient of a captured tensor by q and k that scores are added to as they are (a bias): a
// tile's dS as a whole, once that is in shared memory.
#pragma once

#include "captured.h"

namespace fovea::device {

// As many neighbours in a tile's row as are added at once.
template <class Element>
struct CellPiece {
  static constexpr int width = adds_vectors ? 4 : 1;
  static constexpr int bytes = width * bytes_of<Element>;

  FOVEA_DEVICE static auto load(Shared from) {
    if constexpr (width == 1) {
      return to_float(Element{}, load_shared<typename Stored<Element>::Type>(from));
    } else if constexpr (bytes == 16) {
      return load_shared<Floats4>(from);
    } else {
      const auto two = load_shared<Words2>(from);
      const auto low = [](unsigned x) {
        return to_float(Element{}, static_cast<unsigned short>(x));
      };
      return Floats4{low(two.x), low(two.x >> 16), low(two.y), low(two.y >> 16)};
    }
  }
};

// Sums are of f32, by atomics. They are begun early and added part by part, between the steps of a
// product, which uses other units.
template <class Term>
struct CellsTerm {
  float* to;  // where this thread's first piece of a tile goes; null: the tile is read slowly

  FOVEA_DEVICE void begin(Shared) {}
  FOVEA_DEVICE void new_head(const Arguments&, const typename Formula::Uniform&) {}
  FOVEA_DEVICE void begin_tile(const Arguments&, const typename Formula::Uniform&,
                               const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void add(const CapturedScore&) {}
  FOVEA_DEVICE void end_tile(const Arguments&, const typename Formula::Uniform&,
                             const typename Formula::Row*, const ScorePlace&) {}
  FOVEA_DEVICE void end(const Arguments&) {}

  // Before what follows, for each tile.
  FOVEA_DEVICE void locate(const Arguments& a, const typename Formula::Uniform& u,
                           const TileBox& at) {
    const long long sums = a.words[Term::word], first = element(a, u, at, 0, 0);
    const bool inside = at.q_first >= 0 && at.k_first >= 0 &&
                        static_cast<long long>(at.q_first) + Config::rows <= Term::rows(a) &&
                        static_cast<long long>(at.k_first) + Config::columns <= Term::last(a);
    const bool aligned = (first | Term::row_step(a)) % Piece::width == 0;
    to = inside && aligned && sums != 0
             ? reinterpret_cast<float*>(sums) + first + own_row() * Term::row_step(a) + own_column()
             : nullptr;
  }

  // Sixteen rows of a tile that has its place, by all threads, between barriers. What is not kept
  // is 0 in ds.
  template <int part, class Tile>
  FOVEA_DEVICE void read_part(const Arguments& a, const Tile& ds) const {
    FOVEA_UNROLL for (int i = 16 * part; i < 16 * part + 16; i += step) {
      const auto x = Piece::load(ds.at(own_row() + i, own_column()));
      add_global(to + i * Term::row_step(a), x);
    }
  }

  // A tile that leaves the tensor, so that its indices are clamped: one by one.
  template <class Tile>
  FOVEA_DEVICE void read(const Arguments& a, const typename Formula::Uniform& u, const Tile& ds,
                         const TileBox& at, Shared) const {
    if (to != nullptr) return;
    FOVEA_NO_UNROLL
    for (int i = thread_index(); i < Config::rows * Config::columns; i += Config::threads) {
      const int row = i / Config::columns, column = i % Config::columns;
      const float x =
          to_float(Element{}, load_shared<typename Stored<Element>::Type>(ds.at(row, column)));
      if (x != 0) F32Sums::add(a.words[Term::word], element(a, u, at, row, column), x);
    }
  }

 private:
  using Element = typename Config::Element;
  using Piece = CellPiece<Element>;
  static constexpr int pieces = Config::columns / Piece::width;  // of a row
  static constexpr int step = Config::threads / pieces;          // rows at a time
  static_assert(Config::threads % pieces == 0 && 16 % step == 0);

  FOVEA_DEVICE static int own_row() { return thread_index() / pieces; }
  FOVEA_DEVICE static int own_column() { return thread_index() % pieces * Piece::width; }
  FOVEA_DEVICE static long long element(const Arguments& a, const typename Formula::Uniform& u,
                                        const TileBox& at, int row, int column) {
    typename Formula::Row row_value{};
    typename Formula::Column column_value{};
    row_value.q = seen(row, at.q_first);
    column_value.k = seen(column, at.k_first);
    return element_of<Term>({a, u, row_value, column_value, 0, 0, true, 0, 0});
  }
};

}  // namespace fovea::device
