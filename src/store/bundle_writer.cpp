#include "store/bundle_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "store/entry.h"

namespace fovea::store {
namespace {

// Beside the file itself: a rename must not leave the disk.
std::string temporary_beside(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1) + temporary_name();
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw InvalidArgument(path + ": cannot be written: " + errno_text(error));
}

}  // namespace

BundleWriter::BundleWriter(const std::string& path)
    : path_(path), temporary_(temporary_beside(path)) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    refuse(path, S_ISDIR(about.st_mode) ? EISDIR : EEXIST);
  }
  // As other files of the user: bundles are for others too, unlike the cache.
  file_ = File(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_) refuse(path, errno);
}

BundleWriter::~BundleWriter() {
  if (file_) ::unlink(temporary_.c_str());
}

void BundleWriter::write(Bytes bytes) {
  if (!file_) throw InvalidArgument(path_ + ": is written already");
  if (const int error = write_at(file_, end_, bytes); error != 0) refuse(path_, error);
  end_ += bytes.size();
}

bool BundleWriter::add(const Key& key, const Blob& blob) {
  const bool bounded = key.engine.size() <= largest_text && key.content.size() <= largest_text &&
                       key.environment.size() <= largest_text && blob.size() <= largest_blob;
  if (!bounded) {
    throw InvalidArgument(path_ + ": a plan of " + std::to_string(blob.size()) +
                          " bytes is too large for a bundle");
  }
  if (!names_.insert(name_of(key)).second) return false;
  const std::uint64_t offset = end_;
  write(blob);
  index_.entries.push_back({key, offset, blob.size(), checksum(blob)});
  return true;
}

void BundleWriter::add(const Bundle& other) {
  for (const BundleEntry& entry : other.index().entries) {
    try {
      add(entry.key, other.read(entry));
    } catch (const Damaged& damage) {
      throw InvalidArgument(other.path() + ": " + damage.what());
    }
  }
}

void BundleWriter::finish(const std::string& made_by) {
  index_.made_by = made_by;
  const std::vector<std::uint8_t> index = encode(index_);
  const std::uint64_t index_offset = end_;
  write(index);
  const BundleHeader header{end_, index_offset, index_.entries.size(), checksum(index)};
  if (const int error = write_at(file_, 0, encode(header)); error != 0) refuse(path_, error);
  if (::fsync(file_.get()) != 0) refuse(path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(path_, errno);
  file_ = File();
}

}  // namespace fovea::store
