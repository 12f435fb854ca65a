// Lines of key=value words: what is joined splits again, and every mistake is named.
#include "base/words.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "tests/error_of.h"

namespace fovea {
namespace {

std::string message(std::string_view line) {
  return test::error_of<InvalidArgument>([&] { split_words(line); });
}

TEST(Words, Splits) {
  const std::vector<Word> words =
      split_words("  a=1\tmask=\"q >= k\"\nempty= quoted=\"\" x_2=a=b ");
  ASSERT_EQ(words.size(), 5u);
  EXPECT_EQ(words[0].key, "a");
  EXPECT_EQ(words[0].value, "1");
  EXPECT_EQ(words[0].position, 2u);
  EXPECT_EQ(words[1].key, "mask");
  EXPECT_EQ(words[1].value, "q >= k");
  EXPECT_EQ(words[1].position, 6u);
  EXPECT_EQ(words[2].value, "");
  EXPECT_EQ(words[3].value, "");
  EXPECT_EQ(words[4].key, "x_2");
  EXPECT_EQ(words[4].value, "a=b");
  EXPECT_TRUE(split_words("").empty());
  EXPECT_TRUE(split_words(" \t\r\n").empty());
}

TEST(Words, Escapes) {
  EXPECT_EQ(split_words(R"(a="x \"y\" \\ z")")[0].value, R"(x "y" \ z)");
  EXPECT_EQ(split_words(R"(a="C:\dir")")[0].value, R"(C:\dir)");  // other backslashes stand
  EXPECT_EQ(split_words(R"(a=C:\dir)")[0].value, R"(C:\dir)");
}

TEST(Words, NamesEveryMistake) {
  EXPECT_EQ(message("mask"), "at character 1 of the line: expected key=value, got 'mask'");
  EXPECT_EQ(
      message("a=1 =2"),
      "at character 5 of the line: expected key=value, got '=2'; a value with spaces needs quotes");
  EXPECT_EQ(
      message("a=1 b c=2"),
      "at character 5 of the line: expected key=value, got 'b'; a value with spaces needs quotes");
  EXPECT_EQ(message("a=\"x"), "at character 3 of the line: this quote is never closed");
  EXPECT_EQ(message("a=\"x\\\""), "at character 3 of the line: this quote is never closed");
  EXPECT_EQ(message("a=\"x\"y"), "at character 6 of the line: expected a space after the quote");
  EXPECT_EQ(message("a=x\"y"), "at character 4 of the line: a quote inside an unquoted value");
  EXPECT_NE(message(std::string("a=\0b", 4)).find("control character 0"), std::string::npos);
  EXPECT_NE(message("a=\x1b[0m").find("control character 27"), std::string::npos);
  EXPECT_NE(message("a=" + std::string(std::size_t{1} << 20, 'x')).find("1048578"),
            std::string::npos);
}

// Any bytes but control characters, any number of words.
TEST(Words, WhatIsJoinedSplitsAgain) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> values;
    std::string line;
    for (std::uint32_t count = random() % 4; count > 0; --count) {
      std::string value;
      for (std::uint32_t length = random() % 12; length > 0; --length) {
        const char special[] = {'"', '\\', ' ', '\t', '\n', '=', 'a', '\x80', '\xff', '\x7f'};
        value +=
            random() % 2 == 0 ? special[random() % 10] : static_cast<char>(' ' + random() % 95);
      }
      line += (line.empty() ? "" : " ") + join_word("key" + std::to_string(values.size()), value);
      values.push_back(value);
    }
    const std::vector<Word> words = split_words(line);
    ASSERT_EQ(words.size(), values.size()) << line;
    for (std::size_t i = 0; i < words.size(); ++i) {
      ASSERT_EQ(words[i].key, "key" + std::to_string(i)) << line;
      ASSERT_EQ(words[i].value, values[i]) << line;
    }
  }
}

TEST(Words, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(join_word("b", "2"), "b=2");
  EXPECT_EQ(join_word("mask", "q>=k"), "mask=q>=k");
  EXPECT_EQ(join_word("mask", "q >= k"), "mask=\"q >= k\"");
  EXPECT_EQ(join_word("a", ""), "a=\"\"");
  EXPECT_EQ(join_word("a", "x\"y"), "a=\"x\\\"y\"");
}

// "Did you mean".

const std::vector<std::string> names{"softcap", "sigmoid", "score", "sliding", "prefix",
                                     "tanh",    "exp",     "exp2",  "k",       "q"};

std::string nearest(std::string_view name) { return nearest_name(name, names).value_or(""); }

TEST(Spelling, FindsTheNearest) {
  EXPECT_EQ(nearest("sofcap"), "softcap");    // one letter missing
  EXPECT_EQ(nearest("softtcap"), "softcap");  // one too many
  EXPECT_EQ(nearest("softcup"), "softcap");   // one other
  EXPECT_EQ(nearest("sotfcap"), "softcap");   // two swapped
  EXPECT_EQ(nearest("SoftCap"), "softcap");   // case does not count
  EXPECT_EQ(nearest("sigmiod"), "sigmoid");
  EXPECT_EQ(nearest("thanh"), "tanh");
  EXPECT_EQ(nearest("exp3"), "exp");  // the first of two that are equally near
  EXPECT_EQ(nearest("scores"), "score");
}

TEST(Spelling, DoesNotGuessWildly) {
  EXPECT_EQ(nearest(""), "");
  EXPECT_EQ(nearest("z"), "");  // every letter would have to change
  EXPECT_EQ(nearest("attention"), "");
  EXPECT_EQ(nearest(std::string(65, 's')), "");
  EXPECT_FALSE(nearest_name("score", {}).has_value());
  EXPECT_EQ(nearest_name("abc", {std::string(100, 'a')}), std::nullopt);
}

TEST(Spelling, IsReadyToBeAppended) {
  EXPECT_EQ(did_you_mean("sofcap", names), "; did you mean 'softcap'?");
  EXPECT_EQ(did_you_mean("attention", names), "");
}

}  // namespace
}  // namespace fovea
