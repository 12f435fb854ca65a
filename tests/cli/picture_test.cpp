// The pictures of `fovea show`: what is written reads back, colours lie where cells are, text fits.
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>

#include "cli/canvas.h"
#include "cli/cells.h"
#include "cli/colormap.h"
#include "cli/picture.h"
#include "cli/png.h"
#include "cli/terminal.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

Picture causal(int sq, int skv) {
  Picture p;
  p.title = "q >= k";
  p.sq = sq;
  p.skv = skv;
  for (int q = 0; q < sq; ++q) {
    for (int k = 0; k < skv; ++k) p.keep.push_back(q >= k);
  }
  return p;
}

// The pixel in the middle of a cell.
Color cell_color(const Picture& p, const Canvas& canvas, int row, int column) {
  const Point origin = map_origin(p);
  const MapSize size = map_size(p);
  return canvas.at(static_cast<int>(origin.x + (column + 0.5) * size.width / p.skv),
                   static_cast<int>(origin.y + (row + 0.5) * size.height / p.sq));
}

// An empty folder that goes away with the test.
class PictureFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("fovea_picture_" + std::to_string(std::random_device{}()) + info->name());
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

Canvas read_png(const fs::path& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_file(&image, path.c_str())) << image.message;
  image.format = PNG_FORMAT_RGB;
  std::vector<unsigned char> bytes(PNG_IMAGE_SIZE(image));
  EXPECT_TRUE(png_image_finish_read(&image, nullptr, bytes.data(), 0, nullptr)) << image.message;
  Canvas canvas(static_cast<int>(image.width), static_cast<int>(image.height), {});
  for (int y = 0, i = 0; y < canvas.height(); ++y) {
    for (int x = 0; x < canvas.width(); ++x, i += 3) {
      const auto* b = &bytes[static_cast<std::size_t>(i)];
      canvas.set(x, y, {b[0], b[1], b[2]});
    }
  }
  return canvas;
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(PictureFile, ReadsBackWithTheSamePixels) {
  const Picture p = causal(64, 64);
  const Canvas drawn = draw(p);
  write_png(drawn, folder_ / "mask.png");
  const Canvas read = read_png(folder_ / "mask.png");
  ASSERT_EQ(read.width(), drawn.width());
  ASSERT_EQ(read.height(), drawn.height());
  EXPECT_TRUE(std::ranges::equal(read.bytes(), drawn.bytes()));
  for (const auto& [q, k] : {std::pair{0, 0}, {63, 0}, {63, 63}, {31, 30}}) {
    EXPECT_EQ(cell_color(p, read, q, k), palette::kept) << q << "," << k;
    if (q == k) continue;
    EXPECT_EQ(cell_color(p, read, k, q), palette::masked) << k << "," << q;
  }
  EXPECT_EQ(files(), 1u);
}

TEST_F(PictureFile, OverwritesAndKeepsLinks) {
  write_png(Canvas(3, 2, palette::ink), folder_ / "a.png");
  fs::create_symlink("a.png", folder_ / "link.png");
  write_png(Canvas(5, 4, palette::ink), folder_ / "link.png");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.png"));
  EXPECT_EQ(read_png(folder_ / "a.png").width(), 5);
  EXPECT_EQ(files(), 2u);
}

TEST_F(PictureFile, ErrorsNamePathAndReasonAndLeaveNothing) {
  const Canvas canvas(4, 4, palette::paper);
  const std::string missing = folder_ / "missing" / "mask.png";
  EXPECT_EQ(error_of([&] { write_png(canvas, missing); }),
            "cannot write " + missing + ": No such file or directory");
  EXPECT_EQ(error_of([&] { write_png(canvas, folder_); }),
            "cannot write " + folder_.string() + ": Is a directory");
  EXPECT_NE(error_of([&] { write_png(canvas, ""); }).find("path is empty"), std::string::npos);
  EXPECT_EQ(files(), 0u);
}

TEST_F(PictureFile, FullDiskIsAnErrorAndDevicesAreNotReplaced) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(error_of([] { write_png(Canvas(4, 4, palette::paper), "/dev/full"); }),
            "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST(Picture, SizesFromOneCellToLargeMaps) {
  for (const auto& [sq, skv] : {std::pair{1, 1},
                                {777, 63},
                                {63, 777},
                                {1, 4096},
                                {4096, 3},
                                {641, 640},
                                {801, 801},
                                {1000, 1000},
                                {256, 255}}) {
    const Picture p = causal(sq, skv);
    const MapSize size = map_size(p);
    EXPECT_LE(std::max(size.width, size.height), 800) << sq << " x " << skv;
    EXPECT_GE(std::min(size.width, size.height), 120) << sq << " x " << skv;
    const Canvas canvas = draw(p);
    EXPECT_GT(canvas.width(), size.width);
    // The two corners that no averaging can touch, where cells are at least a pixel.
    if (std::max(sq, skv) > 800) continue;
    EXPECT_EQ(cell_color(p, canvas, 0, 0), palette::kept);
    EXPECT_EQ(cell_color(p, canvas, 0, skv - 1), skv > 1 ? palette::masked : palette::kept);
  }
}

TEST(Picture, LargeMapsAreAveraged) {
  Picture p;
  p.sq = p.skv = 2048;
  for (int i = 0; i < 2048 * 2048; ++i) p.keep.push_back((i / 2048 + i) % 2);
  const Canvas canvas = draw(p);
  EXPECT_EQ(cell_color(p, canvas, 1000, 1000), mix(palette::kept, palette::masked, 0.5));
}

TEST(Picture, EverythingKeptOrMasked) {
  Picture p;
  p.sq = p.skv = 16;
  EXPECT_EQ(cell_color(p, draw(p), 7, 7), palette::kept);
  EXPECT_EQ(summarize(p).kept, 256u);
  p.keep.assign(256, 0);
  EXPECT_EQ(cell_color(p, draw(p), 7, 7), palette::masked);
  p.score.assign(256, 1.0f);
  EXPECT_EQ(cell_color(p, draw(p), 7, 7), palette::masked_score);
  EXPECT_FALSE(summarize(p).has_values);
}

TEST(Picture, TileClassesTintTheMap) {
  Picture p = causal(64, 64);
  p.tile_q = p.tile_k = 32;
  p.tiles = {TileClass::Mixed, TileClass::Empty, TileClass::Full, TileClass::Mixed};
  const Canvas canvas = draw(p);
  EXPECT_EQ(cell_color(p, canvas, 10, 20), palette::masked_in_mixed);
  EXPECT_EQ(cell_color(p, canvas, 20, 10), palette::kept_in_mixed);
  EXPECT_EQ(cell_color(p, canvas, 10, 50), palette::masked);
  EXPECT_EQ(cell_color(p, canvas, 50, 10), palette::kept);
  EXPECT_EQ(summarize(p).tiles, (std::array<std::size_t, 3>{1, 1, 2}));
}

TEST(Picture, SampledProblemsCountTilesInPositions) {
  Picture p = causal(64, 64);
  p.span_q = p.span_k = 65536;
  p.tile_q = p.tile_k = 32768;
  p.tiles = {TileClass::Mixed, TileClass::Empty, TileClass::Full, TileClass::Mixed};
  EXPECT_EQ(cell_color(p, draw(p), 50, 10), palette::kept);
  EXPECT_NE(draw_text(p, 80, 40, false).find("32768"), std::string::npos);
}

TEST(Picture, ScoresMayBeNotFinite) {
  Picture p;
  p.sq = 2;
  p.skv = 3;
  const float inf = std::numeric_limits<float>::infinity();
  p.score = {std::nanf(""), inf, -inf, -1, 0, 3e38f};
  const Canvas canvas = draw(p);
  for (int k = 0; k < 3; ++k) EXPECT_EQ(cell_color(p, canvas, 0, k), palette::not_finite);
  EXPECT_EQ(cell_color(p, canvas, 1, 1), diverging(0));
  EXPECT_EQ(cell_color(p, canvas, 1, 2), diverging(1));
  EXPECT_EQ(not_finite_kinds(summarize(p)), "nan, -inf, inf");
  p.score.assign(6, inf);
  draw(p);
  EXPECT_NE(draw_text(p, 60, 20, false).find("× inf 100 %"), std::string::npos);
}

TEST(Picture, ColourMapFollowsTheSigns) {
  Picture p;
  p.sq = 1;
  p.skv = 2;
  p.score = {-30, 10};
  EXPECT_TRUE(summarize(p).diverging);
  EXPECT_EQ(summarize(p).hi, 30);
  p.score = {0, 10};
  EXPECT_FALSE(summarize(p).diverging);
  p.score = {5, 5};
  EXPECT_LT(summarize(p).lo, summarize(p).hi);
  p.score = {-29.99f, 29.98f};
  EXPECT_EQ(summarize(p).hi, 30) << "an end close to a round number moves onto it";
}

TEST(Picture, WrongFieldsAreNamed) {
  EXPECT_EQ(error_of([] { draw(Picture{}); }),
            "picture: sq is 0, but a map needs at least 1 row and 1 column");
  EXPECT_THROW(draw(Picture{}), std::invalid_argument);
  EXPECT_THROW(draw_text(Picture{}, 80, 40, false), std::invalid_argument);
  const auto broken = [](const std::function<void(Picture&)>& change) {
    Picture p = causal(4, 5);
    change(p);
    return error_of([&] { draw(p); });
  };
  EXPECT_EQ(broken([](Picture& p) { p.skv = -3; }),
            "picture: skv is -3, but a map needs at least 1 row and 1 column");
  EXPECT_EQ(broken([](Picture& p) { p.sq = 4097; }),
            "picture: sq is 4097, but at most 4096 can be drawn: sample first");
  EXPECT_EQ(broken([](Picture& p) { p.keep.pop_back(); }),
            "picture: keep.size() is 19, but sq * skv is 20");
  EXPECT_EQ(broken([](Picture& p) { p.score.resize(7); }),
            "picture: score.size() is 7, but sq * skv is 20");
  EXPECT_EQ(broken([](Picture& p) { p.tile_q = p.tile_k = 2; }),
            "picture: tiles.size() is 0, but ceil(q / tile_q) * ceil(k / tile_k) is 6");
  EXPECT_EQ(broken([](Picture& p) { p.tile_q = 2; }),
            "picture: tile_k is 0, but tile_q is not: give both or neither");
  EXPECT_EQ(broken([](Picture& p) { p.tile_k = -1; }),
            "picture: tile_k is -1, but a tile size is positive, or 0 for no tiles");
  EXPECT_EQ(broken([](Picture& p) { p.tiles.resize(2); }),
            "picture: tiles.size() is 2, but its length without tiles is 0");
  EXPECT_EQ(broken([](Picture& p) { p.span_k = 4; }),
            "picture: span_k is 4, but it is 0 or at least skv");
  EXPECT_EQ(error_of([] { draw(causal(2, 2), {.scale = 0}); }),
            "style: scale is 0.000000, but it must lie between 0.5 and 8");
}

TEST(Picture, LongAndOddTitlesAreDrawnWithinTheWidth) {
  Picture p = causal(8, 8);
  const int width = draw(p).width();
  p.title = std::string(5000, 'W') + "\n\x1b[31m\xff é";
  p.subtitle = std::string(3000, 'a');
  EXPECT_EQ(draw(p).width(), width);
}

TEST(Picture, ScaleTwoDoublesTheMap) {
  const Picture p = causal(64, 64);
  EXPECT_EQ(map_size(p, {.scale = 2}).width, 2 * map_size(p).width);
  EXPECT_NEAR(draw(p, {.scale = 2}).width(), 2 * draw(p).width(), 6);
}

}  // namespace
}  // namespace fovea::cli
