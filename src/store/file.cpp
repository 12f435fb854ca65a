#include "store/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace fovea::store {
namespace {

std::optional<OpenFile> opened(int descriptor) {
  if (descriptor < 0) return std::nullopt;
  OpenFile out{File(descriptor)};
  struct stat about{};
  if (::fstat(descriptor, &about) != 0) return std::nullopt;
  if (!S_ISREG(about.st_mode)) {
    errno = S_ISDIR(about.st_mode) ? EISDIR : EINVAL;
    return std::nullopt;
  }
  out.bytes = static_cast<std::uint64_t>(about.st_size);
  return out;
}

// Interrupted calls are repeated; `io` gives what a read or write does.
template <class Io>
int each_part(std::size_t size, Io io) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t now = io(done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return errno;
    if (now == 0) return EIO;
    done += static_cast<std::size_t>(now);
  }
  return 0;
}

}  // namespace

File::~File() {
  const int kept = errno;  // of what failed before, for whoever asks
  if (descriptor_ >= 0) ::close(descriptor_);
  errno = kept;
}

std::string errno_text(int error) { return std::generic_category().message(error); }

std::optional<OpenFile> open_to_read(const std::string& path) {
  return opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

std::optional<OpenFile> open_to_read(const File& folder, const std::string& name) {
  constexpr int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  return opened(::openat(folder.get(), name.c_str(), flags));
}

std::vector<std::uint8_t> read_at(const File& file, std::uint64_t offset, std::uint64_t size) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(size));
  const int error = each_part(out.size(), [&](std::size_t done) {
    return ::pread(file.get(), out.data() + done, out.size() - done,
                   static_cast<off_t>(offset + done));
  });
  if (error != 0) throw Damaged("cannot be read: " + errno_text(error));
  return out;
}

int write_at(const File& file, std::uint64_t offset, Bytes bytes) {
  return each_part(bytes.size(), [&](std::size_t done) {
    return ::pwrite(file.get(), bytes.data() + done, bytes.size() - done,
                    static_cast<off_t>(offset + done));
  });
}

std::string temporary_name() {
  static std::atomic<unsigned> count{0};
  // The process number is not enough: containers that share a folder have the same.
  unsigned drawn = 0;
  if (::getentropy(&drawn, sizeof drawn) != 0) {
    throw std::system_error(errno, std::generic_category(), "random numbers");
  }
  char name[64];
  std::snprintf(name, sizeof name, "%s%ld-%08x-%u", temporary_prefix, static_cast<long>(::getpid()),
                drawn, count.fetch_add(1));
  return name;
}

}  // namespace fovea::store
