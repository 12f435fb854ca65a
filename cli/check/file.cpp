#include "cli/check/file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw std::runtime_error("cannot write " + path + ": " + reason);
}

// Returns 0 or the errno of the first step that failed.
int write_bytes(const std::string& path, const char* mode, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return errno;
  int error = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) error = errno;
  // A full disk often shows only when the last buffer goes out.
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  if (path.empty()) throw std::runtime_error("cannot write a file: the path is empty");
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) fail(path, std::strerror(EISDIR));

  // Pipes and devices such as /dev/stdout must be written to, never replaced by a file.
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (const int error = write_bytes(path, "wb", bytes)) fail(path, std::strerror(error));
    return;
  }
  // A symbolic link stays one: the file it names is replaced.
  const std::string target = fs::is_regular_file(status) ? fs::canonical(path).string() : path;
  const std::string temporary = target + ".tmp" + std::to_string(::getpid());
  const int error = write_bytes(temporary, "wbx", bytes);
  if (error == EEXIST) fail(path, "the temporary file " + temporary + " is in the way");
  if (error != 0) {
    std::remove(temporary.c_str());
    fail(path, std::strerror(error));
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    fail(path, std::strerror(reason));
  }
}

}  // namespace fovea::cli
