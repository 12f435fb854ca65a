// The verbose log: silent by default; goes to a listener, or to standard error.
#include "base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"

namespace fovea {
namespace {

void collect(void* context, const char* line) {
  static_cast<std::vector<std::string>*>(context)->emplace_back(line);
}

TEST(Log, GoesToTheListener) {
  std::vector<std::string> lines;
  set_log(collect, &lines);
  EXPECT_TRUE(log_enabled());
  log_line("b=1 h=2");
  log_line("");
  set_log(nullptr, nullptr);
  log_line("lost");
  EXPECT_EQ(lines, (std::vector<std::string>{"b=1 h=2", ""}));
}

TEST(Log, AListenerMayLog) {
  static std::vector<std::string> lines;
  set_log(
      [](void*, const char* line) {
        lines.emplace_back(line);
        if (lines.size() == 1) log_line("again");
      },
      nullptr);
  log_line("once");
  set_log(nullptr, nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"once", "again"}));
}

TEST(Log, IsSafeFromManyThreads) {
  static std::atomic<int> count{0};
  count = 0;
  set_log([](void*, const char*) { ++count; }, nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int j = 0; j < 1000; ++j) log_line("line");
    });
  }
  for (std::thread& thread : threads) thread.join();
  set_log(nullptr, nullptr);
  EXPECT_EQ(count, 8000);
}

// In processes of their own: the variable is read once. Exit codes: 0 listens, 1 does not.
TEST(LogDeathTest, StandardErrorOnlyWhereVerboseSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* verbose) {
    ::setenv("FOVEA_VERBOSE", verbose, 1);
    log_line("b=1 h=2");
    std::_Exit(log_enabled() ? 0 : 1);
  };
  EXPECT_EXIT(run("1"), testing::ExitedWithCode(0), "^b=1 h=2\n$");
  EXPECT_EXIT(run("0"), testing::ExitedWithCode(1), "^$");
  EXPECT_EXIT(run(""), testing::ExitedWithCode(1), "^$");
}

// The table of environment variables is whole, and nothing else reads the environment.

TEST(Env, EveryVariableIsListedOnce) {
  std::set<std::string> names;
  for (const EnvVariable& row : environment_variables()) {
    EXPECT_TRUE(std::string(row.name).starts_with("FOVEA_")) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(std::string(row.meaning).empty()) << row.name;
    EXPECT_STREQ(env_name(row.variable), row.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"FOVEA_ENGINE", "FOVEA_CACHE_DIR", "FOVEA_CACHE_LIMIT",
                                          "FOVEA_NUM_THREADS", "FOVEA_CPU_ISA", "FOVEA_VERBOSE",
                                          "FOVEA_BUNDLE", "FOVEA_CUDNN_DIR", "FOVEA_JIT_KEEP",
                                          "FOVEA_JIT_TIER", "FOVEA_VERIFY", "FOVEA_LIBRARY"}));
}

TEST(Env, EmptyIsUnset) {
  ::setenv("FOVEA_BUNDLE", "x", 1);
  EXPECT_EQ(env_value(Env::Bundle), "x");
  ::setenv("FOVEA_BUNDLE", "", 1);
  EXPECT_EQ(env_value(Env::Bundle), std::nullopt);
  ::unsetenv("FOVEA_BUNDLE");
  EXPECT_EQ(env_value(Env::Bundle), std::nullopt);
}

TEST(Env, NothingElseInTheLibraryReadsIt) {
  const std::filesystem::path root = std::filesystem::path(FOVEA_SOURCE_DIR) / "src";
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with("env.")) continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    EXPECT_EQ(text.str().find("getenv("), std::string::npos) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 50);
}

}  // namespace
}  // namespace fovea
