// Plain files by descriptor. Faults of the disk are return values, or Damaged, which is caught
// inside the store: none of them is an error for a caller of it.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace fovea::store {

// Its text completes a sentence that begins with the file's name: "is not a file of Fovea". A
// damaged file counts as missing.
class Damaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A file descriptor, closed by the destructor; -1 is none.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

// "Permission denied": of errno, safe from many threads.
std::string errno_text(int error);

// A regular file, opened for reading without waiting (a pipe would wait), and inside `folder` not
// through a link. Nothing, with errno set, if it cannot be opened.
struct OpenFile {
  File file;
  std::uint64_t bytes = 0;
};
std::optional<OpenFile> open_to_read(const std::string& path);
std::optional<OpenFile> open_to_read(const File& folder, const std::string& name);

// Exactly `size` bytes from `offset`. Throws Damaged if the file is shorter or cannot be read.
std::vector<std::uint8_t> read_at(const File& file, std::uint64_t offset, std::uint64_t size);

// 0, or the errno of what failed.
int write_at(const File& file, std::uint64_t offset, Bytes bytes);

// A name for a file that is not there yet: "fovea-tmp-<process>-<random>-<count>".
constexpr const char* temporary_prefix = "fovea-tmp-";
std::string temporary_name();

}  // namespace fovea::store
