// `fovea compile` with an engine that keeps texts: what is written, said and returned.
#include <gtest/gtest.h>

#include <fovea/fovea.h>

#include <CLI/CLI.hpp>
#include <sstream>

#include "cli/verbs/verbs.h"
#include "store/bundle.h"
#include "tests/store/storing_engine.h"

namespace {

using namespace fovea::testing;
using fovea::store::Bundle;
using fovea::store::testing::count_files;
using fovea::store::testing::read_file;
using fovea::store::testing::TemporaryFolder;
using fovea::store::testing::write_file;

struct Said {
  int code = 0;
  std::string out, err;
};

// As the program's main(), in this process.
Said compile(const std::string& words) {
  CLI::App program("", "fovea");
  fovea::cli::add_compile(program);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  std::string failure;
  try {
    program.parse("compile --device h200 " + words);
  } catch (const fovea::cli::Failed&) {
    said.code = 1;
  } catch (const std::exception& error) {
    said.code = 2;
    failure = error.what();
  }
  said.out = ::testing::internal::GetCapturedStdout();
  said.err = ::testing::internal::GetCapturedStderr() + failure;
  return said;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Compile : public ::testing::Test {
 protected:
  Compile() {
    storing_engine();
    fovea_disk_cache_clear(nullptr, nullptr);
  }
  std::string lines(const std::string& text) {
    write_file(top.path("lines.txt"), text);
    return top.path("lines.txt");
  }
  std::string output() const { return top.path("plans.fovea"); }
  Said run(const std::string& text, const std::string& more = "") {
    return compile(lines(text) + " -o " + output() + " " + more);
  }

  TemporaryFolder top;
};

TEST_F(Compile, WritesABundleOfAllLines) {
  std::string text = "# a comment\n\n";
  for (int i = 1; i <= 12; ++i) text += "  h=2 sq=" + std::to_string(i) + " d=4 direction=both\n";
  const Said said = run(text + "h=2 sq=3 d=4\n", "--jobs 3");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.err, "");  // not a terminal
  EXPECT_TRUE(said.out.starts_with(output() + ": 25 plans, ")) << said.out;
  EXPECT_TRUE(has(said.out, "from 13 of 13 lines for h200")) << said.out;
  EXPECT_TRUE(has(said.out, "3 processes")) << said.out;
  const Bundle bundle = Bundle::open(output());
  ASSERT_EQ(bundle.sections().size(), 1U);
  EXPECT_EQ(bundle.index().made_by, std::string("fovea ") + fovea_version());
  EXPECT_TRUE(has(bundle.index().entries[0].key.content, "sq=1 "));  // in the order of the lines
  EXPECT_EQ(count_files(top.path()), 2U);                            // nothing else is left
}

TEST_F(Compile, TheSameLinesGiveTheSameFile) {
  std::string text;
  for (int i = 1; i <= 12; ++i) text += "h=2 sq=" + std::to_string(i) + " d=4\n";
  ASSERT_EQ(run(text, "--jobs 4").code, 0);
  const std::string first = read_file(output());
  ASSERT_EQ(run(text, "--jobs 1").code, 0);  // found on disk this time
  EXPECT_EQ(read_file(output()), first);
}

TEST_F(Compile, LinesThatNoEngineCanAreNamed) {
  const std::string text = "h=2 sq=1 d=4\nh=2 sq=1 d=300\n";
  Said said = run(text);
  EXPECT_EQ(said.code, 1);
  EXPECT_TRUE(has(said.err, "lines.txt:2: not compiled: no engine can compile this ahead"))
      << said.err;
  EXPECT_TRUE(has(said.err, "limit of d_too_large")) << said.err;
  EXPECT_TRUE(has(said.out, "1 plan, ")) << said.out;
  EXPECT_TRUE(has(said.out, "from 1 of 2 lines")) << said.out;
  said = run(text, "--skip-unsupported");
  EXPECT_EQ(said.code, 0);
  EXPECT_TRUE(has(said.err, "lines.txt:2: not compiled")) << said.err;
}

TEST_F(Compile, WithoutAnyPlanNothingIsWritten) {
  const Said said = run("h=2 sq=1 d=300\n", "--skip-unsupported");
  EXPECT_EQ(said.code, 1);
  EXPECT_TRUE(has(said.err, "none of the 1 lines was compiled")) << said.err;
  EXPECT_EQ(count_files(top.path()), 1U);
}

// If a library aborts or fails, only the line that was compiled is lost.
TEST_F(Compile, AWorkerThatDiesCostsItsLineAlone) {
  std::string text;
  for (int i = 1; i <= 9; ++i) {
    text += "h=" + std::string(i % 3 == 0 ? "13" : "2") + " sq=" + std::to_string(i) + " d=4\n";
  }
  const Said said = run(text + "h=17 sq=1 d=4\n", "--jobs 2 --skip-unsupported");
  EXPECT_EQ(said.code, 1);
  EXPECT_TRUE(
      has(said.err, "lines.txt:6: not compiled: the process that compiled it ended: signal 9"))
      << said.err;
  EXPECT_TRUE(has(said.err, "lines.txt:10: not compiled: fake: the device is on fire")) << said.err;
  EXPECT_TRUE(has(said.out, "6 plans, ")) << said.out;
  EXPECT_EQ(Bundle::open(output()).index().entries.size(), 6U);
}

TEST_F(Compile, MistakesAreOneLine) {
  const auto mistake = [&](const Said& said, const std::string& text) {
    EXPECT_EQ(said.code, 2) << text;
    EXPECT_TRUE(has(said.err, text)) << said.err;
    EXPECT_EQ(said.out, "");
    EXPECT_FALSE(std::filesystem::exists(output()));
  };
  mistake(run("h=2 sq=1\nh=2 sqq=1\n"), "lines.txt:2: ");
  mistake(run("# nothing\n"), "there is no problem line in it");
  mistake(run("h=2 sq=1\n", "--engine fkae"), "engine 'fkae' is unknown; did you mean 'fake'?");
  mistake(compile("/nowhere -o " + output()),
          "/nowhere: cannot be opened: No such file or directory");
  mistake(compile(lines("h=2 sq=1\n") + " -o /nowhere/x"), "/nowhere/x: cannot be written");
  mistake(compile(lines("h=2 sq=1\n") + " -o " + top.path()), "Is a directory");
  EXPECT_EQ(count_files(top.path()), 1U);
}

TEST_F(Compile, WhatItWritesIsUsed) {
  ASSERT_EQ(run("h=2 sq=40 d=4\n").code, 0);
  fovea_disk_cache_clear(nullptr, nullptr);
  ASSERT_EQ(fovea_bundle_load(output().c_str()), FOVEA_OK) << fovea_last_error();
  const int before = storing_engine().built;
  fovea_problem problem = nullptr;
  ASSERT_EQ(fovea_problem_parse("h=2 sq=40 d=4", &problem, nullptr), FOVEA_OK);
  fovea_plan_options options{};
  options.struct_size = sizeof options;
  options.device = "h200";
  options.engine = "fake";
  fovea_plan plan = nullptr;
  EXPECT_EQ(fovea_plan_create(problem, &options, &plan), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(storing_engine().built, before);
  fovea_plan_destroy(plan);
  fovea_problem_destroy(problem);
}

}  // namespace
