// The cache folder: what is kept, found, replaced and let go.
#include "store/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/store/store_case.h"

namespace fovea::store {
namespace {

using namespace fovea::store::testing;

Disk disk_of(const std::string& path, std::uint64_t limit = default_limit) {
  return Disk({path, ""}, limit);
}

// As if it had last been used so long ago.
void age(const std::string& path, int seconds) {
  const timespec then[2] = {{::time(nullptr) - seconds, 0}, {::time(nullptr) - seconds, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), then, 0), 0);
}

TEST(Disk, KeepsWhatItIsGiven) {
  const TemporaryFolder top;
  const std::string path = top.path("a/b");  // made with its parents
  Disk disk = disk_of(path);
  EXPECT_EQ(disk.load(key_of("x")), std::nullopt);
  EXPECT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  EXPECT_TRUE(disk.save(key_of("y"), Blob{}));
  EXPECT_EQ(disk.load(key_of("x")), blob_of("of x"));
  EXPECT_EQ(disk.load(key_of("y")), Blob{});
  EXPECT_EQ(disk.load(key_of("z")), std::nullopt);
  disk.remove(key_of("x"));
  EXPECT_EQ(disk.load(key_of("x")), std::nullopt);
  EXPECT_EQ(count_files(path), 1U);  // no temporary, no lock
}

TEST(Disk, IsForItsUserAlone) {
  const TemporaryFolder top;
  Disk disk = disk_of(top.path("cache"));
  ASSERT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  struct stat about{};
  ASSERT_EQ(::stat(top.path("cache").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700U);
  ASSERT_EQ(::stat(file_of(top.path("cache"), key_of("x")).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
}

// Each part of a key counts, and where one ends and the next begins.
TEST(Disk, EveryPartOfTheKeyCounts) {
  const TemporaryFolder top;
  Disk disk = disk_of(top.path());
  const Key keys[] = {{"a", "b", "c"}, {"ab", "", "c"}, {"", "ab", "c"},
                      {"a", "bc", ""}, {"a", "b", "d"}, {"a", "b", "c\n"}};
  for (const Key& key : keys) ASSERT_TRUE(disk.save(key, blob_of(key.engine + "|" + key.content)));
  EXPECT_EQ(count_files(top.path()), std::size(keys));
  for (const Key& key : keys) {
    EXPECT_EQ(disk.load(key), blob_of(key.engine + "|" + key.content));
  }
}

TEST(Disk, AFileUnderTheNameOfAnotherKeyIsNotTaken) {
  const TemporaryFolder top;
  Disk disk = disk_of(top.path());
  ASSERT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  std::filesystem::copy(file_of(top.path(), key_of("x")), file_of(top.path(), key_of("y")));
  EXPECT_EQ(disk.load(key_of("y")), std::nullopt);
  EXPECT_EQ(list(disk, false).files[0].damage + list(disk, false).files[1].damage,
            "has another's name");
  EXPECT_TRUE(disk.save(key_of("y"), blob_of("of y")));
  EXPECT_EQ(disk.load(key_of("y")), blob_of("of y"));
}

TEST(Disk, WhatIsDamagedIsRemovedAndSaid) {
  const TemporaryFolder top;
  Disk disk = disk_of(top.path());
  ASSERT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  const std::string path = file_of(top.path(), key_of("x"));
  const std::string whole = read_file(path);
  std::string flipped = whole, other_format = whole;
  flipped.back() ^= 1;
  other_format[8] = 77;
  const std::pair<std::string, std::string> cases[] = {
      {"", "is not a file of Fovea"},
      {"hello", "is not a file of Fovea"},
      {whole.substr(0, 20), "is cut short"},
      {whole.substr(0, whole.size() - 1), "not what it says"},
      {whole + "x", "not what it says"},
      {flipped, "has a wrong sum"},
      {other_format, "has format 77"},
  };
  for (const auto& [bytes, damage] : cases) {
    write_file(path, bytes);
    EXPECT_NE(list(disk, true).files.at(0).damage.find(damage), std::string::npos) << damage;
    const Log log;
    Disk again = disk_of(top.path());
    EXPECT_EQ(again.load(key_of("x")), std::nullopt) << damage;
    EXPECT_NE(log.text().find(damage), std::string::npos) << log.text();
    EXPECT_FALSE(std::filesystem::exists(path)) << damage;
  }
}

TEST(Disk, LetsGoWhatWasNotUsedForLongest) {
  const TemporaryFolder top;
  const Blob blob(1000, 7);
  Disk probe = disk_of(top.path());
  ASSERT_TRUE(probe.save(key_of("0"), blob));
  const std::uint64_t one = std::filesystem::file_size(file_of(top.path(), key_of("0")));
  Disk disk = disk_of(top.path(), 3 * one + one / 2);
  for (const char* const name : {"1", "2"}) ASSERT_TRUE(disk.save(key_of(name), blob));
  age(file_of(top.path(), key_of("0")), 3000);
  age(file_of(top.path(), key_of("1")), 2000);
  age(file_of(top.path(), key_of("2")), 1000);
  write_file(top.path("mine.txt"), std::string(10000, 'x'));  // neither counted nor touched
  ASSERT_TRUE(disk.load(key_of("0")));                        // used: now 1 is the oldest
  ASSERT_TRUE(disk.save(key_of("3"), blob));
  EXPECT_TRUE(disk.load(key_of("0")));
  EXPECT_FALSE(disk.load(key_of("1")));
  EXPECT_TRUE(disk.load(key_of("2")));
  EXPECT_TRUE(disk.load(key_of("3")));
  EXPECT_TRUE(std::filesystem::exists(top.path("mine.txt")));
  EXPECT_FALSE(disk.save(key_of("4"), Blob(10000)));  // larger than all of it: not kept
  EXPECT_TRUE(disk.load(key_of("3")));
}

TEST(Disk, SweepsUpAfterBuildersThatDied) {
  const TemporaryFolder top;
  const std::string lock = name_of(key_of("dead")) + lock_suffix;
  for (const char* const name : {"fovea-tmp-1-2-3", "fovea-tmp-new", "tmp-mine"}) {
    write_file(top.path(name), "half a plan");
  }
  write_file(top.path(lock), "");
  age(top.path("fovea-tmp-1-2-3"), 7200);
  age(top.path("tmp-mine"), 7200);
  age(top.path(lock), 7200);
  Disk disk = disk_of(top.path());
  ASSERT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  EXPECT_FALSE(std::filesystem::exists(top.path("fovea-tmp-1-2-3")));
  EXPECT_FALSE(std::filesystem::exists(top.path(lock)));
  EXPECT_TRUE(std::filesystem::exists(top.path("fovea-tmp-new")));  // may still be written
  EXPECT_TRUE(std::filesystem::exists(top.path("tmp-mine")));       // not ours
}

TEST(Disk, ListsAndClears) {
  const TemporaryFolder top;
  Disk disk = disk_of(top.path());
  ASSERT_TRUE(disk.save(key_of("x"), blob_of("of x")));
  ASSERT_TRUE(disk.save(key_of("y"), blob_of("of y")));
  write_file(top.path("mine.txt"), "x");
  age(file_of(top.path(), key_of("x")), 100);
  const Listing listing = list(disk, true);
  ASSERT_EQ(listing.files.size(), 2U);
  EXPECT_EQ(listing.files[0].key, key_of("y"));  // last used first
  EXPECT_EQ(summary_of(listing.files[1].key), "x");
  EXPECT_TRUE(listing.usable && listing.writable);
  EXPECT_EQ(listing.bytes, listing.files[0].file.bytes + listing.files[1].file.bytes);
  const Removed removed = clear(disk);
  EXPECT_EQ(removed.files, 2U);
  EXPECT_EQ(removed.bytes, listing.bytes);
  EXPECT_TRUE(list(disk, false).files.empty());
  EXPECT_EQ(count_files(top.path()), 1U);
}

}  // namespace
}  // namespace fovea::store
