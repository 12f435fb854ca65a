#include "tests/jit_host/async.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {
namespace {

std::string name_of(unsigned at) { return "the barrier at shared byte " + std::to_string(at); }

unsigned swizzled(unsigned at, std::uint32_t swizzle) {
  return swizzle == 3 ? at ^ (at >> 7 & 7) << 4 : at;
}

}  // namespace

void Async::begin_block(test::Random& random) {
  random_ = &random;
  barriers_.clear();
  named_.clear();
  loads_.clear();
  sums_.clear();
  groups_.clear();
  tick_ = 0;
}

void Async::end_block() const {
  if (!loads_.empty()) {
    throw Mistake("a block ends while a tile is copied to it, which was begun at " +
                  text(loads_.front().where));
  }
  for (const Sum& sum : sums_) {
    throw Mistake("a block ends while sums are added, which was begun at " + text(sum.where));
  }
  for (const auto& [at, barrier] : barriers_) {
    if (barrier.bytes != 0) {
      throw Mistake("a block ends while " + name_of(at) + waits_for(at));
    }
  }
}

// --- barriers ---

Async::Barrier& Async::barrier(unsigned at, Where where) {
  const auto found = barriers_.find(at);
  if (found == barriers_.end()) {
    throw Mistake("no barrier was made at shared byte " + std::to_string(at) + ", used at " +
                  text(where));
  }
  return found->second;
}

void Async::init(unsigned at, int arrivals, const User& user, Where where) {
  memory_.use_clocks();
  if (at % 8 != 0) throw Mistake(name_of(at) + " is misaligned, at " + text(where));
  const unsigned long long zero = 0;
  memory_.store(at, &zero, 8, user, where);  // other uses of this place are races
  barriers_[at] = {arrivals, arrivals, 0, 0, {}, {}, {}};
}

Threads Async::complete(Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return {};
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.known.join(barrier.gathered);
  barrier.gathered = {};
  return std::exchange(barrier.waiting, {});
}

Threads Async::arrive(unsigned at, int bytes, const User& user, Where where) {
  Barrier& barrier = this->barrier(at, where);
  if (barrier.pending == 0) {
    throw Mistake("thread " + std::to_string(user.thread) + " arrives at " + text(where) + " at " +
                  name_of(at) + ", where all " + std::to_string(barrier.arrivals) +
                  " of this phase have arrived");
  }
  --barrier.pending;
  barrier.bytes += bytes;
  barrier.gathered.join(memory_.clock_of(user));
  return complete(barrier);
}

bool Async::wait(unsigned at, int parity, const User& user, Where where) {
  Barrier& barrier = this->barrier(at, where);
  if ((barrier.phase & 1) != parity) {
    memory_.learn(user, barrier.known);
    return true;
  }
  barrier.waiting.push_back(user.thread);
  return false;
}

std::string Async::waits_for(unsigned at) const {
  const auto found = barriers_.find(at);
  if (found == barriers_.end()) return "";
  const Barrier& barrier = found->second;
  return " waits for " + std::to_string(barrier.pending) + " arrivals and " +
         std::to_string(barrier.bytes) + " bytes in phase " + std::to_string(barrier.phase);
}

Threads Async::named(bool waits, int id, int threads, const User& user, Where where) {
  memory_.use_clocks();
  if (id < 1 || id > 15 || threads % 32 != 0) {
    throw Mistake("named barrier " + std::to_string(id) + " for " + std::to_string(threads) +
                  " threads at " + text(where));
  }
  Named& barrier = named_[id];
  if (barrier.arrived > 0 && barrier.threads != threads) {
    throw Mistake("named barrier " + std::to_string(id) + " is for " +
                  std::to_string(barrier.threads) + " threads, but for " + std::to_string(threads) +
                  " at " + text(where));
  }
  barrier.threads = threads;
  barrier.gathered.join(memory_.clock_of(user));
  ++barrier.arrived;
  if (waits) {
    barrier.waiting.push_back(user.thread);
    barrier.users.push_back(user);
  }
  if (barrier.arrived < threads) return {};
  const Named ended = std::exchange(barrier, {});
  for (const User& one : ended.users) memory_.learn(one, ended.gathered);
  return ended.waiting;
}

// --- tiles ---

long Async::bytes_of(const TensorMapWords& map) {
  long bytes = map.element_bytes;
  for (std::uint32_t i = 0; i < map.rank; ++i) bytes *= map.box[i];
  return bytes;
}

template <class Visit>
void Async::visit_pieces(const Load& load, const Visit& visit) const {
  const auto pieces = static_cast<unsigned>(bytes_of(load.map) / 16);
  const std::uint64_t in_piece = 16 / load.map.element_bytes;
  for (unsigned i = 0; i < pieces; ++i) {
    visit(swizzled(load.to + 16 * i, load.map.swizzle), i * in_piece);
  }
}

void Async::load_tile(const TileLoad& load, const User& user, Where where) {
  Load queued{};
  std::memcpy(&queued.map, load.map, sizeof queued.map);
  if (queued.map.mark != map_mark || queued.map.rank != static_cast<unsigned>(load.rank)) {
    throw Mistake("load_tile at " + text(where) + " with a map that is none, or of another rank");
  }
  const unsigned aligned = load.rank == 1 ? 16 : queued.map.swizzle == 3 ? 1024 : 128;
  if (load.to % aligned != 0 || (load.rank == 1 && queued.map.data % 16 != 0)) {
    throw Mistake("load_tile at " + text(where) + " to shared byte " + std::to_string(load.to) +
                  ", which is misaligned");
  }
  this->barrier(load.barrier, where);
  queued.to = load.to;
  queued.barrier = load.barrier;
  queued.where = where;
  std::memcpy(queued.at, load.at, sizeof(int) * static_cast<std::size_t>(load.rank));
  visit_pieces(queued, [&](unsigned at, std::uint64_t) { memory_.begin_tile(at, user, where); });
  loads_.push_back(queued);
}

// 16 bytes of the box, from its element number `first` on. Elements outside of the tensor are 0.
void Async::write_piece(const Load& load, unsigned at, std::uint64_t first) {
  const TensorMapWords& map = load.map;
  unsigned char piece[16] = {};
  for (unsigned byte = 0; byte < 16; byte += map.element_bytes, ++first) {
    std::uint64_t rest = first, address = map.data;
    bool inside = true;
    for (std::uint32_t i = 0; i < map.rank; ++i) {
      const std::int64_t index = load.at[i] + static_cast<std::int64_t>(rest % map.box[i]);
      rest /= map.box[i];
      inside = inside && index >= 0 && index < map.extent[i];
      address += static_cast<std::uint64_t>(index) *
                 (i == 0 ? map.element_bytes : map.stride_bytes[i - 1]);
    }
    if (inside) {
      std::memcpy(piece + byte, reinterpret_cast<const void*>(address), map.element_bytes);
    }
  }
  memory_.write_tile(at, piece);
}

Threads Async::do_some() {
  if (loads_.empty()) return {};
  const auto at = random_->below(static_cast<std::uint32_t>(loads_.size()));
  const Load load = loads_[at];
  loads_.erase(loads_.begin() + at);
  ++tick_;
  visit_pieces(load, [&](unsigned place, std::uint64_t first) {
    write_piece(load, place, first);
    memory_.end_tile(place, tick_, load.where);
  });
  Barrier& barrier = this->barrier(load.barrier, load.where);
  barrier.bytes -= bytes_of(load.map);
  barrier.gathered.of[Clock::copier] = memory_.time_of_tick(tick_);
  return complete(barrier);
}

// --- sums ---

void Async::add_sum(Sum& sum) {
  if (std::exchange(sum.added, true)) return;
  for (int i = 0; i < sum.bytes / 4; ++i) {
    float value;
    memory_.peek(&value, sum.from + 4 * static_cast<unsigned>(i), 4);
    sum.to[i] += value;
  }
}

void Async::bulk(const BulkCall& call, const User& user, Where where) {
  int& group = groups_[user.thread];
  switch (call.act) {
    case BulkAct::Add: {
      const auto to = reinterpret_cast<std::uintptr_t>(call.to);
      if ((to | call.from | static_cast<unsigned>(call.value)) % 16 != 0) {
        throw Mistake("add_bulk at " + text(where) + " is misaligned");
      }
      for (int i = 0; i < call.value; i += 16) {
        memory_.begin_async_read(call.from + static_cast<unsigned>(i), user, where);
      }
      sums_.push_back({call.to, call.from, call.value, group, user.thread, where, false});
      if (random_->below(2) == 0) add_sum(sums_.back());  // although nobody may rely on that
      return;
    }
    case BulkAct::Commit: ++group; return;
    case BulkAct::WaitRead:
    case BulkAct::Wait: break;
  }
  std::erase_if(sums_, [&](Sum& sum) {
    if (sum.thread != user.thread || sum.group >= group - call.value) return false;
    add_sum(sum);
    for (int i = 0; i < sum.bytes; i += 16) {
      memory_.end_async_read(sum.from + static_cast<unsigned>(i), user);
    }
    return true;
  });
}

namespace {

void check(const Copy& copy, const User& user, const Where& where) {
  const char* problem = nullptr;
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  if (copy.valid < 0 || copy.valid > copy.bytes) problem = " valid bytes are not 0 to ";
  if (copy.valid > 0 && from % static_cast<unsigned>(copy.bytes) != 0) {
    problem = " valid bytes come from an address that is no multiple of ";
  }
  if (problem == nullptr) return;
  throw Mistake("copy_async of thread " + std::to_string(user.thread) + " at " + text(where) +
                ": " + std::to_string(copy.valid) + problem + std::to_string(copy.bytes));
}

}  // namespace

void Copies::clear() {
  queue_.clear();
  first_ = 0;
  group_ = 0;
}

void Copies::issue(SharedMemory& memory, const Copy& copy, const User& user, Where where) {
  check(copy, user, where);
  memory.begin_copy(copy.to, copy.bytes, user, where);
  if (copy.at_once) memory.write_copy(copy.to, copy.from, copy.valid, copy.bytes);
  queue_.push_back({copy, group_, where});
}

void Copies::wait(SharedMemory& memory, int pending, const User& user) {
  for (; first_ < queue_.size() && queue_[first_].group < group_ - pending; ++first_) {
    const auto& [copy, group, where] = queue_[first_];
    if (!copy.at_once) memory.write_copy(copy.to, copy.from, copy.valid, copy.bytes);
    memory.end_copy(copy.to, copy.bytes, user, where);
  }
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  }
}

}  // namespace fovea::on_host
