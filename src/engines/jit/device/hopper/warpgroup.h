// Four warps in a row: they multiply together (wgmma.h), and take registers from each other.
//
// Tests replace these functions: FOVEA_HOST_HOPPER names the header of theirs.
#pragma once

#if defined(FOVEA_HOST_HOPPER)
#include FOVEA_HOST_HOPPER
#else

#include "../primitives.h"

namespace fovea::device {

// The same in all lanes, and the compiler knows it: what is computed from it needs no registers of
// its own in each lane.
FOVEA_DEVICE int warpgroup_index() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }
FOVEA_DEVICE int warp_index() { return __shfl_sync(~0u, threadIdx.x / 32, 0); }

// As thread_index(), but what follows from it is computed again in every turn of a loop: that takes
// no registers from turn to turn.
FOVEA_DEVICE int thread_index_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Barrier `id` of a block, 1 to 15, for `threads` threads: those that wait and those that arrive
// only.
FOVEA_DEVICE void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
FOVEA_DEVICE void arrive_threads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// From here on a thread has so many registers, a multiple of 8. All warps of a warpgroup, once; a
// kernel that does so must say that one block is all that a multiprocessor takes.
template <int registers>
FOVEA_DEVICE void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
FOVEA_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// Four 8 x 8 matrices of 16-bit elements to shared memory: what load_matrices is the other way
// round. Lane l gives the address of row l % 8 of matrix l / 8.
FOVEA_DEVICE void store_matrices(Shared row, const unsigned (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_base() + row),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace fovea::device

#endif
