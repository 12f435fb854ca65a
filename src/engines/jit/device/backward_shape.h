// The tiles of backward.h: who computes which part of each product, and where everything lies in
// shared memory.
#pragma once

#include "backward_place.h"
#include "shared_layout.h"
#include "tile.h"

namespace fovea::device {

template <class Config>
struct BackwardShape {
  using Element = typename Config::Element;
  static constexpr int rows = Config::rows, columns = Config::columns;
  static constexpr int warps = Config::threads / 32;
  static constexpr int step = column_step<Element>;
  static constexpr BackwardShared shared{
      {warps, bytes_of<Element>, Config::d, Config::dv, rows, columns, Formula::row_words,
       Formula::column_words, Formula::diagonal_words, cell_bytes_of<Formula>},
      Config::q_stages,
      Config::grad_o_stages,
      Config::captured_bytes};
  using Scores = WarpPart<warps, rows, columns, step>;
  using KeySums = WarpPart<warps, columns, Config::d, step>;
  using ValueSums = WarpPart<warps, columns, Config::dv, step>;
  using QuerySums = QueryPart<Config>;
  using OfD = SharedTile<Element, Config::d>;
  using OfDv = SharedTile<Element, Config::dv>;
  using OfKeys = SharedTile<Element, columns>;  // P and dS
  static constexpr int q_bytes = rows * OfD::stride, grad_o_bytes = rows * OfDv::stride;
};

}  // namespace fovea::device
