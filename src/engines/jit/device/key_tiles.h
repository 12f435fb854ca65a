// Copies tiles of a head's keys and values into shared memory. Nearly all are whole and allow wide
// copies; these are copied from an address that each thread computes once.
#pragma once

#include "sequence.h"
#include "tile.h"

namespace fovea::device {

template <class Element, class KeyTile, class ValueTile, int columns, int threads>
struct KeyTiles {
  int whole;                  // keys before this one are in whole tiles
  const char *k_own, *v_own;  // where this thread's part of the first of them begins
  int head, dv_first;

  FOVEA_DEVICE void find(const CallArguments& call, const Sequence& s, int kv_head,
                         int first_feature) {
    using Keys = WholeTile<threads, KeyTile>;
    using Values = WholeTile<threads, ValueTile>;
    head = kv_head;
    dv_first = first_feature;
    whole = 0;
    if constexpr (Keys::exists && Values::exists && columns % Keys::step == 0 &&
                  columns % Values::step == 0) {
      const bool wide = call.k.copy_bytes == 16 && call.v.copy_bytes == 16 &&
                        call.d == KeyTile::columns && call.dv - dv_first >= ValueTile::columns;
      whole = wide ? s.k_length / columns * columns : 0;
      k_own = own_part<Keys>(call.k, s, 0);
      v_own = own_part<Values>(call.v, s, dv_first);
    }
  }

  // `sequence()` is asked only for tiles that are not whole.
  template <class SequenceOf>
  FOVEA_DEVICE void copy_keys(const CallArguments& call, const SequenceOf& sequence, int k0,
                              const KeyTile& to) const {
    if (k0 < whole) return copy_own(call.k, k_own, k0, to);
    const Sequence s = sequence();
    copy_any_tile<Element>(
        to, columns, rows_of<Element>(call.k, s.b, head, s.k_first + k0, s.k_length - k0, call.d),
        Team{thread_index(), threads});
  }
  template <class SequenceOf>
  FOVEA_DEVICE void copy_values(const CallArguments& call, const SequenceOf& sequence, int k0,
                                const ValueTile& to) const {
    if (k0 < whole) return copy_own(call.v, v_own, k0, to);
    const Sequence s = sequence();
    Rows from =
        rows_of<Element>(call.v, s.b, head, s.k_first + k0, s.k_length - k0, call.dv - dv_first);
    from.data =
        static_cast<const typename Stored<Element>::Type*>(from.data) + dv_first * call.v.feature;
    copy_any_tile<Element>(to, columns, from, Team{thread_index(), threads});
  }

 private:
  template <class Whole>
  FOVEA_DEVICE const char* own_part(const TensorArgument& tensor, const Sequence& s,
                                    int first) const {
    const auto* const data = static_cast<const typename Stored<Element>::Type*>(tensor.data);
    return reinterpret_cast<const char*>(data + s.b * tensor.batch + head * tensor.head +
                                         (s.k_first + Whole::row(thread_index())) *
                                             tensor.position +
                                         first + Whole::column(thread_index()));
  }
  template <class Tile>
  FOVEA_DEVICE static void copy_own(const TensorArgument& tensor, const char* own, int k0,
                                    const Tile& to) {
    const long long row_bytes = tensor.position * bytes_of<Element>;
    copy_whole_tile<columns, threads>(to, own + k0 * row_bytes, row_bytes, thread_index());
  }
};

}  // namespace fovea::device
