// The asynchronous copies of one GPU thread: queued where they are issued, in groups, and done at
// the latest when the thread waits for their group.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {

struct Copy {
  const void* from;
  unsigned to;
  int bytes, valid;
  bool at_once;  // the bytes arrive when it is issued, though nobody may rely on that
};

class Copies {
 public:
  void clear();
  void issue(SharedMemory& memory, const Copy& copy, const User& user, Where where);
  void commit() { ++group_; }
  // Until at most `pending` committed groups are under way.
  void wait(SharedMemory& memory, int pending, const User& user);

 private:
  struct Queued {
    Copy copy;
    int group;
    Where where;
  };
  std::vector<Queued> queue_;
  std::size_t first_ = 0;  // not yet waited for
  int group_ = 0;          // the one that is being filled
};

}  // namespace fovea::on_host
