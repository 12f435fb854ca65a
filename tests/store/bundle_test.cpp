// Bundles: written, read, merged, loaded, refused.
#include "store/bundle.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "store/entry.h"
#include "tests/error_of.h"
#include "tests/store/store_case.h"

namespace fovea::store {
namespace {

using namespace fovea::store::testing;

void write_bundle(const std::string& path, const std::vector<std::pair<Key, Blob>>& blobs) {
  BundleWriter writer(path);
  for (const auto& [key, blob] : blobs) writer.add(key, blob);
  writer.finish("fovea test");
}

std::string refusal(const std::string& path) {
  return test::error_of<InvalidArgument>([&] { Bundle::open(path); });
}

TEST(Bundle, GivesBackWhatWasPutIn) {
  const TemporaryFolder top;
  const std::string path = top.path("plans.fovea");
  {
    BundleWriter writer(path);
    EXPECT_TRUE(writer.add(key_of("x"), blob_of("of x")));
    EXPECT_TRUE(writer.add(key_of("y"), Blob(300'000, 9)));
    EXPECT_TRUE(writer.add(key_of("empty"), {}));
    EXPECT_FALSE(writer.add(key_of("x"), blob_of("another")));  // the first one stays
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish("fovea test");
    EXPECT_EQ(writer.entries(), 3U);
    EXPECT_EQ(writer.file_bytes(), std::filesystem::file_size(path));
    EXPECT_THROW(writer.add(key_of("z"), {}), InvalidArgument);
  }
  EXPECT_EQ(count_files(top.path()), 1U);
  const Bundle bundle = Bundle::open(path);
  EXPECT_EQ(bundle.index().made_by, "fovea test");
  EXPECT_EQ(bundle.find(key_of("x")), blob_of("of x"));
  EXPECT_EQ(bundle.find(key_of("y")), Blob(300'000, 9));
  EXPECT_EQ(bundle.find(key_of("empty")), Blob{});
  EXPECT_EQ(bundle.find(key_of("z")), std::nullopt);
  Key other = key_of("x");
  other.environment = "fake 2.0 sm_90";
  EXPECT_EQ(bundle.find(other), std::nullopt);
  ASSERT_EQ(bundle.sections().size(), 1U);
  EXPECT_EQ(bundle.sections()[0].environment, "fake 1.0 sm_90");
  EXPECT_EQ(bundle.sections()[0].entries, 3U);
}

TEST(Bundle, OneThatIsNotFinishedLeavesNothing) {
  const TemporaryFolder top;
  write_bundle(top.path("plans.fovea"), {{key_of("x"), blob_of("of x")}});
  {
    BundleWriter writer(top.path("plans.fovea"));
    writer.add(key_of("y"), blob_of("of y"));
  }
  EXPECT_EQ(count_files(top.path()), 1U);
  EXPECT_TRUE(Bundle::open(top.path("plans.fovea")).find(key_of("x")));
}

TEST(Bundle, PlacesThatCannotBeWrittenTo) {
  const TemporaryFolder top;
  const auto why = [](const std::string& path) {
    return test::error_of<InvalidArgument>([&] { BundleWriter writer(path); });
  };
  EXPECT_EQ(why(top.path()), top.path() + ": cannot be written: Is a directory");
  EXPECT_EQ(why("/nowhere/plans.fovea"),
            "/nowhere/plans.fovea: cannot be written: No such file or directory");
  EXPECT_EQ(why("/dev/full"), "/dev/full: cannot be written: File exists");
}

TEST(Bundle, TakesInOthers) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{key_of("x"), blob_of("a's x")}, {key_of("y"), blob_of("a's y")}});
  write_bundle(top.path("b"), {{key_of("y"), blob_of("b's y")}, {key_of("z"), blob_of("b's z")}});
  {
    BundleWriter writer(top.path("both"));
    writer.add(Bundle::open(top.path("a")));
    writer.add(Bundle::open(top.path("b")));
    writer.finish("fovea test");
  }
  const Bundle both = Bundle::open(top.path("both"));
  EXPECT_EQ(both.index().entries.size(), 3U);
  EXPECT_EQ(both.find(key_of("y")), blob_of("a's y"));
  EXPECT_EQ(both.find(key_of("z")), blob_of("b's z"));
}

TEST(Bundle, WhatIsNoBundleIsRefusedWithItsName) {
  const TemporaryFolder top;
  const std::string path = top.path("plans.fovea");
  write_bundle(path, {{key_of("x"), blob_of("of x")}});
  const std::string whole = read_file(path);
  const auto with = [&](std::size_t at, char byte) {
    std::string changed = whole;
    changed[at] = byte;
    return changed;
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "is not a bundle of Fovea"},
      {"FOVEABN", "is not a bundle of Fovea"},
      {std::string(1000, 'x'), "is not a bundle of Fovea"},
      {whole.substr(0, 30), "is cut short"},
      {with(8, 2), "has format 2; this Fovea reads format 1: compile it again"},
      {with(17, 1), "is damaged: its header has a wrong sum"},
      {whole.substr(0, whole.size() - 1), "is damaged: it has"},
      {whole + "x", "is damaged: it has"},
      {with(whole.size() - 1, 'X'), "is damaged: its index has a wrong sum"},
  };
  for (const auto& [bytes, why] : cases) {
    write_file(path, bytes);
    EXPECT_TRUE(refusal(path).starts_with(path + ": " + why)) << refusal(path);
  }
  EXPECT_EQ(refusal(top.path()), top.path() + ": cannot be opened: Is a directory");
  EXPECT_EQ(refusal(top.path("none")),
            top.path("none") + ": cannot be opened: No such file or directory");
  ASSERT_EQ(::mkfifo(top.path("pipe").c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_EQ(refusal(top.path("pipe")), top.path("pipe") + ": cannot be opened: Invalid argument");
}

TEST(LoadedBundle, ComesBeforeTheDisk) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{key_of("x"), blob_of("a's")}, {key_of("y"), blob_of("a's")}});
  write_bundle(top.path("b"), {{key_of("x"), blob_of("b's")}});
  PlanStore plans(settings_for(top.path("cache")));
  const auto get = [&](const std::string& name, Origin expected) {
    Origin origin = Origin::Built;
    const Blob blob = plans.get_or_build(key_of(name), [] { return blob_of("built"); }, &origin);
    EXPECT_EQ(origin, expected) << name;
    return text_of(blob);
  };
  EXPECT_EQ(get("z", Origin::Built), "built");
  plans.load(std::make_shared<const Bundle>(Bundle::open(top.path("a"))));
  EXPECT_EQ(get("x", Origin::Bundle), "a's");
  EXPECT_EQ(get("z", Origin::Disk), "built");
  plans.load(std::make_shared<const Bundle>(Bundle::open(top.path("b"))));
  EXPECT_EQ(get("x", Origin::Bundle), "b's");
  EXPECT_EQ(get("y", Origin::Bundle), "a's");
  EXPECT_EQ(plans.statistics().bundle_hits, 3U);
  EXPECT_EQ(plans.statistics().disk_hits, 1U);
  EXPECT_EQ(plans.statistics().disk_writes, 1U);

  // A blob that its engine discards is built again, and the new one is kept.
  plans.discard(key_of("x"));
  plans.discard(key_of("z"));
  EXPECT_EQ(get("x", Origin::Built), "built");
  EXPECT_EQ(get("x", Origin::Disk), "built");
  EXPECT_EQ(get("z", Origin::Built), "built");
  EXPECT_EQ(get("y", Origin::Bundle), "a's");
}

TEST(LoadedBundle, OneForAnotherEnvironmentIsSaidOnce) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{{"fake", "fake 1.0 sm_80", "x"}, blob_of("a's")},
                               {{"other", "other 3", "x"}, blob_of("a's")}});
  Settings settings = settings_for("");
  settings.bundles = {top.path("a")};
  const Log log;
  PlanStore plans(settings);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(plans.find({"fake", "fake 1.0 sm_90", "x"}), std::nullopt);
  EXPECT_EQ(log.text(),
            "# bundle " + top.path("a") +
                ": its plans of fake are for fake 1.0 sm_80, here is fake 1.0 sm_90: not "
                "used\n");
}

TEST(LoadedBundle, AListInTheEnvironmentIsAskedInItsOrder) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{key_of("x"), blob_of("a's")}});
  write_bundle(top.path("b"), {{key_of("x"), blob_of("b's")}, {key_of("y"), blob_of("b's")}});
  Settings settings = settings_for("");
  settings.bundles = {top.path("a"), top.path("none"), top.path("b")};
  const Log log;
  PlanStore plans(settings);
  EXPECT_EQ(plans.find(key_of("x")), blob_of("a's"));
  EXPECT_EQ(plans.find(key_of("y")), blob_of("b's"));
  ASSERT_EQ(plans.named_bundles().size(), 3U);
  EXPECT_NE(plans.named_bundles()[1].refusal.find("No such file"), std::string::npos);
  EXPECT_NE(log.text().find("none: cannot be opened"), std::string::npos) << log.text();
}

TEST(LoadedBundle, WhatCameWithTheLibraryIsAskedLast) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{key_of("x"), blob_of("a's")}});
  write_bundle(top.path("stock"), {{key_of("x"), blob_of("stock's")},
                                   {key_of("y"), blob_of("stock's")},
                                   {{"fake", "fake 1.0 sm_80", "z"}, blob_of("stock's")}});
  Settings settings = settings_for("");
  settings.bundles = {top.path("a")};
  settings.stock = {top.path("stock"), top.path("none")};
  const Log log;
  PlanStore plans(settings);
  EXPECT_EQ(plans.find(key_of("x")), blob_of("a's"));
  EXPECT_EQ(plans.find(key_of("y")), blob_of("stock's"));
  EXPECT_EQ(plans.named_bundles().size(), 1U);
  EXPECT_NE(log.text().find("none: cannot be opened"), std::string::npos) << log.text();
  EXPECT_EQ(plans.find({"fake", "fake 1.0 sm_90", "z"}), std::nullopt);  // nothing is said of it
  EXPECT_EQ(log.text().find("sm_80"), std::string::npos) << log.text();
}

TEST(LoadedBundle, ABlobThatIsDamagedIsBuilt) {
  const TemporaryFolder top;
  write_bundle(top.path("a"), {{key_of("x"), blob_of("a blob to find")}});
  auto bundle = std::make_shared<const Bundle>(Bundle::open(top.path("a")));
  std::string bytes = read_file(top.path("a"));
  bytes[bytes.find("a blob to find")] = 'A';
  write_file(top.path("a"), bytes);
  const Log log;
  PlanStore plans(settings_for(""));
  plans.load(std::make_shared<const Bundle>(Bundle::open(top.path("a"))));  // the index is right
  plans.load(bundle);
  EXPECT_EQ(text_of(plans.get_or_build(key_of("x"), [] { return blob_of("built"); })), "built");
  EXPECT_NE(log.text().find("has a plan with a wrong sum"), std::string::npos) << log.text();
  write_file(top.path("a"), bytes.substr(0, 60));  // cut under our hands
  EXPECT_EQ(text_of(plans.get_or_build(key_of("x"), [] { return blob_of("built"); })), "built");
}

}  // namespace
}  // namespace fovea::store
