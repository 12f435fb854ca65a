// Copies of whole tiles that one thread starts and the hardware does: from a tensor in global
// memory to shared memory, and sums from shared memory to global memory. Elements outside a tensor
// read as zeros, and count among the bytes that a barrier expects.
//
// Tests replace these functions: FOVEA_HOST_HOPPER names the header of theirs.
#pragma once

#include "../arguments.h"

#if defined(FOVEA_HOST_HOPPER)
#include FOVEA_HOST_HOPPER
#else

#include "../primitives.h"

namespace fovea::device {

FOVEA_DEVICE unsigned long long address_of(const TensorMap& map) {
  return reinterpret_cast<unsigned long long>(&map);
}
FOVEA_DEVICE void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(address_of(map)) : "memory");
}

// Begins to copy a box of the tensor, the first element of which is at `at` (the fastest index
// first); the barrier gets its bytes. By one thread.
FOVEA_DEVICE void load_tile(Shared to, const TensorMap& map, Shared barrier, const int (&at)[2]) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_base() + to),
      "l"(address_of(map)), "r"(shared_base() + barrier), "r"(at[0]), "r"(at[1])
      : "memory");
}
FOVEA_DEVICE void load_tile(Shared to, const TensorMap& map, Shared barrier, const int (&at)[3]) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_base() + to),
      "l"(address_of(map)), "r"(shared_base() + barrier), "r"(at[0]), "r"(at[1]), "r"(at[2])
      : "memory");
}
FOVEA_DEVICE void load_tile(Shared to, const TensorMap& map, Shared barrier, const int (&at)[4]) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_base() + to),
      "l"(address_of(map)), "r"(shared_base() + barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3])
      : "memory");
}
FOVEA_DEVICE void load_tile(Shared to, const TensorMap& map, Shared barrier, const int (&at)[5]) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_base() + to),
      "l"(address_of(map)), "r"(shared_base() + barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]),
      "r"(at[3]), "r"(at[4])
      : "memory");
}

// Begins to copy bytes that lie one after the other; both addresses and their number are multiples
// of 16. By one thread.
FOVEA_DEVICE void load_bytes(Shared to, const void* from, int bytes, Shared barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_base() + to),
      "l"(from), "r"(bytes), "r"(shared_base() + barrier)
      : "memory");
}

// What threads have written to shared memory is seen by copies and by wgmma that begin after: by
// each thread that has written, before it tells others.
FOVEA_DEVICE void fence_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Begins to add f32 sums, one after the other, to global memory; both addresses and the number of
// bytes are multiples of 16. By one thread, which commits and waits for them in groups.
FOVEA_DEVICE void add_bulk(float* to, Shared from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared_base() + from), "r"(bytes)
      : "memory");
}
FOVEA_DEVICE void commit_bulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all but the last `pending` groups have read what they add: the place may be written again.
template <int pending>
FOVEA_DEVICE void wait_bulk_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Until all but the last `pending` groups are done.
template <int pending>
FOVEA_DEVICE void wait_bulk() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace fovea::device

#endif
