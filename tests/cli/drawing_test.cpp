// The parts below the pictures: ticks, colours, wrapping, and the terminal drawing.
#include <gtest/gtest.h>

#include <sstream>

#include "cli/draw/labels.h"
#include "cli/draw/picture.h"
#include "cli/draw/terminal.h"

namespace fovea::cli {
namespace {

TEST(Ticks, AreRound) {
  EXPECT_EQ(position_ticks(256, 8), (std::vector<int>{0, 32, 64, 96, 128, 160, 192, 224, 256}));
  EXPECT_EQ(position_ticks(1000, 8), (std::vector<int>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(position_ticks(1, 8), (std::vector<int>{0, 1}));
  EXPECT_EQ(position_ticks(2147483647, 8).size(), 5u);
  EXPECT_EQ(value_ticks(-30, 30, 6), (std::vector<double>{-30, -20, -10, 0, 10, 20, 30}));
  EXPECT_EQ(value_ticks(0, 0.3, 3).size(), 4u);
  EXPECT_EQ(value_text(0.1 + 0.2, 0.1), "0.3");
  EXPECT_NE(value_text(1e6 + 0.25, 0.25), value_text(1e6 + 0.5, 0.25));
  EXPECT_LE(value_ticks(3.4e38, 3.4e38 * (1 + 1e-12), 6).size(), 65u);
}

TEST(Percent, NeverRoundsToAllOrNothing) {
  EXPECT_EQ(percent(0, 10), "0 %");
  EXPECT_EQ(percent(10, 10), "100 %");
  EXPECT_EQ(percent(1, 100000), "<0.1 %");
  EXPECT_EQ(percent(99999, 100000), ">99.9 %");
  EXPECT_EQ(percent(28, 64), "43.8 %");
}

TEST(ColourMaps, GetBrighterInEvenSteps) {
  const auto light = [](Color c) { return 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b; };
  for (int i = 1; i <= 64; ++i) {
    EXPECT_GT(light(sequential(i / 64.0)), light(sequential((i - 1) / 64.0))) << i;
    EXPECT_LT(light(diverging(i / 64.0)), light(diverging((i - 1) / 64.0))) << i;
    EXPECT_LT(light(diverging(-i / 64.0)), light(diverging(-(i - 1) / 64.0))) << i;
  }
}

TEST(Wrap, TakesCharactersNotBytes) {
  std::string_view bad = "\xe2\x82", good = "\u00d7x";
  EXPECT_EQ(take_code_point(bad), U'\ufffd');
  EXPECT_EQ(take_code_point(good), U'\u00d7');
  EXPECT_EQ(good, "x");
}

TEST(Wrap, KeepsLinesShortAndMarksWhatIsLeftOut) {
  const Measure length = [](std::string_view t) { return static_cast<double>(t.size()); };
  EXPECT_EQ(wrap_text("q >= k && q - k < 64", 12, 3, length),
            (std::vector<std::string>{"q >= k && q", "- k < 64"}));
  EXPECT_EQ(wrap_text("score + k   where   q >= k", 20, 3, length),
            (std::vector<std::string>{"score + k", "where   q >= k"}));
  EXPECT_EQ(wrap_text("abcdefghij", 6, 1, length), (std::vector<std::string>{"abc\u2026"}));
  EXPECT_TRUE(wrap_text("   ", 6, 2, length).empty());
  EXPECT_EQ(printable("a\x1b[0m\nb\xff"), "a [0m b\ufffd");
}

// Characters that a terminal shows: escape sequences take no room.
int shown_width(std::string_view line) {
  int width = 0;
  while (!line.empty()) {
    if (line.starts_with("\033[")) {
      line.remove_prefix(line.find('m') + 1);
      continue;
    }
    take_code_point(line);
    ++width;
  }
  return width;
}

Picture sample(int sq, int skv, bool scored) {
  Picture p;
  p.title = "q >= k && q - k < window[h] || k < prefix[b] || doc[b, q] == doc[b, k]";
  p.subtitle = "b=0 h=3";
  p.sq = sq;
  p.skv = skv;
  for (int i = 0; i < sq * skv; ++i) p.keep.push_back(i / skv >= i % skv);
  if (scored) p.score.assign(p.keep.size(), -1234.5f);
  p.tile_q = p.tile_k = 32;
  p.tiles.assign(static_cast<std::size_t>((sq + 31) / 32 * ((skv + 31) / 32)), TileClass::Mixed);
  return p;
}

TEST(Terminal, FitsWhateverTheSize) {
  const std::pair<int, int> screens[] = {{24, 12}, {40, 12}, {80, 40}, {200, 60}, {33, 200}};
  const std::pair<int, int> shapes[] = {{1, 1}, {256, 256}, {777, 63}, {63, 777},
                                        {7, 9}, {1, 4096},  {4096, 1}, {1001, 1001}};
  for (const auto& [columns, rows] : screens) {
    for (const auto& [sq, skv] : shapes) {
      for (const int kind : {0, 1, 2, 3}) {
        std::istringstream text(draw_text(sample(sq, skv, kind / 2), columns, rows, kind % 2));
        int lines = 0;
        for (std::string line; std::getline(text, line); ++lines) {
          ASSERT_LE(shown_width(line), columns) << sq << " x " << skv << ": " << line;
        }
        EXPECT_LE(lines, rows) << sq << " x " << skv << " in " << columns << " x " << rows;
      }
    }
  }
  EXPECT_THROW(draw_text(sample(4, 4, false), 10, 40, true), std::invalid_argument);
}

TEST(Terminal, DrawsTheMaskWithBlocks) {
  Picture p = sample(32, 32, false);
  p.tiles = {TileClass::Mixed};
  const std::string plain = draw_text(p, 80, 40, false);
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  EXPECT_NE(plain.find("█"), std::string::npos);
  EXPECT_NE(plain.find("mixed 1 (100 %)"), std::string::npos);
  const std::string color = draw_text(p, 80, 40, true);
  EXPECT_NE(color.find("\033[38;2;82;140;201m"), std::string::npos);
  EXPECT_NE(color.find("▀"), std::string::npos);
}

}  // namespace
}  // namespace fovea::cli
