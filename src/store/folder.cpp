#include "store/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>

#include "base/env.h"

namespace fovea::store {
namespace {

bool is_ours(const struct stat& about) { return about.st_uid == ::geteuid(); }

// A link is followed if this user or the system made it: those of others may lead anywhere.
bool is_hostile_link(const std::string& path) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0 || !S_ISLNK(about.st_mode)) return false;
  return !is_ours(about) && about.st_uid != 0;
}

std::string judge(int folder) {
  struct stat about{};
  if (::fstat(folder, &about) != 0) return "cannot be read: " + errno_text(errno);
  if (!is_ours(about)) return "belongs to another user";
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "may be written to by others (chmod go-w)";
  return "";
}

int make_with_parents(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    const int error = ::mkdir(part.c_str(), S_IRWXU) == 0 ? 0 : errno;
    // A parent that is there may well be one that this user cannot write to.
    if (error != 0 && error != EEXIST && ::access(part.c_str(), X_OK) != 0) return error;
    if (end == std::string::npos) return 0;
  }
}

}  // namespace

FolderChoice choose_folder() {
  if (const auto named = env_value(Env::CacheDir)) {
    if (*named == "off") return {"", "FOVEA_CACHE_DIR is off"};
    // For good: the process may change its own folder.
    std::error_code ignored;
    std::filesystem::path whole = std::filesystem::absolute(*named, ignored);
    if (whole.empty()) whole = *named;
    std::string path = whole.lexically_normal().string();
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return {std::move(path), ""};
  }
  if (const auto users = user_cache_folder()) return {*users + "/fovea", ""};
  return {"", "neither FOVEA_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set"};
}

OpenFolder open_folder(const std::string& path) {
  if (is_hostile_link(path)) return {File(), "is another user's link"};
  File folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) {
    return {File(), errno == ENOENT ? "" : "cannot be opened: " + errno_text(errno)};
  }
  if (std::string why = judge(folder.get()); !why.empty()) return {File(), std::move(why)};
  return {std::move(folder), ""};
}

OpenFolder make_folder(const std::string& path) {
  OpenFolder there = open_folder(path);
  if (there || !there.why.empty()) return there;
  if (const int error = make_with_parents(path); error != 0) {
    return {File(), "cannot be made: " + errno_text(error)};
  }
  there = open_folder(path);
  if (!there && there.why.empty()) there.why = "cannot be made";
  return there;
}

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
  int gone = 0;  // bounded, since some disks give a file a new number at each look
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

namespace {

// Removes the file of a lock whose holder died, unless someone holds it.
void remove_dead_lock(const File& folder, const std::string& name) {
  const File file(::openat(folder.get(), name.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file && attempt(folder, name, file) == Attempt::Held) release(folder, name, file);
}

constexpr std::int64_t nanoseconds = 1'000'000'000;
constexpr std::int64_t an_hour = 3600 * nanoseconds;

bool is_hash(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool has_form(const std::string& name, const std::string& suffix) {
  return name.ends_with(suffix) && is_hash(name.substr(0, name.size() - suffix.size()));
}
bool is_blob(const std::string& name) { return has_form(name, blob_suffix); }
bool is_lock(const std::string& name) { return has_form(name, lock_suffix); }
bool is_temporary(const std::string& name) { return name.starts_with(temporary_prefix); }

// Plain files that `wanted` takes by their names.
template <class Wanted>
std::vector<StoredFile> files(const File& folder, Wanted wanted) {
  std::vector<StoredFile> out;
  // A descriptor of its own: one is read only once.
  const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return out;
  DIR* const opened = ::fdopendir(again);
  if (opened == nullptr) {
    ::close(again);
    return out;
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> list(opened, ::closedir);
  while (const dirent* const one = ::readdir(list.get())) {
    StoredFile file;
    file.name = one->d_name;
    if (!wanted(file.name)) continue;
    struct stat about{};
    if (::fstatat(folder.get(), one->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(about.st_mode)) continue;
    file.bytes = static_cast<std::uint64_t>(about.st_size);
    file.used = about.st_mtim.tv_sec * nanoseconds + about.st_mtim.tv_nsec;
    out.push_back(std::move(file));
  }
  return out;
}

bool remove(const File& folder, const StoredFile& file) {
  return ::unlinkat(folder.get(), file.name.c_str(), 0) == 0;
}

void remove_left_over(const File& folder, std::int64_t older_than) {
  const auto left =
      files(folder, [](const std::string& name) { return is_lock(name) || is_temporary(name); });
  for (const StoredFile& file : left) {
    if (file.used > older_than) continue;
    if (is_lock(file.name)) {
      remove_dead_lock(folder, file.name);
    } else {
      remove(folder, file);
    }
  }
}

std::int64_t now() { return std::time(nullptr) * nanoseconds; }

}  // namespace

std::vector<StoredFile> stored_files(const File& folder) {
  std::vector<StoredFile> out = files(folder, is_blob);
  std::ranges::sort(out, [](const StoredFile& a, const StoredFile& b) {
    return a.used != b.used ? a.used > b.used : a.name < b.name;
  });
  return out;
}

void sweep(const File& folder, std::uint64_t limit, const std::string& keep) {
  const std::vector<StoredFile> all = stored_files(folder);
  std::uint64_t bytes = 0;
  for (const StoredFile& file : all) bytes += file.bytes;
  for (auto oldest = all.rbegin(); oldest != all.rend() && bytes > limit; ++oldest) {
    if (oldest->name == keep) continue;
    remove(folder, *oldest);  // if another process was faster, it is gone as well
    bytes -= oldest->bytes;
  }
  remove_left_over(folder, now() - an_hour);
}

std::vector<StoredFile> remove_all(const File& folder) {
  std::vector<StoredFile> removed;
  for (const StoredFile& file : stored_files(folder)) {
    if (remove(folder, file)) removed.push_back(file);
  }
  remove_left_over(folder, now() - an_hour);
  return removed;
}

}  // namespace fovea::store
