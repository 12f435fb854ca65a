// What the host passes to every kernel of one call, as one block of kernel parameters. Shared with
// the host's side, so it includes nothing and uses plain types only. Strides and offsets count
// elements.
#pragma once

namespace fovea::device {

// A value of this call: `value`, or what lies at `device` when the kernel runs.
template <class T>
struct PerCall {
  const T* device;  // null: `value` holds it
  T value;
};

// One of the eight tensors over positions and features. Under packed sequences there is one batch.
struct TensorArgument {
  void* data;
  long long batch, head, position, feature;  // strides
  // The widest copy that the address, all strides and the rows allow: 16, 8 or 4 bytes; 0: element
  // by element (a feature stride other than 1, or an odd address).
  int copy_bytes;
};

struct CallArguments {
  TensorArgument q, k, v, o, grad_o, grad_q, grad_k, grad_v;

  // Rows of (b, h, q): [B, H, Sq], or [H, T] if packed; null: not there.
  float* lse;
  const float* grad_lse;
  float* row_max;
  float* max_logit;   // [H]
  const float* sink;  // [H]
  float* grad_sink;   // [H]

  const int* q_lengths;  // [B] or null
  const int* k_lengths;
  const int* q_starts;  // [B + 1] if packed, else null
  const int* k_starts;
  const int* q_offsets;  // [B] or null: then q_offset
  const int* k_offsets;

  int b, h, hkv, sq, skv, d, dv;
  int group;         // h / hkv
  int heads_seen;    // what formulas read as H
  long long rows_q;  // rows of q in one batch of the tensors: sq, packed t_q
  long long rows_k;

  PerCall<float> scale, dropout;
  PerCall<unsigned long long> seed, offset;
  PerCall<int> b_offset, h_offset, q_offset, k_offset;

  // Workspace; null if the plan has no use for it.
  float* delta;       // backward: rows of dot(dO, O) - dlse, as lse lies
  float* grad_q_sum;  // backward with atomics: dQ in f32, in the order of backward.h
  // Sums of captured gradients that backward_delta.h clears, and how many pieces of 16 bytes they
  // have; 0: none is to be cleared.
  void* captured_sums;
  long long captured_pieces;
  // For hopper/backward.h: -lse in powers of two and delta, by tiles of dQ's sums; whether the 16
  // keys of a warp have a NaN, [b, hkv, tile, 8]; how many tiles of keys blocks have taken.
  float* row_terms;
  unsigned* key_nans;
  unsigned* tile_counter;
  unsigned* query_turns;  // if it is deterministic: see hopper/backward_turns.h
  // Decoding with split keys: see decode.h.
  float* partial_o;      // [slot, kv head, row, dv]
  double* partial_rows;  // [slot, kv head, row, 2]: lse and maximum, in natural units
  int split_keys;        // keys of a split, a multiple of 64; 0: nothing is split
  // For hopper/forward.h, whose blocks take tiles of queries as they come: how many were taken,
  // then, for each, the block that took it. All zero before the kernel runs.
  unsigned* taken_tiles;
  // If queries are few, heads of a group share each of these tiles, one head's rows behind those of
  // another: how many heads, how many queries of each, and h / tile_heads.
  int tile_heads, tile_queries, head_tiles;
  unsigned* distances;  // values of the formula by k - q: see distances.h
  // For hopper/backward.h: elements from one slice to the next of the captured tensor t[..., q,
  // ..., k] that is copied by its map.
  long long cell_slices;
};

// A tensor as the hardware copies tiles of it. Made by the driver (cuda/driver.h); nobody else
// looks inside.
struct alignas(64) TensorMap {
  unsigned long long words[16];
};

// Where CallArguments::distances has its values. A tile of hopper/backward.h copies those of its 64
// + 128 diagonals at once, so its first one lies at a multiple of 16 bytes, and there is room for
// diagonals beyond the sequences.
constexpr int distance_lead(int sq) { return 64 + (4 - sq % 4) % 4; }
// The value for k - q = difference. Word w lies w * distance_stride behind word 0.
constexpr int distance_place(int sq, int difference) {
  return distance_lead(sq) + sq - 1 + difference;
}
constexpr int distance_stride(int sq, int skv) {
  return (distance_lead(sq) + sq + skv + 128 + 3) / 4 * 4;
}

// `words_` 8-byte words follow, laid out by the renderer (engines/jit/render): captured tensors
// (address, then extent and stride of each index), their gradients, scalars (device address, then
// the value's bits), minima and maxima per tile.
template <int words_>
struct ArgumentsOf {
  CallArguments call;
  long long words[words_ > 0 ? words_ : 1];
};

// The tensors that a call's tiles are copied from, before the arguments of kernels that do so.
enum MapIndex { map_q, map_k, map_v, map_grad_o, map_cells, map_count };
template <class Arguments>
struct MappedArgumentsOf {
  TensorMap maps[map_count];
  Arguments rest;
};

}  // namespace fovea::device
