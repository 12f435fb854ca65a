// Folders that cannot or must not be used: never an error, always a reason.
#include "store/folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "store/disk.h"
#include "tests/store/store_case.h"

namespace fovea::store {
namespace {

using namespace fovea::store::testing;

// The store works as if there were no disk, and says why once.
void expect_unused(const std::string& path, const std::string& why) {
  const Log log;
  PlanStore plans(settings_for(path));
  for (int i = 0; i < 2; ++i) {
    Origin origin = Origin::Disk;
    const Blob blob = plans.get_or_build(key_of("x"), [] { return blob_of("of x"); }, &origin);
    EXPECT_EQ(text_of(blob), "of x");
    EXPECT_EQ(origin, Origin::Built);
  }
  const std::size_t at = log.text().find(why);
  EXPECT_NE(at, std::string::npos) << "'" << log.text() << "' lacks '" << why << "'";
  EXPECT_EQ(log.text().find(why, at + 1), std::string::npos) << "twice: " << log.text();
  EXPECT_EQ(plans.statistics().disk_writes, 0U);
}

TEST(Folder, OneThatCannotBeMade) {
  const TemporaryFolder top;
  write_file(top.path("file"), "");
  expect_unused(top.path("file"), "cannot be opened: Not a directory");
  expect_unused(top.path("file/under"), "cannot be opened: Not a directory");
  expect_unused("/proc/fovea", "cannot be made");
}

TEST(Folder, OneOfAnotherUser) {
  const TemporaryFolder top;
  std::string path = "/usr";  // the superuser's
  if (::geteuid() == 0) {
    path = top.path("theirs");
    ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
    ASSERT_EQ(::chown(path.c_str(), nobody, nobody), 0);
  }
  expect_unused(path, "belongs to another user");
}

TEST(Folder, OneThatOthersMayWriteTo) {
  const TemporaryFolder top;
  for (const mode_t mode : {0770, 0707, 0777, 01777}) {
    ASSERT_EQ(::chmod(top.path().c_str(), mode), 0);
    expect_unused(top.path(), "may be written to by others");
  }
  ASSERT_EQ(::chmod(top.path().c_str(), 0755), 0);
  EXPECT_TRUE(open_folder(top.path()));
}

TEST(Folder, LinksOfThisUserAreFollowed) {
  const TemporaryFolder top;
  std::filesystem::create_directory(top.path("real"));
  std::filesystem::create_symlink(top.path("real"), top.path("link"));
  EXPECT_TRUE(open_folder(top.path("link")));
}

TEST(Folder, LinksOfOthersAreNot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only the superuser can make another user's link";
  const TemporaryFolder top;
  const int code = wait_for(start_process([&] {
    // As one user with a link of another: neither is the superuser.
    std::filesystem::create_directory(top.path("real"));
    std::filesystem::create_symlink(top.path("real"), top.path("link"));
    if (::chown(top.path("real").c_str(), nobody, nobody) != 0) return 2;
    if (::lchown(top.path("link").c_str(), 12345, 12345) != 0) return 3;
    if (::chmod(top.path().c_str(), 0755) != 0 || ::setuid(nobody) != 0) return 4;
    return open_folder(top.path("link")).why == "is another user's link" ? 0 : 5;
  }));
  EXPECT_EQ(code, 0);
}

// Plans in it are used, none is written.
TEST(Folder, OneThatCannotBeWrittenTo) {
  const TemporaryFolder top;
  const std::string path = top.path("cache");
  const bool rooted = ::geteuid() == 0;
  ASSERT_EQ(rooted ? ::chown(top.path().c_str(), nobody, nobody) : 0, 0);
  const int code = run_without_rights([&] {
    PlanStore(settings_for(path)).get_or_build(key_of("x"), [] { return blob_of("of x"); });
    if (::chmod(path.c_str(), 0500) != 0) return 2;
    PlanStore plans(settings_for(path));
    Origin origin = Origin::Built;
    plans.get_or_build(key_of("x"), [] { return blob_of("again"); }, &origin);
    if (origin != Origin::Disk) return 3;
    plans.get_or_build(key_of("y"), [] { return blob_of("of y"); }, &origin);
    if (origin != Origin::Built || plans.statistics().disk_writes != 0) return 4;
    const Listing listing = list(plans.disk(), true);
    if (!listing.usable || listing.writable || listing.files.size() != 1) return 5;
    if (listing.why.find("cannot be written to") == std::string::npos) return 6;
    return ::chmod(path.c_str(), 0700) == 0 ? 0 : 7;
  });
  EXPECT_EQ(code, 0);
}

// Neither read through nor written through.
TEST(Folder, AFileThatIsALinkIsReplaced) {
  const TemporaryFolder top;
  const std::string path = top.path("cache"), elsewhere = top.path("elsewhere");
  PlanStore(settings_for(path)).get_or_build(key_of("x"), [] { return blob_of("of x"); });
  std::filesystem::rename(file_of(path, key_of("x")), elsewhere);
  std::filesystem::create_symlink(elsewhere, file_of(path, key_of("x")));
  const std::string before = read_file(elsewhere);
  Origin origin = Origin::Disk;
  PlanStore plans(settings_for(path));
  plans.get_or_build(key_of("x"), [] { return blob_of("again"); }, &origin);
  EXPECT_EQ(origin, Origin::Built);
  EXPECT_EQ(read_file(elsewhere), before);
  EXPECT_EQ(plans.find(key_of("x")), blob_of("again"));
  EXPECT_FALSE(std::filesystem::is_symlink(file_of(path, key_of("x"))));
}

TEST(Folder, GoesAndComesBackWhileAProcessLives) {
  const TemporaryFolder top;
  PlanStore plans(settings_for(top.path("cache")));
  for (int i = 0; i < 2; ++i) {
    Origin origin = Origin::Disk;
    plans.get_or_build(key_of("x"), [] { return blob_of("of x"); }, &origin);
    EXPECT_EQ(origin, Origin::Built);
    EXPECT_TRUE(plans.find(key_of("x")));
    std::filesystem::remove_all(top.path("cache"));
  }
}

class FolderChoiceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  void set(const std::string& name, const char* value) {
    const char* const old = std::getenv(name.c_str());
    before_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    value == nullptr ? ::unsetenv(name.c_str()) : ::setenv(name.c_str(), value, 1);
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST_F(FolderChoiceTest, TheEnvironmentDecides) {
  set("FOVEA_CACHE_DIR", "/some/where");
  set("XDG_CACHE_HOME", "/xdg");
  set("HOME", "/home/me");
  EXPECT_EQ(choose_folder().path, "/some/where");
  set("FOVEA_CACHE_DIR", "/some//where/./here/../");
  EXPECT_EQ(choose_folder().path, "/some/where");
  set("FOVEA_CACHE_DIR", "relative");
  EXPECT_EQ(choose_folder().path, (std::filesystem::current_path() / "relative").string());
  set("FOVEA_CACHE_DIR", "off");
  EXPECT_EQ(choose_folder().path, "");
  EXPECT_EQ(choose_folder().why_none, "FOVEA_CACHE_DIR is off");
  set("FOVEA_CACHE_DIR", nullptr);
  EXPECT_EQ(choose_folder().path, "/xdg/fovea");
  set("XDG_CACHE_HOME", "relative");
  EXPECT_EQ(choose_folder().path, "/home/me/.cache/fovea");
  set("XDG_CACHE_HOME", nullptr);
  EXPECT_EQ(choose_folder().path, "/home/me/.cache/fovea");
  set("HOME", nullptr);
  EXPECT_EQ(choose_folder().path, "");
  EXPECT_NE(choose_folder().why_none.find("HOME"), std::string::npos);
}

TEST_F(FolderChoiceTest, SettingsAreRead) {
  set("FOVEA_BUNDLE", ":a.fovea::b c.fovea");
  set("FOVEA_CACHE_LIMIT", "3M");
  const Settings settings = settings_from_environment();
  EXPECT_EQ(settings.bundles, (std::vector<std::string>{"a.fovea", "b c.fovea"}));
  EXPECT_EQ(settings.limit, 3U << 20);
  EXPECT_EQ(settings.bad_limit, "");
  set("FOVEA_CACHE_LIMIT", "much");
  EXPECT_EQ(settings_from_environment().limit, default_limit);
  EXPECT_EQ(settings_from_environment().bad_limit, "much");
}

TEST(Settings, SizesAreNumbersWithUnits) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("65536"), 65536U);
  EXPECT_EQ(parse_bytes("4K"), 4096U);
  EXPECT_EQ(parse_bytes("500MiB"), 500U << 20);
  EXPECT_EQ(parse_bytes("2G"), std::uint64_t{2} << 30);
  for (const char* const bad :
       {"", "G", "-1", "1T", "1 G", "1.5G", "99999999999999999999", "18446744073709551615K"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace fovea::store
