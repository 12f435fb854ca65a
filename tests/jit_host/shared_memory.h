// A block's shared memory with a record of who used it: finds reads of what nobody wrote, races
// between threads, the use of what an asynchronous copy has not brought yet, and accesses out of
// bounds or misaligned. What is wrong is thrown as a Mistake.
//
// Two accesses by different threads, at least one of them a write, are a race unless a sync_block
// lies between them, or a sync_warp if both are of one warp. So of each word it is enough to
// remember the last write and, since then, the last read, with the number of barriers passed.
//
// Once a block has other barriers, warps know of each other what those told them (Clock), and
// reads of several warps are remembered for each of them.
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

// Up to when somebody knows what each warp did. The last is the unit that copies tiles.
struct Clock {
  static constexpr int copier = 31;
  std::array<std::uint64_t, 32> of{};
  void join(const Clock& other);
};

enum class SharedAccess { Read, Write, Add };

class SharedMemory {
 public:
  void begin_launch(unsigned bytes);
  void begin_block();  // nothing is written
  void pass_barrier();

  void load(void* to, unsigned at, unsigned bytes, const User& user, Where where);
  void store(unsigned at, const void* from, unsigned bytes, const User& user, Where where);
  void add(unsigned at, float value, const User& user, Where where);
  // A row of load_matrices: the whole warp reads at once, so that its later writes come after.
  void load_row(void* to, unsigned at, const User& user, Where where);

  // An asynchronous copy: from begin to end nobody may touch the place.
  void begin_copy(unsigned at, int bytes, const User& user, Where where);
  void write_copy(unsigned at, const void* from, int valid, int bytes);
  void end_copy(unsigned at, int bytes, const User& user, Where where);

  // --- with other barriers than sync_block ---
  void use_clocks() { uses_clocks_ = true; }
  Clock clock_of(const User& user) const;  // what whoever it tells may rely on
  void learn(const User& user, const Clock& from);
  void fence_for_async(int thread);  // what it wrote may be read by products and bulk copies

  // Pieces of 16 bytes that a copy of a tile writes: nobody may touch them from begin to end.
  void begin_tile(unsigned at, const User& user, Where where);
  void write_tile(unsigned at, const unsigned char (&piece)[16]);
  void end_tile(unsigned at, std::uint64_t tick, Where where);
  std::uint64_t time_of_tick(std::uint64_t tick) const;

  // 16 bytes that a product or a bulk copy reads, from begin to end.
  void begin_async_read(unsigned at, const User& user, Where where);
  void end_async_read(unsigned at, const User& user);
  void peek(void* to, unsigned at, unsigned bytes) const;

 private:
  struct Stamp {
    std::uint64_t block : 20;  // barriers passed; 0: never
    std::uint64_t warp : 17;
    std::uint64_t thread : 10;
    std::uint64_t line : 13;
    std::uint64_t many : 2;    // 1: further lanes of its warp too, 2: other warps too
    std::uint64_t atomic : 1;  // of a write
    std::uint64_t flag : 1;    // of a write: being copied; of a read: the bytes differ
  };
  struct Record {
    Stamp written, read;
  };
  struct Access;  // one of load, store or add: who, where, and what to say

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
  std::vector<std::uint8_t> unfenced_;                       // words that copies may not see yet
  std::array<std::vector<unsigned>, 1024> wrote_;            // by thread: those of them
  struct AsyncReaders {
    int under_way = 0;
    Clock done;
  };
  std::unordered_map<unsigned, AsyncReaders> async_readers_;  // by piece of 16 bytes

  unsigned size_ = 0;
  std::uint64_t epoch_ = 0, first_epoch_ = 0;
  std::vector<unsigned char> bytes_;
  std::vector<Record> words_;         // one for 4 bytes
  std::vector<Record> byte_records_;  // where threads use parts of a word
};

// What a kernel must not do: thrown where it does it, caught at the bottom of its thread, reported
// by launch.
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
