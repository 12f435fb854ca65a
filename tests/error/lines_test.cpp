// Bad lines: tests/error/lines.txt, each with the whole text that it must be refused with.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/capi/c_call.h"

namespace {

using namespace fovea::testing;

struct BadLine {
  std::string parser, line, expected;
};

std::vector<BadLine> read_cases() {
  std::ifstream file(FOVEA_SOURCE_DIR "/tests/error/lines.txt");
  std::vector<BadLine> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("  > ")) {
      std::string& expected = cases.back().expected;
      expected += (expected.empty() ? "" : "\n") + line.substr(4);
    } else {
      const std::size_t space = line.find(' ');
      cases.push_back({line.substr(0, space), line.substr(space + 1), ""});
    }
  }
  return cases;
}

std::string refusal(const BadLine& bad) {
  fovea_status status = FOVEA_OK;
  if (bad.parser == "program") {
    fovea_program program = nullptr;
    status = fovea_program_parse(bad.line.c_str(), &program);
    EXPECT_EQ(program, nullptr);
  } else {
    fovea_problem problem = nullptr, backward = nullptr;
    status = fovea_problem_parse(bad.line.c_str(), &problem, &backward);
    EXPECT_EQ(problem, nullptr);
    EXPECT_EQ(backward, nullptr);
  }
  EXPECT_EQ(status, FOVEA_INVALID_ARGUMENT);
  return fovea_last_error();
}

TEST(BadLines, AreRefusedWithTheirTexts) {
  const std::vector<BadLine> cases = read_cases();
  EXPECT_GE(cases.size(), 100u);
  for (const BadLine& bad : cases) {
    SCOPED_TRACE(bad.parser + " " + bad.line);
    ASSERT_NE(bad.expected, "");
    EXPECT_EQ(refusal(bad), bad.expected);
  }
}

}  // namespace
