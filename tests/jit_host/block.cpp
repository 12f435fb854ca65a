#include "tests/jit_host/block.h"

#include <bit>
#include <cstring>

#include "tests/jit_host/mistake.h"

namespace fovea::on_host {
namespace {

Block* running_block = nullptr;  // one at a time: see launch

// Stacks lie a multiple of a page apart. Were their tops to share cache sets, a switch would miss.
std::size_t top_offset(int thread) { return static_cast<std::size_t>(thread * 7 % 64) * 64; }

std::uint32_t bit(int lane) { return std::uint32_t{1} << lane; }

// The first set bit from `start` on, round the end.
int next_bit(std::uint32_t bits, int start) {
  return (std::countr_zero(std::rotr(bits, start)) + start) & 31;
}

bool same(const Where& a, const Where& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

}  // namespace

Place Block::place_{};

Block::Block() : threads_(Stacks::most), warps_(Stacks::most / lanes), votes_(Stacks::most) {}

void Block::run(Kernel kernel, void** parameters, const Place& place, test::Random& random) {
  running_block = this;
  kernel_ = kernel;
  parameters_ = parameters;
  place_ = place;
  random_ = &random;
  running_ = place.threads;
  waiting_ = 0;
  mistake_.clear();
  memory_.begin_block();
  for (int i = 0; i < place.threads; ++i) {
    Thread& thread = threads_[static_cast<std::size_t>(i)];
    thread.copies.clear();
    thread.fiber.start(stacks_[static_cast<std::size_t>(i)], Stacks::bytes - top_offset(i), &live);
  }
  const int warps = place.threads / lanes;
  for (int i = 0; i < warps; ++i) {
    warps_[static_cast<std::size_t>(i)] = {};
    warps_[static_cast<std::size_t>(i)].ready = ~0u;
  }
  ready_warps_ = warps == 32 ? ~0u : bit(warps) - 1;
  current_ = static_cast<int>(random.below(static_cast<std::uint32_t>(place.threads)));
  place_.thread = current_;
  Fiber::switch_from_to(main_, threads_[static_cast<std::size_t>(current_)].fiber);
  if (!mistake_.empty()) throw Mistake(mistake_);
}

// A thread from its first instruction to its last.
void Block::live() {
  Block& block = *running_block;
  try {
    block.kernel_(block.parameters_);
    Warp& warp = block.warps_[static_cast<std::size_t>(block.current_ / lanes)];
    warp.ended |= bit(block.current_ % lanes);
    warp.ready &= ~warp.ended;
    --block.running_;
    if (block.running_ > 0) {
      if (warp.waiting != 0) {
        const Thread& other = block.threads_[static_cast<std::size_t>(
            block.current_ / lanes * lanes + std::countr_zero(warp.waiting))];
        block.check_nobody_ended(warp, other.where, other.kind);
      }
      block.switch_to(block.next());
    }
  } catch (const std::exception& error) {
    block.mistake_ = error.what();
  }
  // Never back: the block has ended, or has failed.
  Fiber::switch_from_to(block.threads_[static_cast<std::size_t>(block.current_)].fiber,
                        block.main_);
}

User Block::user() const {
  return {current_, warps_[static_cast<std::size_t>(current_ / lanes)].epoch};
}

// --- meetings ---

void Block::meet(Meeting kind, void* operand, Where where) {
  if (kind == Meeting::SyncBlock || kind == Meeting::AnyInBlock) {
    meet_in_block(kind, operand, where);
  } else {
    meet_in_warp(kind, operand, where);
  }
}

void Block::meet_in_warp(Meeting kind, void* operand, const Where& where) {
  Warp& warp = warps_[static_cast<std::size_t>(current_ / lanes)];
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  const int lane = current_ % lanes;
  if (warp.ended != 0) check_nobody_ended(warp, where, kind);
  if (warp.waiting != 0) {
    const int first = current_ - lane + std::countr_zero(warp.waiting);
    check_same(threads_[static_cast<std::size_t>(first)], first, kind, where);
  }
  thread.kind = kind;
  thread.where = where;
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
    case Meeting::SyncBlock:
    case Meeting::AnyInBlock: return;  // not of a warp
  }
}

void Block::meet_in_block(Meeting kind, void* operand, const Where& where) {
  Warp& warp = warps_[static_cast<std::size_t>(current_ / lanes)];
  Thread& thread = threads_[static_cast<std::size_t>(current_)];
  if (waiting_ > 0) {
    check_same(threads_[static_cast<std::size_t>(first_waiting_)], first_waiting_, kind, where);
  } else {
    first_waiting_ = current_;
  }
  thread.kind = kind;
  thread.where = where;
  votes_[static_cast<std::size_t>(current_)] = static_cast<Vote*>(operand);
  warp.ready &= ~bit(current_ % lanes);
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
  const int warps = place_.threads / lanes;
  for (int i = 0; i < warps; ++i) {
    warps_[static_cast<std::size_t>(i)].ready = ~0u;
    warps_[static_cast<std::size_t>(i)].epoch = 1;
  }
  ready_warps_ = warps == 32 ? ~0u : bit(warps) - 1;
}

void Block::check_same(const Thread& first, int first_thread, Meeting kind,
                       const Where& where) const {
  if (first.kind == kind && same(first.where, where)) return;
  throw Mistake("thread " + std::to_string(current_) + " comes to " + name_of(kind) + " at " +
                text(where) + ", but thread " + std::to_string(first_thread) + " waits in " +
                name_of(first.kind) + " at " + text(first.where));
}

void Block::check_nobody_ended(const Warp& warp, const Where& where, Meeting kind) const {
  const int ended = current_ / lanes * lanes + std::countr_zero(warp.ended);
  throw Mistake(std::string("a warp meets in ") + name_of(kind) + " at " + text(where) +
                ", but thread " + std::to_string(ended) + " of it has ended");
}

// --- who runs ---

int Block::next() {
  const int warp = current_ / lanes;
  std::uint32_t ready = warps_[static_cast<std::size_t>(warp)].ready;
  if (ready == 0) ready_warps_ &= ~bit(warp);
  const std::uint32_t word = random_->bits();
  if (ready != 0 && word % 64 != 0) return warp * lanes + next_bit(ready, current_ % lanes);
  const int start = static_cast<int>(word >> 6 & 31);
  while (ready_warps_ != 0) {
    const int other = next_bit(ready_warps_, start);
    ready = warps_[static_cast<std::size_t>(other)].ready;
    if (ready != 0) return other * lanes + next_bit(ready, static_cast<int>(word >> 11 & 31));
    ready_warps_ &= ~bit(other);
  }
  deadlock();
}

void Block::switch_to(int thread) {
  Fiber& from = threads_[static_cast<std::size_t>(current_)].fiber;
  current_ = place_.thread = thread;
  Fiber::switch_from_to(from, threads_[static_cast<std::size_t>(thread)].fiber);
}

void Block::deadlock() const {
  std::string text_of_all = "threads wait for each other:";
  std::string last;
  for (int i = 0; i < place_.threads; ++i) {
    const Warp& warp = warps_[static_cast<std::size_t>(i / lanes)];
    const Thread& thread = threads_[static_cast<std::size_t>(i)];
    const bool ended = (warp.ended & bit(i % lanes)) != 0;
    const std::string what = ended
                                 ? std::string("ended")
                                 : std::string(name_of(thread.kind)) + " at " + text(thread.where);
    if (what != last) text_of_all += "\n  from thread " + std::to_string(i) + ": " + what;
    last = what;
  }
  throw Mistake(text_of_all);
}

// --- what kernels call ---

const Machine& Block::machine() {
  static const Machine table = {
      &place_,
      [](Meeting kind, void* operand, Where where) { running_block->meet(kind, operand, where); },
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
        block.threads_[static_cast<std::size_t>(block.current_)].copies.issue(
            block.memory_, to, from, bytes, valid, block.random_->bits() % 2 == 0, block.user(),
            where);
      },
      [] {
        Block& block = *running_block;
        block.threads_[static_cast<std::size_t>(block.current_)].copies.commit();
      },
      [](int pending) {
        Block& block = *running_block;
        block.threads_[static_cast<std::size_t>(block.current_)].copies.wait(block.memory_, pending,
                                                                             block.user());
      },
  };
  return table;
}

}  // namespace fovea::on_host
