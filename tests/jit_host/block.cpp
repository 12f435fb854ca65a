#include "tests/jit_host/block.h"

#include <bit>
#include <cstring>

#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {
namespace {

Block* running_block = nullptr;  // one at a time: see launch

// Stacks are a multiple of a page apart. Without these offsets their tops would share cache sets,
// and every switch would miss the cache.
std::size_t top_offset(int thread) { return static_cast<std::size_t>(thread * 7 % 64) * 64; }

std::uint32_t bit(int lane) { return std::uint32_t{1} << lane; }

// The first set bit from `start` on, or else the first of all.
int next_bit(std::uint32_t bits, int start) {
  return (std::countr_zero(std::rotr(bits, start)) + start) & 31;
}

}  // namespace

ThreadIndex Block::place_{};

Block::Block() : threads_(Stacks::most), warps_(Stacks::most / lanes), votes_(Stacks::most) {}

void Block::run(Kernel kernel, void** parameters, const ThreadIndex& place, test::Random& random) {
  running_block = this;
  kernel_ = kernel;
  parameters_ = parameters;
  place_ = place;
  random_ = &random;
  running_ = place.threads;
  waiting_ = turns_ = 0;
  mistake_.clear();
  memory_.begin_block();
  async_.begin_block(random);
  products_.begin_block(random);
  for (int i = 0; i < place.threads; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    thread.copies.clear();
    thread.waits_in.clear();
    thread.fiber.start(stacks_[static_cast<std::size_t>(i)], Stacks::bytes - top_offset(i), &live);
  }
  for (int i = 0; i < place.threads / lanes; ++i) warp(i) = {};
  make_all_ready();
  current_ = static_cast<int>(random.below(static_cast<std::uint32_t>(place.threads)));
  place_.thread = current_;
  Fiber::switch_from_to(main_, thread().fiber);
  if (!mistake_.empty()) throw Mistake(mistake_);
}

// A thread from its first instruction to its last.
void Block::live() {
  Block& block = *running_block;
  try {
    block.kernel_(block.parameters_);
    Warp& warp = block.warp(block.current_ / lanes);
    warp.ended |= bit(block.current_ % lanes);
    warp.ready &= ~warp.ended;
    if (warp.waiting != 0) block.lane_is_missing(warp, warp.point.kind, warp.point.where);
    if (--block.running_ > 0) block.switch_to(block.next());
    block.async_.end_block();
    block.products_.end_block();
  } catch (const std::exception& error) {
    block.mistake_ = error.what();
  }
  // This fiber does not continue: the block has ended, or has failed.
  Fiber::switch_from_to(block.thread().fiber, block.main_);
}

// --- meetings ---

void Block::meet(Meeting kind, void* operand, Where where) {
  if (kind == Meeting::SyncBlock || kind == Meeting::AnyInBlock) {
    running_block->meet_in_block(kind, operand, where);
  } else {
    running_block->meet_in_warp(kind, operand, where);
  }
}

inline void Block::meet_in_warp(Meeting kind, void* operand, const Where& where) {
  Warp& warp = this->warp(current_ / lanes);
  const int lane = current_ % lanes;
  if (warp.waiting == 0) {
    if (warp.ended != 0) lane_is_missing(warp, kind, where);
    warp.point = {kind, where, current_};
  } else {
    check_same(warp.point, kind, where);
  }
  warp.operands[lane] = operand;
  warp.waiting |= bit(lane);
  warp.ready &= ~bit(lane);
  if (warp.waiting != ~0u) return switch_to(next());
  compute(kind, warp, where);
  warp.waiting = 0;
  warp.ready = ~0u;
}

void Block::compute(Meeting kind, Warp& warp, const Where& where) {
  switch (kind) {
    case Meeting::Ballot:
    case Meeting::Any: return vote(kind, warp.operands);
    case Meeting::SyncWarp: ++warp.epoch; return;
    case Meeting::ShuffleXor:
    case Meeting::Shuffle: return shuffle(kind, warp.operands);
    case Meeting::LoadMatrices:
    case Meeting::LoadMatricesTransposed:
      return load_matrices(kind, warp.operands, memory_, {current_ / lanes * lanes, warp.epoch},
                           where);
    case Meeting::MultiplyAddF16:
    case Meeting::MultiplyAddBf16: return multiply_add(kind, warp.operands);
    case Meeting::FenceRegisters:
    case Meeting::MultiplyTiles:
    case Meeting::CommitProducts:
    case Meeting::WaitProducts:
      return products_.meet(kind, warp.operands, {current_ / lanes * lanes, warp.epoch}, where);
    case Meeting::SyncBlock:
    case Meeting::AnyInBlock: return;  // see meet_in_block
  }
}

void Block::meet_in_block(Meeting kind, void* operand, const Where& where) {
  if (waiting_ == 0) {
    block_point_ = {kind, where, current_};
  } else {
    check_same(block_point_, kind, where);
  }
  votes_[static_cast<std::size_t>(current_)] = static_cast<Vote*>(operand);
  warp(current_ / lanes).ready &= ~bit(current_ % lanes);
  if (++waiting_ < place_.threads) return switch_to(next());
  end_meeting_of_block(kind);
}

void Block::end_meeting_of_block(Meeting kind) {
  const auto threads = static_cast<std::size_t>(place_.threads);
  if (kind == Meeting::AnyInBlock) {
    unsigned any = 0;
    for (std::size_t i = 0; i < threads; ++i) any |= votes_[i]->value ? 1u : 0u;
    for (std::size_t i = 0; i < threads; ++i) votes_[i]->result = any;
  }
  memory_.pass_barrier();
  waiting_ = 0;
  make_all_ready();
}

void Block::make_all_ready() {
  const int warps = place_.threads / lanes;
  for (int i = 0; i < warps; ++i) {
    warp(i).ready = ~0u;
    warp(i).epoch = 1;
  }
  ready_warps_ = warps == 32 ? ~0u : bit(warps) - 1;
}

inline void Block::check_same(const Point& first, Meeting kind, const Where& where) const {
  if (first.kind != kind || first.where.line != where.line || first.where.file != where.file) {
    look_closer(first, kind, where);
  }
}

void Block::look_closer(const Point& first, Meeting kind, const Where& where) const {
  const bool same = first.kind == kind && first.where.line == where.line &&
                    std::strcmp(first.where.file, where.file) == 0;
  if (same) return;
  throw Mistake("thread " + std::to_string(current_) + " comes to " + name_of(kind) + " at " +
                text(where) + ", but thread " + std::to_string(first.thread) + " waits in " +
                name_of(first.kind) + " at " + text(first.where));
}

void Block::lane_is_missing(const Warp& warp, Meeting kind, const Where& where) const {
  const int ended = current_ / lanes * lanes + std::countr_zero(warp.ended);
  throw Mistake(std::string("a warp meets in ") + name_of(kind) + " at " + text(where) +
                ", but thread " + std::to_string(ended) + " of it has ended");
}

// --- who runs ---

inline int Block::next() {
  const std::uint32_t ready = warp(current_ / lanes).ready;
  if (ready != 0 && --turns_ > 0) {
    return current_ / lanes * lanes + next_bit(ready, current_ % lanes);
  }
  return next_of_other_warps();
}

int Block::next_of_other_warps() {
  const std::uint32_t word = random_->bits();
  turns_ = static_cast<int>(word >> 10 & 255);
  while (ready_warps_ != 0) {
    const int other = next_bit(ready_warps_, static_cast<int>(word & 31));
    const std::uint32_t ready = warp(other).ready;
    if (ready != 0) return other * lanes + next_bit(ready, static_cast<int>(word >> 5 & 31));
    ready_warps_ &= ~bit(other);
  }
  if (async_.has_work()) {  // every thread waits, maybe for a copy
    wake(async_.do_some());
    return next_of_other_warps();
  }
  deadlock();
}

inline void Block::switch_to(int thread) {
  Fiber& from = this->thread().fiber;
  current_ = place_.thread = thread;
  Fiber::switch_from_to(from, this->thread().fiber);
}

// --- mbarriers and named barriers ---

void Block::park() {
  warp(current_ / lanes).ready &= ~bit(current_ % lanes);
  switch_to(next());
}

void Block::wake(const Threads& threads) {
  for (const int one : threads) {
    threads_[static_cast<std::size_t>(one)].waits_in.clear();
    warp(one / lanes).ready |= bit(one % lanes);
    ready_warps_ |= bit(one / lanes);
  }
}

void Block::do_some_work() {
  if (random_->below(4) == 0) wake(async_.do_some());
  if (random_->below(4) == 0) products_.do_some(current_ / lanes);
}

void Block::use_barrier(const BarrierCall& call, Where where) {
  do_some_work();
  switch (call.act) {
    case BarrierAct::Init: return async_.init(call.at, call.value, user(), where);
    case BarrierAct::Publish: return;
    case BarrierAct::Arrive:
    case BarrierAct::ArriveExpecting:
      wake(async_.arrive(call.at, call.value, user(), where));
      ++warp(current_ / lanes).epoch;  // this arrival does not cover what the thread does later
      return;
    case BarrierAct::Wait:
      while (!async_.wait(call.at, call.value, user(), where)) {
        thread().waits_in = "wait_for(" + std::to_string(call.at) + ", " +
                            std::to_string(call.value) + ") at " + text(where) + ", which" +
                            async_.waits_for(call.at);
        park();
      }
      return;
  }
}

void Block::meet_at_named(bool waits, int id, int threads, Where where) {
  do_some_work();
  const Threads woken = async_.named(waits, id, threads, user(), where);
  ++warp(current_ / lanes).epoch;
  wake(woken);
  if (waits && woken.empty()) {
    thread().waits_in = "named barrier " + std::to_string(id) + " at " + text(where);
    park();
  }
}

std::string Block::whereabouts(int thread) const {
  const std::string& barrier = threads_[static_cast<std::size_t>(thread)].waits_in;
  if (!barrier.empty()) return "in " + barrier;
  const Warp& warp = warps_[static_cast<std::size_t>(thread / lanes)];
  const std::uint32_t lane = bit(thread % lanes);
  if ((warp.ended & lane) != 0) return "ended";
  const Point& point = (warp.waiting & lane) != 0 ? warp.point : block_point_;
  return std::string("in ") + name_of(point.kind) + " at " + text(point.where);
}

void Block::deadlock() const {
  std::string all = "threads wait for each other:", last;
  for (int i = 0; i < place_.threads; ++i) {
    const std::string here = whereabouts(i);
    if (here != last) all += "\n  from thread " + std::to_string(i) + " on: " + here;
    last = here;
  }
  throw Mistake(all);
}

// --- what kernels call ---

const Machine& Block::machine() {
  static const Machine table = {
      &place_,
      &meet,
      [](void* to, unsigned at, unsigned bytes, Where where) {
        running_block->memory_.load(to, at, bytes, running_block->user(), where);
      },
      [](unsigned at, const void* from, unsigned bytes, Where where) {
        running_block->memory_.store(at, from, bytes, running_block->user(), where);
      },
      [](unsigned at, float value, Where where) {
        running_block->memory_.add(at, value, running_block->user(), where);
      },
      [](unsigned to, const void* from, int bytes, int valid, Where where) {
        Block& block = *running_block;
        const bool at_once = block.random_->bits() % 2 == 0;
        block.thread().copies.issue(block.memory_, {from, to, bytes, valid, at_once}, block.user(),
                                    where);
      },
      [] { running_block->thread().copies.commit(); },
      [](int pending) {
        running_block->thread().copies.wait(running_block->memory_, pending, running_block->user());
      },
      [](const BarrierCall& call, Where where) { running_block->use_barrier(call, where); },
      [](bool waits, int id, int threads, Where where) {
        running_block->meet_at_named(waits, id, threads, where);
      },
      [](const TileLoad& load, Where where) {
        running_block->do_some_work();
        running_block->async_.load_tile(load, running_block->user(), where);
      },
      [](const BulkCall& call, Where where) {
        running_block->async_.bulk(call, running_block->user(), where);
      },
      [] { running_block->memory_.fence_for_async(running_block->current_); },
      [](Where where) { throw Mistake("a wait for another block at " + text(where)); },
  };
  return table;
}

}  // namespace fovea::on_host
