// The part of SharedMemory that knows other barriers than sync_block, and whoever reads and writes
// without being a thread.
#include <algorithm>
#include <cstring>

#include "tests/jit_host/mistake.h"
#include "tests/jit_host/shared_access.h"
#include "tests/jit_host/shared_memory.h"

namespace fovea::on_host {
namespace {

constexpr int warp_bits = 17;  // of Stamp

std::string place_of(unsigned at, const Where& where) {
  return "shared bytes " + std::to_string(at) + " to " + std::to_string(at + 16) + " at " +
         text(where);
}

}  // namespace

void Clock::join(const Clock& other) {
  for (std::size_t i = 0; i < of.size(); ++i) of[i] = std::max(of[i], other.of[i]);
}

std::uint64_t SharedMemory::time_of(const Stamp& stamp) const {
  return std::uint64_t{stamp.block} << warp_bits | stamp.warp;  // a bit-field alone is an int here
}
std::uint64_t SharedMemory::time_of_tick(std::uint64_t tick) const {
  return epoch_ << warp_bits | tick;
}

Clock SharedMemory::clock_of(const User& user) const {
  const auto warp = static_cast<std::size_t>(user.thread / 32);
  Clock clock = clocks_[warp];
  clock.of[warp] = epoch_ << warp_bits | user.warp_epoch;
  return clock;
}

void SharedMemory::learn(const User& user, const Clock& from) {
  clocks_[static_cast<std::size_t>(user.thread / 32)].join(from);
}

// Of a word that was read by one warp, and now by another; or by many, and once more.
void SharedMemory::note_reader(Stamp& stamp, const Access& access) const {
  Clock& readers = readers_[&stamp];
  if (stamp.many < 2) {
    readers = {};
    readers.of[stamp.thread / 32] = time_of(stamp);
  }
  readers.of[access.left.thread / 32] = time_of(access.left);
}

bool SharedMemory::all_come_before(const Stamp& many, const Access& access) const {
  const auto at = readers_.find(&many);
  if (at == readers_.end()) return false;
  const std::size_t mine = access.mine.thread / 32;
  for (std::size_t warp = 0; warp < 32; ++warp) {
    const std::uint64_t time = at->second.of[warp];
    if (time >> warp_bits != epoch_) continue;
    if (warp == mine ? time >= time_of(access.mine) : clocks_[mine].of[warp] < time) return false;
  }
  return true;
}

// --- who is no thread ---

void SharedMemory::fence_for_async(int thread) {
  auto& words = wrote_[static_cast<std::size_t>(thread)];
  for (const unsigned word : words) unfenced_[word] = 0;
  words.clear();
}

void SharedMemory::check_async_readers(unsigned at, unsigned bytes, const User& user,
                                       const Where& where) const {
  const Clock& mine = clocks_[static_cast<std::size_t>(user.thread / 32)];
  for (unsigned piece = at / 16; piece < (at + bytes + 15) / 16; ++piece) {
    const auto found = async_readers_.find(piece);
    if (found == async_readers_.end()) continue;
    bool known = found->second.under_way == 0;
    for (std::size_t warp = 0; warp < 32; ++warp) {
      const std::uint64_t time = found->second.done.of[warp];
      const bool own = warp == static_cast<std::size_t>(user.thread / 32);
      known = known && (own || time >> warp_bits != epoch_ || mine.of[warp] >= time);
    }
    if (!known) {
      throw Mistake("a race: thread " + std::to_string(user.thread) + " writes, or lets a copy " +
                    "write, " + place_of(16 * piece, where) +
                    ", where a product or a bulk copy may still read");
    }
  }
}

void SharedMemory::begin_tile(unsigned at, const User& user, Where where) {
  check_async_readers(at, 16, user, where);
  const Access access = access_of(SharedAccess::Write, at, 16, user, where);
  visit(access);
  for (unsigned word = at / 4; word < at / 4 + 4; ++word) words_[word].written.flag = 1;
  std::memset(&bytes_[at], 0xff, 16);  // NaN of every type
}

void SharedMemory::write_tile(unsigned at, const unsigned char (&piece)[16]) {
  std::memcpy(&bytes_[at], piece, 16);
}

void SharedMemory::end_tile(unsigned at, std::uint64_t tick, Where where) {
  const User copier{32 * Clock::copier, static_cast<unsigned>(tick)};
  const Access access = access_of(SharedAccess::Write, at, 16, copier, where);
  for (unsigned word = at / 4; word < at / 4 + 4; ++word) words_[word] = {access.mine, {}};
}

void SharedMemory::begin_async_read(unsigned at, const User& user, Where where) {
  const Access access = access_of(SharedAccess::Read, at, 16, user, where);
  check_place(access);
  for (unsigned word = at / 4; word < at / 4 + 4; ++word) {
    const Record& record = words_[word];
    if (record.written.flag != 0 || record.written.block < first_epoch_) early(record, access);
    if (!comes_before(record.written, access)) race(record.written, "wrote", access);
    if (word < unfenced_.size() && unfenced_[word] != 0 &&
        record.written.thread / 32 != Clock::copier) {
      throw Mistake("a product or a bulk copy reads " + place_of(at, where) + ", which thread " +
                    std::to_string(record.written.thread) + " wrote (line " +
                    std::to_string(record.written.line) + ") without fence_for_async");
    }
  }
  ++async_readers_[at / 16].under_way;
}

void SharedMemory::end_async_read(unsigned at, const User& user) {
  AsyncReaders& readers = async_readers_[at / 16];
  --readers.under_way;
  readers.done.of[static_cast<std::size_t>(user.thread / 32)] =
      epoch_ << warp_bits | user.warp_epoch;
}

void SharedMemory::peek(void* to, unsigned at, unsigned bytes) const {
  std::memcpy(to, &bytes_[at], bytes);
}

}  // namespace fovea::on_host
