// "Did you mean".
#include "base/words.h"

#include <gtest/gtest.h>

namespace fovea {
namespace {

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
