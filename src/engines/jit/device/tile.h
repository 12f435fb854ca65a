// Tiles of matrices in shared memory: copied from global memory, and multiplied into sums in
// registers.
//
// A warp's sums are float[m][n][4]: m x n pieces of 16 x 8, each as multiply_add lays it out. With
// row = lane / 4 and t = lane % 4, sum[i][j][e] is the element in row 16 i + row + 8 (e / 2) and
// column 8 j + 2 t + e % 2. The f32 products, which the matrix units cannot do exactly, use the
// same layout with plain FMAs.
#pragma once

#include "arguments.h"
#include "element.h"
#include "primitives.h"
#include "shared_layout.h"
#include "team.h"

namespace fovea::device {

template <class Element_, int columns_>
struct SharedTile {
  using Element = Element_;
  static constexpr int columns = columns_;
  static constexpr int stride = row_bytes(columns, bytes_of<Element>);
  Shared base;
  FOVEA_DEVICE Shared at(int row, int column) const {
    return base + row * stride + column * bytes_of<Element>;
  }
};

template <int m, int n>
FOVEA_DEVICE void clear(float (&sum)[m][n][4]) {
  FOVEA_UNROLL for (int i = 0; i < m; ++i) {
    FOVEA_UNROLL for (int j = 0; j < n; ++j) {
      FOVEA_UNROLL for (int e = 0; e < 4; ++e) sum[i][j][e] = 0;
    }
  }
}

// The largest sum in row lane / 4 + 8 r of a piece of 16 rows, or of its first 8 * count columns.
template <int count = 0, int n>
FOVEA_DEVICE float row_maximum(const float (&piece)[n][4], int r) {
  float most = fmaxf(piece[0][2 * r], piece[0][2 * r + 1]);
  FOVEA_UNROLL for (int j = 1; j < (count > 0 ? count : n); ++j) {
    most = fmaxf(most, fmaxf(piece[j][2 * r], piece[j][2 * r + 1]));
  }
  most = fmaxf(most, shuffle_xor(most, 1));
  return fmaxf(most, shuffle_xor(most, 2));
}

// --- copies ---

// Part of one head of a tensor: rows from `data` on, `row_stride` elements apart.
struct Rows {
  const void* data;
  long long row_stride, column_stride;
  int rows, columns;  // that exist; what a tile has beyond is zeros
  int copy_bytes;
};

template <class Element>
FOVEA_DEVICE Rows rows_of(const TensorArgument& tensor, int b, int head, long long first_row,
                          int rows, int columns) {
  const auto* const data = static_cast<const typename Stored<Element>::Type*>(tensor.data);
  return {data + b * tensor.batch + head * tensor.head + first_row * tensor.position,
          tensor.position,
          tensor.feature,
          rows < 0 ? 0 : rows,
          columns,
          tensor.copy_bytes};
}

// In pieces of 16, 8 or 4 bytes. What does not exist is zeros.
template <int bytes, class Tile>
FOVEA_DEVICE_CALL void copy_pieces(Tile to, int tile_rows, Rows from, Team team) {
  constexpr int element_bytes = bytes_of<typename Tile::Element>;
  constexpr int pieces = Tile::columns * element_bytes / bytes;
  FOVEA_NO_UNROLL for (int i = team.thread; i < tile_rows * pieces; i += team.threads) {
    const int row = i / pieces, column = i % pieces * (bytes / element_bytes);
    int valid = row < from.rows ? (from.columns - column) * element_bytes : 0;
    valid = valid < 0 ? 0 : valid > bytes ? bytes : valid;
    const char* source = static_cast<const char*>(from.data);
    if (valid > 0) source += (row * from.row_stride + column) * element_bytes;
    copy_async<bytes>(to.at(row, column), source, valid);
  }
}

// Element by element, from any strides and any type.
template <class Source, class Tile>
FOVEA_DEVICE_CALL void copy_elements(Tile to, int tile_rows, Rows from, Team team) {
  using Element = typename Tile::Element;
  FOVEA_NO_UNROLL for (int i = team.thread; i < tile_rows * Tile::columns; i += team.threads) {
    const int row = i / Tile::columns, column = i % Tile::columns;
    float value = 0;
    if (row < from.rows && column < from.columns) {
      value = read_element<Source>(from.data, row * from.row_stride + column * from.column_stride);
    }
    store_shared(to.at(row, column), from_float<Element>(value));
  }
}

// A tile at the edge of a tensor, or of one whose strides and address allow no wide copies.
template <class Source, class Tile>
FOVEA_DEVICE_CALL void copy_any_tile(Tile to, int tile_rows, Rows from, Team team) {
  if constexpr (is_same_element<Source, typename Tile::Element>) {
    if (from.copy_bytes == 16) return copy_pieces<16>(to, tile_rows, from, team);
    if (from.copy_bytes == 8) return copy_pieces<8>(to, tile_rows, from, team);
    if (from.copy_bytes == 4) return copy_pieces<4>(to, tile_rows, from, team);
  }
  copy_elements<Source>(to, tile_rows, from, team);
}

// Where a thread's part of a whole tile begins: its pieces of 16 bytes lie one below the other.
template <int threads, class Tile>
struct WholeTile {
  static constexpr int wide = 16 / bytes_of<typename Tile::Element>;
  static constexpr int pieces = Tile::columns / wide;
  static constexpr bool exists = threads % pieces == 0;  // else a tile is copied as any other
  static constexpr int step = exists ? threads / pieces : 1;
  FOVEA_DEVICE static int row(int thread) { return thread / pieces; }
  FOVEA_DEVICE static int column(int thread) { return thread % pieces * wide; }
};

// A tile of which nothing is missing, in pieces of 16 bytes; `own` is where this thread begins.
template <int tile_rows, int threads, class Tile>
FOVEA_DEVICE void copy_whole_tile(const Tile& to, const char* own, long long row_bytes,
                                  int thread) {
  using Whole = WholeTile<threads, Tile>;
  static_assert(tile_rows % Whole::step == 0);
  const Shared place = to.at(Whole::row(thread), Whole::column(thread));
  FOVEA_UNROLL for (int i = 0; i < tile_rows / Whole::step; ++i) {
    copy_async<16>(place + i * Whole::step * Tile::stride, own, 16);
    own += Whole::step * row_bytes;
  }
}

// Begins to fill a tile of tile_rows rows; ends with the next commit_copies and its wait (and, for
// others, a barrier). `threads` threads take part, this one as number `thread`. `Source` is what
// the tensor is stored in, if it differs from the tile.
template <class Source, int tile_rows, int threads, class Tile>
FOVEA_DEVICE void copy_tile(const Tile& to, const Rows& from, int thread) {
  using Whole = WholeTile<threads, Tile>;
  constexpr int element_bytes = bytes_of<typename Tile::Element>;
  if constexpr (is_same_element<Source, typename Tile::Element> && Whole::exists &&
                tile_rows % Whole::step == 0) {
    if (from.copy_bytes == 16 && from.rows >= tile_rows && from.columns >= Tile::columns) {
      const long long row_bytes = from.row_stride * element_bytes;
      const char* const own = static_cast<const char*>(from.data) + Whole::row(thread) * row_bytes +
                              Whole::column(thread) * element_bytes;
      return copy_whole_tile<tile_rows, threads>(to, own, row_bytes, thread);
    }
  }
  copy_any_tile<Source>(to, tile_rows, from, Team{thread, threads});
}

// --- products ---

// Where a factor lies in its tile. Plain: element (i, k) of the left factor, or (k, j) of the right
// one, is in row i or j of the tile and column k. Transposed: in row k, column i or j.
struct Corner {
  int row, column;
};

// sum += left * right over `depth` steps of k, on the matrix units.
template <bool left_transposed, bool right_transposed, int depth, class Left, class Right, int m,
          int n>
FOVEA_DEVICE void multiply_16_bit(float (&sum)[m][n][4], const Left& left, Corner a,
                                  const Right& right, Corner b) {
  static_assert(n % 2 == 0 && depth % 16 == 0);
  const int lane = lane_index();
  const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const Shared left_at = left_transposed ? left.at(a.row + low + high, a.column + middle)
                                         : left.at(a.row + low + middle, a.column + high);
  const Shared right_at = right_transposed ? right.at(b.row + low + middle, b.column + high)
                                           : right.at(b.row + low + high, b.column + middle);
  FOVEA_UNROLL for (int k = 0; k < depth; k += 16) {
    unsigned l[m][4];
    FOVEA_UNROLL for (int i = 0; i < m; ++i) {
      if constexpr (left_transposed) {
        load_matrices_transposed(l[i], left_at + k * Left::stride + 16 * i * 2);
      } else {
        load_matrices(l[i], left_at + 16 * i * Left::stride + k * 2);
      }
    }
    FOVEA_UNROLL for (int j = 0; j < n; j += 2) {
      unsigned r[4];
      if constexpr (right_transposed) {
        load_matrices_transposed(r, right_at + k * Right::stride + 8 * j * 2);
      } else {
        load_matrices(r, right_at + 8 * j * Right::stride + k * 2);
      }
      FOVEA_UNROLL for (int i = 0; i < m; ++i) {
        multiply_add(typename Left::Element{}, sum[i][j], l[i], r[0], r[1]);
        multiply_add(typename Left::Element{}, sum[i][j + 1], l[i], r[2], r[3]);
      }
    }
  }
}

// The same in f32, with FMAs: four steps of k at a time if both factors have them in a row.
template <bool left_transposed, bool right_transposed, int depth, class Left, class Right, int m,
          int n>
FOVEA_DEVICE void multiply_32_bit(float (&sum)[m][n][4], const Left& left, Corner a,
                                  const Right& right, Corner b) {
  static_assert(depth % 4 == 0);
  const int row = lane_index() / 4, t = lane_index() % 4;
  FOVEA_NO_UNROLL
  for (int k = 0; k < depth; k += 4) {
    float l[m][2][4];
    FOVEA_UNROLL for (int i = 0; i < 2 * m; ++i) {
      const int at = 16 * (i / 2) + 8 * (i % 2) + row;
      if constexpr (left_transposed) {
        FOVEA_UNROLL for (int s = 0; s < 4; ++s) {
          l[i / 2][i % 2][s] = load_shared<float>(left.at(a.row + k + s, a.column + at));
        }
      } else {
        const auto four = load_shared<Floats4>(left.at(a.row + at, a.column + k));
        l[i / 2][i % 2][0] = four.x, l[i / 2][i % 2][1] = four.y;
        l[i / 2][i % 2][2] = four.z, l[i / 2][i % 2][3] = four.w;
      }
    }
    FOVEA_UNROLL for (int j = 0; j < n; ++j) {
      float r[4][2];
      if constexpr (right_transposed) {
        FOVEA_UNROLL for (int s = 0; s < 4; ++s) {
          const auto two = load_shared<Words2>(right.at(b.row + k + s, b.column + 8 * j + 2 * t));
          r[s][0] = float_of_bits(two.x), r[s][1] = float_of_bits(two.y);
        }
      } else {
        FOVEA_UNROLL for (int c = 0; c < 2; ++c) {
          const auto four = load_shared<Floats4>(right.at(b.row + 8 * j + 2 * t + c, b.column + k));
          r[0][c] = four.x, r[1][c] = four.y, r[2][c] = four.z, r[3][c] = four.w;
        }
      }
      FOVEA_UNROLL for (int i = 0; i < m; ++i) {
        FOVEA_UNROLL for (int s = 0; s < 4; ++s) {
          FOVEA_UNROLL for (int e = 0; e < 4; ++e) {
            sum[i][j][e] = fma_rn(l[i][e / 2][s], r[s][e % 2], sum[i][j][e]);
          }
        }
      }
    }
  }
}

template <bool left_transposed, bool right_transposed, int depth, class Left, class Right, int m,
          int n>
FOVEA_DEVICE void multiply(float (&sum)[m][n][4], const Left& left, Corner a, const Right& right,
                           Corner b) {
  if constexpr (bytes_of<typename Left::Element> == 4) {
    multiply_32_bit<left_transposed, right_transposed, depth>(sum, left, a, right, b);
  } else {
    multiply_16_bit<left_transposed, right_transposed, depth>(sum, left, a, right, b);
  }
}

// sum += p * right, with p in a warp's registers as the sums of an earlier product, rounded to the
// tile's 16-bit type here. `right` is transposed: its rows are the steps of k.
template <class Right, int m, int n, int keys>
FOVEA_DEVICE void multiply_registers(float (&sum)[m][n][4], const float (&p)[m][keys][4],
                                     const Right& right, Corner b) {
  using Element = typename Right::Element;
  const int lane = lane_index();
  const Shared right_at = right.at(b.row + lane % 16, b.column + lane / 16 * 8);
  FOVEA_UNROLL for (int k = 0; k < keys; k += 2) {
    unsigned l[m][4];
    FOVEA_UNROLL for (int i = 0; i < m; ++i) {
      l[i][0] = pack(Element{}, p[i][k][0], p[i][k][1]);
      l[i][1] = pack(Element{}, p[i][k][2], p[i][k][3]);
      l[i][2] = pack(Element{}, p[i][k + 1][0], p[i][k + 1][1]);
      l[i][3] = pack(Element{}, p[i][k + 1][2], p[i][k + 1][3]);
    }
    FOVEA_UNROLL for (int j = 0; j < n; j += 2) {
      unsigned r[4];
      load_matrices_transposed(r, right_at + 8 * k * Right::stride + 8 * j * 2);
      FOVEA_UNROLL for (int i = 0; i < m; ++i) {
        multiply_add(Element{}, sum[i][j], l[i], r[0], r[1]);
        multiply_add(Element{}, sum[i][j + 1], l[i], r[2], r[3]);
      }
    }
  }
}

// Writes sums into a tile of the same type or rounded to its 16 bits.
template <class To, int m, int n>
FOVEA_DEVICE void store_sums(const To& to, Corner at, const float (&sum)[m][n][4]) {
  using Element = typename To::Element;
  const int row = lane_index() / 4, t = lane_index() % 4;
  FOVEA_UNROLL for (int i = 0; i < m; ++i) {
    FOVEA_UNROLL for (int j = 0; j < n; ++j) {
      FOVEA_UNROLL for (int r = 0; r < 2; ++r) {
        const Shared place = to.at(at.row + 16 * i + 8 * r + row, at.column + 8 * j + 2 * t);
        if constexpr (bytes_of<Element> == 4) {
          store_shared(place, Words2{bits_of(sum[i][j][2 * r]), bits_of(sum[i][j][2 * r + 1])});
        } else {
          store_shared(place, pack(Element{}, sum[i][j][2 * r], sum[i][j][2 * r + 1]));
        }
      }
    }
  }
}

// Where results go: rows of one head of a tensor.
struct RowsOut {
  void* data;
  long long row_stride, column_stride;
  int columns;
  bool wide;  // 16 bytes at a time
};

template <class Output>
FOVEA_DEVICE RowsOut rows_out(const TensorArgument& tensor, int b, int head, long long first_row,
                              int columns) {
  auto* const data = static_cast<typename Stored<Output>::Type*>(tensor.data);
  return {data + b * tensor.batch + head * tensor.head + first_row * tensor.position,
          tensor.position, tensor.feature, columns,
          tensor.copy_bytes == 16 && columns % (16 / bytes_of<Output>) == 0};
}

// What the rows of a warp's sums are multiplied by as they are written. Lane 4 (row % 8) + row / 8
// has the factor of a row, counted from the first piece on.
struct RowFactor {
  float own;
  int piece;     // which 16 rows
  int zero = 0;  // 1: the row is zeros, whatever its sums are
};

// From f32 in shared memory, by a warp, `step` neighbours at a time: 16 bytes of them, or one. Says
// whether this lane has written a NaN.
template <class Output, int step, int columns>
FOVEA_DEVICE bool write_rows_by(const SharedTile<F32, columns>& from, const RowsOut& to, int inside,
                                int end, const RowFactor& factor) {
  constexpr int pieces = columns / step;
  auto* const data = static_cast<typename Stored<Output>::Type*>(to.data);
  bool nan = false;
  FOVEA_NO_UNROLL for (int first = 0; first < 16 * pieces; first += 32) {
    const int row = (first + lane_index()) / pieces % 16;
    const int column = (first + lane_index()) % pieces * step;
    const int owner = row % 8 * 4 + 2 * factor.piece + row / 8;
    const float by = shuffle(factor.own, owner);
    const bool zero = shuffle(factor.zero, owner) != 0 || row >= inside;
    // A narrow piece has work for half of the lanes.
    if (first + lane_index() >= 16 * pieces || row >= end || column >= to.columns) continue;
    float x[step];
    if constexpr (step == 1) {
      x[0] = load_shared<float>(from.at(row, column));
    } else {
      FOVEA_UNROLL for (int k = 0; k < step; k += 4) {
        const auto four = load_shared<Floats4>(from.at(row, column + k));
        x[k] = four.x, x[k + 1] = four.y, x[k + 2] = four.z, x[k + 3] = four.w;
      }
    }
    FOVEA_UNROLL for (int k = 0; k < step; ++k) {
      x[k] = zero ? 0.0f : x[k] * by;
      nan |= x[k] != x[k];
    }
    if constexpr (step == 1) {
      write_element<Output>(data, row * to.row_stride + column * to.column_stride, x[0]);
    } else {
      Words4 words;
      if constexpr (step == 4) {
        words = {bits_of(x[0]), bits_of(x[1]), bits_of(x[2]), bits_of(x[3])};
      } else {
        words = {pack(Output{}, x[0], x[1]), pack(Output{}, x[2], x[3]), pack(Output{}, x[4], x[5]),
                 pack(Output{}, x[6], x[7])};
      }
      *reinterpret_cast<Words4*>(data + row * to.row_stride + column) = words;
    }
  }
  return nan;
}

// Called, not inlined: it ends kernels whose code and registers are for something else.
template <class Output, int columns>
FOVEA_DEVICE_CALL bool write_rows_from(SharedTile<F32, columns> from, RowsOut to, int inside,
                                       int end, RowFactor factor) {
  if (to.wide) return write_rows_by<Output, 16 / bytes_of<Output>>(from, to, inside, end, factor);
  return write_rows_by<Output, 1>(from, to, inside, end, factor);
}

// Writes 16 x 8n sums of a warp through 16 rows of f32 in shared memory that belong to this warp:
// whole lines reach global memory. Rows from `inside` on are written as zeros, those from `end` on
// not at all. Says whether this lane has written a NaN.
template <class Output, int n>
FOVEA_DEVICE bool write_sums(const SharedTile<F32, 8 * n>& through, const float (&sum)[n][4],
                             const RowsOut& to, int inside, int end, const RowFactor& factor) {
  const float(&one)[1][n][4] = reinterpret_cast<const float(&)[1][n][4]>(sum);
  store_sums(through, {0, 0}, one);
  sync_warp();
  const bool nan = write_rows_from<Output>(through, to, inside, end, factor);
  sync_warp();
  return nan;
}

}  // namespace fovea::device
