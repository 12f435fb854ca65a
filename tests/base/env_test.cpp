// The table of environment variables is whole, and nothing else reads the environment.
#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace fovea {
namespace {

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
