// Barriers in shared memory that count arrivals and bytes: the writer of a buffer tells its
// readers, and the readers the writer. A barrier is 8 bytes. It is in phase 0, 1, 2 ...; a phase
// ends when as many have arrived as init_barrier said and all bytes that were announced have come.
//
// Tests replace these functions: FOVEA_HOST_HOPPER names the header of theirs.
#pragma once

#if defined(FOVEA_HOST_HOPPER)
#include FOVEA_HOST_HOPPER
#else

#include "../primitives.h"

namespace fovea::device {

FOVEA_DEVICE void init_barrier(Shared at, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_base() + at), "r"(arrivals)
               : "memory");
}
// By whoever made barriers, after the last of them and before the sync_block that others wait for.
FOVEA_DEVICE void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
FOVEA_DEVICE void arrive(Shared at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_base() + at) : "memory");
}
// Arrives, and announces bytes that copies will bring.
FOVEA_DEVICE void arrive_expecting(Shared at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_base() + at),
               "r"(bytes)
               : "memory");
}
FOVEA_DEVICE bool phase_ended(Shared at, int parity) {
  unsigned ended;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(ended)
      : "r"(shared_base() + at), "r"(parity)
      : "memory");
  return ended != 0;
}
// Until the phase of this parity has ended. A barrier that is new behaves as if a phase of parity 1
// had ended before. A loop in C++, not a branch within the assembler, whose labels would clash if
// it is inlined twice.
FOVEA_DEVICE void wait_for(Shared at, int parity) {
  while (!phase_ended(at, parity)) {
  }
}

}  // namespace fovea::device

#endif

namespace fovea::device {

// Which of `stages` places comes next, and the parity of the phase that it is in. Whoever fills
// places begins with parity 1: all are free.
struct Ring {
  int stage = 0, parity = 0;
  FOVEA_DEVICE void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace fovea::device
