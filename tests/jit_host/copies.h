// The asynchronous copies of one GPU thread: queued where they are issued, in groups, and done at
// the latest when the thread waits for their group.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {

class Copies {
 public:
  void clear();
  // `now`: the bytes arrive at once, though nobody may rely on it.
  void issue(SharedMemory& memory, unsigned to, const void* from, int bytes, int valid, bool now,
             const User& user, Where where);
  void commit() { ++group_; }
  // Until at most `pending` committed groups are under way.
  void wait(SharedMemory& memory, int pending, const User& user);

 private:
  struct Copy {
    const void* from;
    unsigned to, bytes, valid;
    bool arrived;
    unsigned group;
    Where where;
  };
  std::vector<Copy> queue_;
  std::size_t first_ = 0;  // not yet waited for
  unsigned group_ = 0;     // the one that is being filled
};

}  // namespace fovea::on_host
