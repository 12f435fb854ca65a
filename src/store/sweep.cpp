#include "store/sweep.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <memory>

#include "store/disk.h"

namespace fovea::store {
namespace {

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
    remove(folder, *oldest);  // where another process was faster, it is gone as well
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
