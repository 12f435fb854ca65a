// One access to shared memory, and what it is compared with. Used by shared_memory and
// shared_async.
#pragma once

#include "tests/jit_host/mistake.h"
#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {

struct SharedMemory::Access {
  SharedAccess kind;
  unsigned at, bytes;
  Where where;
  Stamp mine;
  Stamp left;  // what a read leaves in the record
};

inline constexpr unsigned most_warp_epochs = (1u << 17) - 1;

inline SharedMemory::Access SharedMemory::access_of(SharedAccess kind, unsigned at, unsigned bytes,
                                                    const User& user, const Where& where) const {
  if (user.warp_epoch > most_warp_epochs) {
    throw Mistake("a warp passes more sync_warp than are counted at " + text(where));
  }
  const Stamp mine{epoch_,
                   user.warp_epoch,
                   static_cast<unsigned>(user.thread),
                   static_cast<unsigned>(where.line),
                   0,
                   0,
                   0};
  return {kind, at, bytes, where, mine, mine};
}

inline bool SharedMemory::comes_before(const Stamp& earlier, const Access& access) const {
  if (earlier.block != epoch_) return true;
  if (earlier.many == 2) return uses_clocks_ && all_come_before(earlier, access);
  if (earlier.thread / 32 != access.mine.thread / 32) {
    return uses_clocks_ &&
           clocks_[access.mine.thread / 32].of[earlier.thread / 32] >= time_of(earlier);
  }
  return earlier.warp < access.mine.warp ||
         (earlier.many == 0 && earlier.thread == access.mine.thread);
}

}  // namespace fovea::on_host
