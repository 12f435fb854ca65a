#include "tests/jit_host/shared_memory.h"

#include <algorithm>
#include <cstring>

namespace fovea::on_host {

// One access, and what it is compared with.
struct SharedMemory::Access {
  SharedAccess kind;
  unsigned at, bytes;
  Where where;
  Stamp mine;
  Stamp left;  // what a read writes into the record
};

constexpr unsigned most_warp_epochs = (1u << 17) - 1;

SharedMemory::Access SharedMemory::access_of(SharedAccess kind, unsigned at, unsigned bytes,
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

bool SharedMemory::comes_before(const Stamp& earlier, const Access& access) const {
  if (earlier.block != epoch_) return true;
  if (earlier.many == 2) return uses_clocks_ && all_come_before(earlier, access);
  if (earlier.thread / 32 != access.mine.thread / 32) {
    return uses_clocks_ &&
           clocks_[access.mine.thread / 32].of[earlier.thread / 32] >= time_of(earlier);
  }
  return earlier.warp < access.mine.warp ||
         (earlier.many == 0 && earlier.thread == access.mine.thread);
}

namespace {

constexpr std::uint64_t most_epochs = (1u << 20) - 1;

using Kind = SharedAccess;

const char* verb(Kind kind) {
  switch (kind) {
    case Kind::Read: return " reads ";
    case Kind::Write: return " writes ";
    case Kind::Add: return " adds to ";
  }
  return "";
}

std::string sentence(Kind kind, int thread, unsigned at, unsigned bytes, const Where& where) {
  return "thread " + std::to_string(thread) + verb(kind) + "shared bytes " + std::to_string(at) +
         " to " + std::to_string(at + bytes) + " at " + text(where);
}

}  // namespace

void SharedMemory::begin_launch(unsigned bytes) {
  size_ = bytes;
  if (words_.size() < bytes / 4 + 1) {
    words_.assign(bytes / 4 + 1, {});
    byte_records_.assign(0, {});
    bytes_.resize(4 * words_.size());
  }
}

void SharedMemory::begin_block() {
  if (epoch_ > most_epochs / 2) {
    words_.assign(words_.size(), {});
    epoch_ = 0;
  }
  first_epoch_ = ++epoch_;
  if (!uses_clocks_) return;
  uses_clocks_ = false;
  clocks_ = {};
  readers_.clear();
  async_readers_.clear();
  unfenced_.assign(unfenced_.size(), 0);
  for (auto& words : wrote_) words.clear();
}

void SharedMemory::pass_barrier() {
  if (++epoch_ >= most_epochs) throw Mistake("a block passes more barriers than are counted");
}

void SharedMemory::check_place(const Access& a) const {
  if (a.at > size_ || a.bytes > size_ - a.at) {
    throw Mistake(sentence(a.kind, static_cast<int>(a.mine.thread), a.at, a.bytes, a.where) +
                  ", but there are only " + std::to_string(size_));
  }
  if (a.at % a.bytes != 0) {
    throw Mistake(sentence(a.kind, static_cast<int>(a.mine.thread), a.at, a.bytes, a.where) +
                  ", which is misaligned");
  }
}

void SharedMemory::load(void* to, unsigned at, unsigned bytes, const User& user, Where where) {
  const Access access = access_of(Kind::Read, at, bytes, user, where);
  if (!read_at_rest(access)) visit(access);
  std::memcpy(to, &bytes_[at], bytes);
}

void SharedMemory::store(unsigned at, const void* from, unsigned bytes, const User& user,
                         Where where) {
  const Access access = access_of(Kind::Write, at, bytes, user, where);
  if (!write_at_rest(access)) visit(access);
  std::memcpy(&bytes_[at], from, bytes);
  if (!uses_clocks_) return;
  check_async_readers(at, bytes, user, where);
  unfenced_.resize(words_.size());
  for (unsigned word = at / 4; word < (at + bytes + 3) / 4; ++word) {
    unfenced_[word] = 1;
    wrote_[static_cast<std::size_t>(user.thread)].push_back(word);
  }
}

void SharedMemory::add(unsigned at, float value, const User& user, Where where) {
  const Access access = access_of(Kind::Add, at, 4, user, where);
  visit(access);
  float sum;
  std::memcpy(&sum, &bytes_[at], 4);
  sum += value;
  std::memcpy(&bytes_[at], &sum, 4);
}

void SharedMemory::load_row(void* to, unsigned at, const User& user, Where where) {
  Access access = access_of(Kind::Read, at, 16, user, where);
  access.left.warp -= 1;
  if (!read_at_rest(access)) visit(access);
  std::memcpy(to, &bytes_[at], 16);
}

void SharedMemory::begin_copy(unsigned at, int bytes, const User& user, Where where) {
  const Access access = access_of(Kind::Write, at, static_cast<unsigned>(bytes), user, where);
  visit(access);
  for (unsigned i = 0; i < access.bytes / 4; ++i) words_[at / 4 + i].written.flag = 1;
}

void SharedMemory::write_copy(unsigned at, const void* from, int valid, int bytes) {
  if (valid > 0) std::memcpy(&bytes_[at], from, static_cast<std::size_t>(valid));
  std::memset(&bytes_[at] + valid, 0, static_cast<std::size_t>(bytes - valid));
}

void SharedMemory::end_copy(unsigned at, int bytes, const User& user, Where where) {
  const Access access = access_of(Kind::Write, at, static_cast<unsigned>(bytes), user, where);
  for (unsigned i = 0; i < access.bytes / 4; ++i) words_[at / 4 + i].written = access.mine;
}

// --- one access against the records ---

// The fast path for the usual case: whole words that nobody has written since the last barrier.
// Returns false if it is another case, for visit().
inline bool SharedMemory::read_at_rest(const Access& a) {
  if (a.bytes < 4 || a.at % a.bytes != 0 || a.at > size_ || a.bytes > size_ - a.at) return false;
  for (Record *r = &words_[a.at / 4], *end = r + a.bytes / 4; r < end; ++r) {
    const bool at_rest = r->written.block >= first_epoch_ && r->written.block < epoch_ &&
                         r->written.flag == 0 && r->read.flag == 0;
    if (!at_rest) return false;
    if (r->read.block != epoch_) {
      r->read = a.left;
    } else if (r->read.many < 2 || uses_clocks_) {
      note(r->read, a);
    }
  }
  return true;
}

// The same for words that nobody has used since the last barrier.
inline bool SharedMemory::write_at_rest(const Access& a) {
  if (a.bytes < 4 || a.at % a.bytes != 0 || a.at > size_ || a.bytes > size_ - a.at) return false;
  for (Record *r = &words_[a.at / 4], *end = r + a.bytes / 4; r < end; ++r) {
    const bool at_rest = r->written.block < epoch_ && r->written.flag == 0 &&
                         r->read.block < epoch_ && r->read.flag == 0;
    if (!at_rest) return false;
    *r = {a.mine, {}};
  }
  return true;
}

void SharedMemory::visit(const Access& access) {
  check_place(access);
  const unsigned last = access.at + access.bytes;
  if (access.bytes < 4) {
    split(access.at / 4);
    return visit_bytes(access, access.at / 4, access.at % 4, access.at % 4 + access.bytes);
  }
  for (unsigned word = access.at / 4; word < last / 4; ++word) {
    Record& record = words_[word];
    if (record.read.flag == 0 || merge(word)) {
      use(record, access);
      continue;
    }
    visit_bytes(access, word, 0, 4);
    if (access.kind == Kind::Write) record = byte_records_[4 * word];
  }
}

void SharedMemory::visit_bytes(const Access& access, unsigned word, unsigned first, unsigned last) {
  for (unsigned i = first; i < last; ++i) use(byte_records_[4 * word + i], access);
}

void SharedMemory::split(unsigned word) {
  if (byte_records_.empty()) byte_records_.assign(4 * words_.size(), {});
  Record& record = words_[word];
  if (record.read.flag != 0) return;
  for (unsigned i = 0; i < 4; ++i) byte_records_[4 * word + i] = record;
  record.read.flag = 1;
}

// One record is enough again if all bytes of a word were used before the last barrier only. Returns
// whether that is so.
bool SharedMemory::merge(unsigned word) {
  const Record* const bytes = &byte_records_[4 * word];
  for (unsigned i = 0; i < 4; ++i) {
    const bool old = bytes[i].written.block >= first_epoch_ && bytes[i].written.block < epoch_ &&
                     bytes[i].read.block < epoch_;
    if (!old) return false;
  }
  words_[word] = bytes[0];
  return true;
}

inline void SharedMemory::use(Record& record, const Access& access) const {
  if (record.written.flag != 0 && record.written.block >= first_epoch_) early(record, access);
  switch (access.kind) {
    case Kind::Read: return use_for_read(record, access);
    case Kind::Write: return use_for_write(record, access);
    case Kind::Add: return use_for_add(record, access);
  }
}

inline void SharedMemory::use_for_read(Record& record, const Access& access) const {
  if (record.written.block < first_epoch_) early(record, access);
  if (!comes_before(record.written, access)) race(record.written, "wrote", access);
  note(record.read, access);
}

inline void SharedMemory::use_for_write(Record& record, const Access& access) const {
  if (!comes_before(record.written, access)) race(record.written, "wrote", access);
  if (!comes_before(record.read, access)) race(record.read, "read", access);
  // What comes after this write also comes after all earlier accesses.
  record.written = access.mine;
  record.read = {};
}

inline void SharedMemory::use_for_add(Record& record, const Access& access) const {
  if (record.written.block < first_epoch_) early(record, access);
  if (!comes_before(record.read, access)) race(record.read, "read", access);
  const bool after_adds = record.written.atomic != 0 && record.written.block == epoch_;
  if (after_adds) {
    note(record.written, access);
  } else {
    if (!comes_before(record.written, access)) race(record.written, "wrote", access);
    record.written = access.mine;
  }
  record.written.atomic = 1;
  record.read = {};
}

inline void SharedMemory::note(Stamp& stamp, const Access& access) const {
  const bool flag = stamp.flag != 0;
  if (stamp.block != epoch_) {
    stamp = access.left;
  } else if (stamp.many == 2 || stamp.thread / 32 != access.left.thread / 32) {
    if (uses_clocks_) note_reader(stamp, access);
    stamp.many = 2;
  } else if (stamp.many < 2 && stamp.warp < access.left.warp) {
    stamp = access.left;
  } else if (stamp.many == 0 && stamp.warp == access.left.warp &&
             stamp.thread != access.left.thread) {
    stamp.many = 1;
  }
  stamp.flag = flag ? 1 : 0;
}

void SharedMemory::race(const Stamp& earlier, const char* what, const Access& a) const {
  const bool copied = uses_clocks_ && earlier.thread / 32 == Clock::copier;
  std::string who = copied ? "a copy of a tile" : "thread " + std::to_string(earlier.thread);
  if (earlier.many == 1) who += " and others of its warp";
  if (earlier.many == 2) who += " and others";
  throw Mistake(
      "a race: " + sentence(a.kind, static_cast<int>(a.mine.thread), a.at, a.bytes, a.where) +
      ", " + who + " " + what + " there (line " + std::to_string(earlier.line) +
      ") with no barrier between");
}

void SharedMemory::early(const Record& record, const Access& a) const {
  const std::string what =
      sentence(a.kind, static_cast<int>(a.mine.thread), a.at, a.bytes, a.where);
  if (record.written.block < first_epoch_) throw Mistake(what + ", where nothing was written");
  throw Mistake(what + ", where a copy of thread " + std::to_string(record.written.thread) +
                " (line " + std::to_string(record.written.line) + ") was not waited for");
}

namespace {

// The part of SharedMemory for barriers other than sync_block, and for reads and writes of copies
// and products.

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

// For a word that several warps have read.
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

// --- reads and writes of copies and products ---

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
