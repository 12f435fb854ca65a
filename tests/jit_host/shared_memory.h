// A block's shared memory, with a record of who used each word. It throws a Mistake for reads of
// memory that was not written, races between threads, uses of memory that an asynchronous copy has
// not filled yet, and accesses that are misaligned or out of bounds.
//
// Two accesses by different threads, at least one of them a write, are a race unless there is a
// sync_block between them, or a sync_warp if both threads are of one warp. So it is enough to
// remember of each word the last write and the last read after it, with the number of barriers that
// the thread had passed.
//
// If a block uses other barriers, a vector clock for each warp says what it knows of the others
// (Clock), and a word's last read is remembered for each warp.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/jit_host/machine.h"

namespace fovea::on_host {

// Who uses the memory, and when.
struct User {
  int thread;
  unsigned warp_epoch;  // sync_warps that its warp passed since the last sync_block, from 1
};

// Up to which time the actions of each warp are known. The last entry is the unit that copies
// tiles.
struct Clock {
  static constexpr int copier = 31;
  std::array<std::uint64_t, 32> of{};
  void join(const Clock& other);
};

enum class SharedAccess { Read, Write, Add };

class SharedMemory {
 public:
  void begin_launch(unsigned bytes);
  void begin_block();  // from here on nothing is written yet
  void pass_barrier();

  void load(void* to, unsigned at, unsigned bytes, const User& user, Where where);
  void store(unsigned at, const void* from, unsigned bytes, const User& user, Where where);
  void add(unsigned at, float value, const User& user, Where where);
  // A row of load_matrices. All lanes of the warp read before any of them continues.
  void load_row(void* to, unsigned at, const User& user, Where where);

  // A cp.async copy: nobody may use its destination between begin and end.
  void begin_copy(unsigned at, int bytes, const User& user, Where where);
  void write_copy(unsigned at, const void* from, int valid, int bytes);
  void end_copy(unsigned at, int bytes, const User& user, Where where);

  // --- with other barriers than sync_block ---
  void use_clocks() { uses_clocks_ = true; }
  Clock clock_of(const User& user) const;  // what others know after this user has arrived
  void learn(const User& user, const Clock& from);
  void fence_for_async(int thread);  // products and bulk copies may read what the thread wrote

  // 16 bytes that a copy of a tile writes: nobody may use them between begin and end.
  void begin_tile(unsigned at, const User& user, Where where);
  void write_tile(unsigned at, const unsigned char (&piece)[16]);
  void end_tile(unsigned at, std::uint64_t tick, Where where);
  std::uint64_t time_of_tick(std::uint64_t tick) const;

  // 16 bytes that a product or a bulk copy reads between begin and end.
  void begin_async_read(unsigned at, const User& user, Where where);
  void end_async_read(unsigned at, const User& user);
  void peek(void* to, unsigned at, unsigned bytes) const;

 private:
  struct Stamp {
    std::uint64_t block : 20;  // barriers passed; 0: never
    std::uint64_t warp : 17;
    std::uint64_t thread : 10;
    std::uint64_t line : 13;
    std::uint64_t many : 2;    // 1: other lanes of the warp did so too; 2: other warps, too
    std::uint64_t atomic : 1;  // of a write
    std::uint64_t flag : 1;    // of a write: a copy is under way; of a read: see byte_records_
  };
  struct Record {
    Stamp written, read;
  };
  struct Access;  // one load, store or addition, and who does it

  Access access_of(SharedAccess kind, unsigned at, unsigned bytes, const User& user,
                   const Where& where) const;
  void check_place(const Access& access) const;
  bool read_at_rest(const Access& access);
  bool write_at_rest(const Access& access);
  void visit(const Access& access);
  void visit_bytes(const Access& access, unsigned word, unsigned first, unsigned last);
  void split(unsigned word);
  bool merge(unsigned word);
  void use(Record& record, const Access& access) const;
  void use_for_read(Record& record, const Access& access) const;
  void use_for_write(Record& record, const Access& access) const;
  void use_for_add(Record& record, const Access& access) const;
  bool comes_before(const Stamp& earlier, const Access& access) const;
  void note(Stamp& stamp, const Access& access) const;
  [[noreturn]] void race(const Stamp& earlier, const char* what, const Access& access) const;
  [[noreturn]] void early(const Record& record, const Access& access) const;

  std::uint64_t time_of(const Stamp& stamp) const;
  void note_reader(Stamp& stamp, const Access& access) const;
  bool all_come_before(const Stamp& many, const Access& access) const;
  void check_async_readers(unsigned at, unsigned bytes, const User& user, const Where& where) const;

  bool uses_clocks_ = false;
  std::array<Clock, 32> clocks_{};
  mutable std::unordered_map<const Stamp*, Clock> readers_;  // of words that several warps read
  std::vector<std::uint8_t> unfenced_;             // words that were written but not fenced
  std::array<std::vector<unsigned>, 1024> wrote_;  // by thread: its words among them
  struct AsyncReaders {
    int under_way = 0;
    Clock done;
  };
  std::unordered_map<unsigned, AsyncReaders> async_readers_;  // by piece of 16 bytes

  unsigned size_ = 0;
  std::uint64_t epoch_ = 0, first_epoch_ = 0;
  std::vector<unsigned char> bytes_;
  std::vector<Record> words_;         // one for 4 bytes
  std::vector<Record> byte_records_;  // of words whose bytes were used separately
};

// Something that a kernel must not do. It is thrown where the kernel does it, and launch reports
// it.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline std::string text(const Where& where) {
  const std::string file = where.file;
  const std::size_t slash = file.rfind('/');
  return (slash == std::string::npos ? file : file.substr(slash + 1)) + ":" +
         std::to_string(where.line);
}

}  // namespace fovea::on_host
