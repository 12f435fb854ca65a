#include "store/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

namespace fovea::store {
namespace {

using Clock = std::chrono::steady_clock;

enum class Attempt : std::uint8_t { Held, Busy, Gone, Broken };

// A holder removes the file when it is done. Who waited on the removed one holds nothing.
bool is_still_there(const File& folder, const std::string& name, const File& file) {
  struct stat mine{}, named{};
  return ::fstat(file.get(), &mine) == 0 &&
         ::fstatat(folder.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

Attempt attempt(const File& folder, const std::string& name, const File& file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK || errno == EINTR ? Attempt::Busy : Attempt::Broken;
  }
  return is_still_there(folder, name, file) ? Attempt::Held : Attempt::Gone;
}

File open_lock(const File& folder, const std::string& name) {
  constexpr int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  return File(::openat(folder.get(), name.c_str(), flags, S_IRUSR | S_IWUSR));
}

// Not by closing alone: a child that was forked meanwhile has the descriptor too.
void release(const File& folder, const std::string& name, const File& file) {
  ::unlinkat(folder.get(), name.c_str(), 0);
  ::flock(file.get(), LOCK_UN);
}

}  // namespace

BuildLock::BuildLock(File folder, const std::string& name, std::chrono::milliseconds patience)
    : folder_(std::move(folder)), name_(name + lock_suffix) {
  if (!folder_) return;
  const Clock::time_point end = Clock::now() + patience;
  std::chrono::milliseconds pause{1};
  int gone =
      0;  // each time another builder has finished; disks that number files anew must end too
  for (File file = open_lock(folder_, name_); file;) {
    switch (attempt(folder_, name_, file)) {
      case Attempt::Held: file_ = std::move(file); return;
      case Attempt::Broken: return;
      case Attempt::Gone:
        if (++gone == 100) return;
        file = open_lock(folder_, name_);
        break;
      case Attempt::Busy:
        impatient_ = Clock::now() >= end;
        if (impatient_) return;
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::milliseconds{20});
        break;
    }
  }
}

BuildLock::~BuildLock() {
  if (file_) release(folder_, name_, file_);
}

void remove_dead_lock(const File& folder, const std::string& name) {
  const File file(::openat(folder.get(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file && attempt(folder, name, file) == Attempt::Held) release(folder, name, file);
}

}  // namespace fovea::store
