// The asynchronous operations of a block: barriers in shared memory (mbarrier), named barriers,
// copies of tiles (TMA), bulk additions to global memory, and cp.async. An operation that was begun
// is carried out at a random time, at the latest when somebody waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/ir/random.h"
#include "tests/jit_host/machine.h"
#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {

using Threads = std::vector<int>;  // numbers of threads that need not wait any more

class Async {
 public:
  explicit Async(SharedMemory& memory) : memory_(memory) {}

  void begin_block(test::Random& random);
  void end_block() const;  // throws Mistake if something is still under way

  // What returns Threads names those that may continue after it.
  void init(unsigned at, int arrivals, const User& user, Where where);
  Threads arrive(unsigned at, int bytes, const User& user, Where where);
  // Returns whether the phase has ended. If not, the thread is listed as waiting for it.
  bool wait(unsigned at, int parity, const User& user, Where where);
  Threads named(bool waits, int id, int threads, const User& user, Where where);

  void load_tile(const TileLoad& load, const User& user, Where where);
  void bulk(const BulkCall& call, const User& user, Where where);

  bool has_work() const { return !loads_.empty(); }
  Threads do_some();  // carries out one operation, chosen at random
  std::string waits_for(unsigned at) const;

 private:
  struct Barrier {
    int arrivals = 0, pending = 0, phase = 0;
    long bytes = 0;
    Clock gathered, known;
    Threads waiting;
  };
  struct Named {
    int arrived = 0, threads = 0;
    Clock gathered;
    Threads waiting;
    std::vector<User> users;
  };
  struct Load {
    TensorMapWords map;
    unsigned to, barrier;
    int at[5];
    Where where;
  };
  struct Sum {
    float* to;
    unsigned from;
    int bytes, group, thread;
    Where where;
    bool added;
  };

  Barrier& barrier(unsigned at, Where where);
  Threads complete(Barrier& barrier);
  static long bytes_of(const TensorMapWords& map);
  template <class Visit>  // visit(place of 16 bytes, index of the box's first element in it)
  void visit_pieces(const Load& load, const Visit& visit) const;
  void write_piece(const Load& load, unsigned at, std::uint64_t first);
  void add_sum(Sum& sum);

  SharedMemory& memory_;
  test::Random* random_ = nullptr;
  std::map<unsigned, Barrier> barriers_;
  std::map<int, Named> named_;
  std::vector<Load> loads_;
  std::vector<Sum> sums_;
  std::map<int, int> groups_;  // by thread: the group of sums that is being filled
  std::uint64_t tick_ = 0;     // copies of tiles that have ended
};

// The cp.async copies of one GPU thread. They are queued in groups, and carried out at the latest
// when the thread waits for their group.
struct Copy {
  const void* from;
  unsigned to;
  int bytes, valid;
  bool at_once;  // carried out when it is issued, although nobody may rely on that
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
