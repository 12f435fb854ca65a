// The primitives of src/engines/jit/device/hopper for the host's compiler: mbarrier.h, tma.h,
// warpgroup.h and wgmma.h include this header instead if FOVEA_HOST_HOPPER names it. What is
// asynchronous on a GPU is so here: see async.h and tile_products.h.
#pragma once

#include "primitives_host.h"

namespace fovea::device {

struct TensorMap;

// --- barriers in shared memory ---
FOVEA_DEVICE void init_barrier(Shared at, int arrivals, FOVEA_WHERE) {
  machine->barrier({on_host::BarrierAct::Init, at, arrivals}, {file, line});
}
FOVEA_DEVICE void publish_barriers(FOVEA_WHERE) {
  machine->barrier({on_host::BarrierAct::Publish, 0, 0}, {file, line});
}
FOVEA_DEVICE void arrive(Shared at, FOVEA_WHERE) {
  machine->barrier({on_host::BarrierAct::Arrive, at, 0}, {file, line});
}
FOVEA_DEVICE void arrive_expecting(Shared at, int bytes, FOVEA_WHERE) {
  machine->barrier({on_host::BarrierAct::ArriveExpecting, at, bytes}, {file, line});
}
FOVEA_DEVICE void wait_for(Shared at, int parity, FOVEA_WHERE) {
  machine->barrier({on_host::BarrierAct::Wait, at, parity}, {file, line});
}

// --- copies of tiles ---
FOVEA_DEVICE void prefetch_map(const TensorMap&) {}
template <int rank>
FOVEA_DEVICE void load_tile(Shared to, const TensorMap& map, Shared barrier, const int (&at)[rank],
                            FOVEA_WHERE) {
  static_assert(rank >= 2 && rank <= 5);
  machine->load_tile({to, &map, barrier, at, rank}, {file, line});
}
// As a box that is a whole tensor with one index.
FOVEA_DEVICE void load_bytes(Shared to, const void* from, int bytes, Shared barrier, FOVEA_WHERE) {
  on_host::TensorMapWords words{};
  words.data = reinterpret_cast<unsigned long long>(from);
  words.extent[0] = words.box[0] = static_cast<unsigned>(bytes) / 4;
  words.rank = 1;
  words.element_bytes = 4;
  words.mark = on_host::map_mark;
  const int at = 0;
  machine->load_tile({to, &words, barrier, &at, 1}, {file, line});
}
FOVEA_DEVICE void fence_for_async() { machine->fence_for_async(); }
FOVEA_DEVICE void add_bulk(float* to, Shared from, int bytes, FOVEA_WHERE) {
  machine->bulk({on_host::BulkAct::Add, to, from, bytes}, {file, line});
}
FOVEA_DEVICE void commit_bulk(FOVEA_WHERE) {
  machine->bulk({on_host::BulkAct::Commit, nullptr, 0, 0}, {file, line});
}
template <int pending>
FOVEA_DEVICE void wait_bulk_read(FOVEA_WHERE) {
  machine->bulk({on_host::BulkAct::WaitRead, nullptr, 0, pending}, {file, line});
}
template <int pending>
FOVEA_DEVICE void wait_bulk(FOVEA_WHERE) {
  machine->bulk({on_host::BulkAct::Wait, nullptr, 0, pending}, {file, line});
}

// --- a warpgroup ---
// They are shuffles, as on a GPU, so that all lanes must call them.
FOVEA_DEVICE int warpgroup_index(FOVEA_WHERE) {
  return shuffled(Meeting::Shuffle, thread_index() / 128, 0, {file, line});
}
FOVEA_DEVICE int warp_index(FOVEA_WHERE) {
  return shuffled(Meeting::Shuffle, thread_index() / 32, 0, {file, line});
}
FOVEA_DEVICE int thread_index_again() { return thread_index(); }
FOVEA_DEVICE void sync_threads(int id, int threads, FOVEA_WHERE) {
  machine->named_barrier(true, id, threads, {file, line});
}
FOVEA_DEVICE void arrive_threads(int id, int threads, FOVEA_WHERE) {
  machine->named_barrier(false, id, threads, {file, line});
}
template <int registers>
FOVEA_DEVICE void give_registers_back() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
}
template <int registers>
FOVEA_DEVICE void take_registers() {
  static_assert(registers % 8 == 0 && registers >= 24 && registers <= 256);
}

// Lane l stores its words of row l / 4 of each matrix, to the address that another lane gives.
FOVEA_DEVICE void store_matrices(Shared row, const unsigned (&r)[4], FOVEA_WHERE) {
  for (int m = 0; m < 4; ++m) {
    const Shared to = shuffled(Meeting::Shuffle, row, 8 * m + lane_index() / 4, {file, line}) +
                      lane_index() % 4 * 4;
    store_shared(to, r[m], file, line);
  }
}

// --- products of a warpgroup ---
FOVEA_DEVICE unsigned shared_address(Shared at) { return at; }
FOVEA_DEVICE void fence_registers(FOVEA_WHERE) {
  machine->meet(Meeting::FenceRegisters, nullptr, {file, line});
}
FOVEA_DEVICE void commit_products(FOVEA_WHERE) {
  machine->meet(Meeting::CommitProducts, nullptr, {file, line});
}
template <int pending>
FOVEA_DEVICE void wait_products(FOVEA_WHERE) {
  int groups = pending;
  machine->meet(Meeting::WaitProducts, &groups, {file, line});
}
template <class T, int n>
FOVEA_DEVICE void settle(T (&)[n][4]) {}
FOVEA_DEVICE void settle(unsigned (&)[4]) {}

inline constexpr bool is_f16(F16) { return true; }
inline constexpr bool is_f16(BF16) { return false; }
template <bool transpose_a, bool transpose_b, class Element, int n8>
FOVEA_DEVICE void multiply_tiles(Element type, float (&d)[n8][4], unsigned long long a,
                                 unsigned long long b, bool add, FOVEA_WHERE) {
  static_assert(n8 % 2 == 0 && n8 <= 32);
  on_host::TileProduct product{d[0],         8 * n8,      nullptr,     a,  b,
                               is_f16(type), transpose_a, transpose_b, add};
  machine->meet(Meeting::MultiplyTiles, &product, {file, line});
}
template <bool transpose_a, bool transpose_b, class Element, int n8>
FOVEA_DEVICE void multiply_tiles(Element type, float (&d)[n8][4], const unsigned (&a)[4],
                                 unsigned long long b, bool add, FOVEA_WHERE) {
  static_assert(n8 % 2 == 0 && n8 <= 32 && !transpose_a);
  on_host::TileProduct product{d[0], 8 * n8, a, 0, b, is_f16(type), false, transpose_b, add};
  machine->meet(Meeting::MultiplyTiles, &product, {file, line});
}

}  // namespace fovea::device
