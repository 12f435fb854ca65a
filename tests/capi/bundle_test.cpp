// Bundles and the cache folder through the C interface, with an engine that keeps texts.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>

#include "tests/capi/c_call.h"
#include "tests/store/storing_engine.h"

namespace {

using namespace fovea::testing;
using fovea::store::testing::read_file;
using fovea::store::testing::TemporaryFolder;
using fovea::store::testing::write_file;

struct Bundle {
  explicit Bundle(const std::string& path) {
    EXPECT_EQ(fovea_bundle_create(path.c_str(), &handle), FOVEA_OK) << fovea_last_error();
  }
  ~Bundle() { fovea_bundle_destroy(handle); }
  fovea_bundle handle = nullptr;
};

// What adding the line says, or the error.
std::string add(fovea_bundle bundle, const char* line, const char* engine = nullptr) {
  fovea_problem problem = nullptr;
  EXPECT_EQ(fovea_problem_parse(line, &problem, nullptr), FOVEA_OK) << fovea_last_error();
  const Owned<fovea_problem> owned(problem);
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  options.engine = engine;
  options.device = "h200";
  fovea_report report = nullptr;
  const fovea_status status = fovea_bundle_add(bundle, problem, &options, &report);
  const std::string text = status == FOVEA_OK ? fovea_report_text(report) : fovea_last_error();
  fovea_report_destroy(report);
  return text;
}

std::string list(std::uint32_t flags, fovea_disk_cache_info* info) {
  fovea_report report = nullptr;
  EXPECT_EQ(fovea_disk_cache_list(flags, info, &report), FOVEA_OK) << fovea_last_error();
  std::string text = fovea_report_text(report);
  fovea_report_destroy(report);
  return text;
}

class BundleApi : public ::testing::Test {
 protected:
  BundleApi() { storing_engine().environment = "fake 1.0 sm_90"; }
  ~BundleApi() override { storing_engine().environment = "fake 1.0 sm_90"; }

  std::string write(const std::string& name, const char* line) {
    const Bundle bundle(top.path(name));
    EXPECT_TRUE(add(bundle.handle, line).starts_with("fake ")) << line;
    EXPECT_EQ(fovea_bundle_finish(bundle.handle, nullptr, nullptr), FOVEA_OK);
    return top.path(name);
  }

  TemporaryFolder top;
};

TEST_F(BundleApi, IsWrittenLoadedAndUsed) {
  const std::string path = top.path("plans.fovea");
  {
    const Bundle bundle(path);
    EXPECT_EQ(add(bundle.handle, "h=2 sq=9 d=4"), "fake built");
    EXPECT_EQ(add(bundle.handle, "h=2 sq=9 d=4"), "fake from disk");  // in it once
    EXPECT_EQ(add(bundle.handle, "h=2 sq=9 d=5", "fake"), "fake built");
    std::uint64_t plans = 0, bytes = 0;
    ASSERT_EQ(fovea_bundle_finish(bundle.handle, &plans, &bytes), FOVEA_OK);
    EXPECT_EQ(plans, 2U);
    EXPECT_EQ(bytes, std::filesystem::file_size(path));
    EXPECT_EQ(fovea_bundle_finish(bundle.handle, nullptr, nullptr), FOVEA_INVALID_ARGUMENT);
    EXPECT_STREQ(fovea_last_error(), (path + ": is written already").c_str());
  }
  ASSERT_EQ(fovea_disk_cache_clear(nullptr, nullptr), FOVEA_OK);
  ASSERT_EQ(fovea_bundle_load(path.c_str()), FOVEA_OK) << fovea_last_error();
  const fovea_cache_stats before = statistics();
  const Bundle other(top.path("other.fovea"));
  EXPECT_EQ(add(other.handle, "h=2 sq=9 d=4"), "fake from a bundle");
  EXPECT_EQ(add(other.handle, "h=2 sq=9 d=6"), "fake built");
  EXPECT_EQ(add(other.handle, "h=2 sq=9 d=6"), "fake from disk");
  const fovea_cache_stats after = statistics();
  EXPECT_EQ(after.bundle_hits - before.bundle_hits, 1U);
  EXPECT_EQ(after.disk_writes - before.disk_writes, 1U);
  EXPECT_EQ(after.disk_hits - before.disk_hits, 1U);
}

TEST_F(BundleApi, OneForAnotherEnvironmentIsRefused) {
  const std::string path = write("plans.fovea", "h=2 sq=10 d=4");
  storing_engine().environment = "fake 1.1 sm_90";
  EXPECT_EQ(fovea_bundle_load(path.c_str()), FOVEA_UNSUPPORTED);
  EXPECT_EQ(std::string(fovea_last_error()),
            path + ": its plans are for fake 1.0 sm_90, here is fake 1.1 sm_90");
}

TEST_F(BundleApi, DamagedOnesAreRefused) {
  const std::string path = write("plans.fovea", "h=2 sq=11 d=4");
  const std::string whole = read_file(path);
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write_file(path, whole.substr(0, size));
    EXPECT_EQ(fovea_bundle_load(path.c_str()), FOVEA_INVALID_ARGUMENT) << size;
    EXPECT_TRUE(std::string(fovea_last_error()).starts_with(path + ": ")) << fovea_last_error();
  }
  const Bundle bundle(top.path("other.fovea"));
  EXPECT_EQ(fovea_bundle_merge(bundle.handle, path.c_str()), FOVEA_INVALID_ARGUMENT);
}

TEST_F(BundleApi, Merges) {
  const std::string a = write("a", "h=2 sq=12 d=4"), b = write("b", "h=2 sq=12 d=5");
  const Bundle bundle(top.path("both"));
  ASSERT_EQ(fovea_bundle_merge(bundle.handle, a.c_str()), FOVEA_OK);
  ASSERT_EQ(fovea_bundle_merge(bundle.handle, b.c_str()), FOVEA_OK);
  ASSERT_EQ(fovea_bundle_merge(bundle.handle, b.c_str()), FOVEA_OK);
  std::uint64_t plans = 0;
  ASSERT_EQ(fovea_bundle_finish(bundle.handle, &plans, nullptr), FOVEA_OK);
  EXPECT_EQ(plans, 2U);
}

TEST_F(BundleApi, SaysWhatIsWrong) {
  fovea_bundle none = nullptr;
  fovea_report report = nullptr;
  const Bundle bundle(top.path("x"));
  EXPECT_EQ(fovea_bundle_create("/nowhere/x", &none), FOVEA_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_last_error(), "/nowhere/x: cannot be written: No such file or directory");
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(fovea_bundle_load("/nowhere/x"), FOVEA_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_last_error(), "/nowhere/x: cannot be opened: No such file or directory");
  EXPECT_NE(add(bundle.handle, "h=2 sq=9 d=300").find("limit of d_too_large"), std::string::npos);
  EXPECT_EQ(add(bundle.handle, "h=17 sq=9 d=4"), "fake: the device is on fire");
  EXPECT_EQ(fovea_disk_cache_list(4, nullptr, &report), FOVEA_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_last_error(),
               "flags is 4; it may have FOVEA_DISK_CACHE_JSON (1) and FOVEA_DISK_CACHE_VERIFY (2)");
}

TEST_F(BundleApi, TheFolderIsListedVerifiedAndCleared) {
  ASSERT_EQ(fovea_disk_cache_clear(nullptr, nullptr), FOVEA_OK);
  write("plans.fovea", "h=2 sq=21 d=4");
  fovea_disk_cache_info info{};
  info.struct_size = sizeof info;
  const std::string table = list(0, &info);
  EXPECT_TRUE(info.usable && info.writable);
  EXPECT_EQ(info.plans, 1U);
  EXPECT_GT(info.bytes, 0U);
  EXPECT_EQ(info.limit, fovea::store::default_limit);
  EXPECT_NE(table.find("fake    "), std::string::npos) << table;
  EXPECT_NE(table.find("sq=21"), std::string::npos) << table;
  const std::string json = list(FOVEA_DISK_CACHE_JSON, nullptr);
  EXPECT_NE(json.find("\"environment\": \"fake 1.0 sm_90\""), std::string::npos) << json;

  for (const auto& one : std::filesystem::directory_iterator(use_own_folder())) {
    std::string bytes = read_file(one.path());
    bytes.back() ^= 1;
    write_file(one.path(), bytes);
  }
  list(0, &info);
  EXPECT_EQ(info.damaged, 0U);  // only keys were read
  EXPECT_NE(list(FOVEA_DISK_CACHE_VERIFY, &info).find("has a wrong sum"), std::string::npos);
  EXPECT_EQ(info.damaged, 1U);
  std::uint64_t plans = 0, bytes = 0;
  ASSERT_EQ(fovea_disk_cache_clear(&plans, &bytes), FOVEA_OK);
  EXPECT_EQ(plans, 1U);
  EXPECT_EQ(bytes, info.bytes);
}

// The first version of fovea_cache_stats ended with build_seconds.
TEST(Structs, AnEarlierVersionsStatisticsAreFilledAsFarAsTheyGo) {
  fovea_cache_stats earlier{};
  std::memset(&earlier, 0x5a, sizeof earlier);
  earlier.struct_size = offsetof(fovea_cache_stats, disk_hits);
  ASSERT_EQ(fovea_cache_statistics(&earlier), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(earlier.struct_size, offsetof(fovea_cache_stats, disk_hits));
  EXPECT_LT(earlier.hits, 1'000'000U);
  EXPECT_EQ(earlier.disk_hits, 0x5a5a5a5a5a5a5a5aU);
}

}  // namespace
