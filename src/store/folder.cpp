#include "store/folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

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

}  // namespace fovea::store
