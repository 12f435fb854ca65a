// The verbose log: silent by default, to whoever asks for it, or to standard error.
#include "base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace fovea
