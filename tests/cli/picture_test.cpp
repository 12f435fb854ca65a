// The pictures of `fovea show`: what is written reads back, colours lie where cells are, text fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>

#include "cli/check/array.h"
#include "cli/draw/canvas.h"
#include "cli/draw/figure.h"
#include "cli/draw/picture.h"
#include "cli/draw/terminal.h"
#include "tests/error_of.h"

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

// A PNG as pixels.
class Pixels {
 public:
  explicit Pixels(std::string_view png) {
    const auto take = [](void* from, unsigned char* to, unsigned size) {
      auto& rest = *static_cast<std::string_view*>(from);
      if (rest.size() < size) return CAIRO_STATUS_READ_ERROR;
      std::memcpy(to, rest.data(), size);
      rest.remove_prefix(size);
      return CAIRO_STATUS_SUCCESS;
    };
    image_.reset(cairo_image_surface_create_from_png_stream(take, &png));
    EXPECT_EQ(cairo_surface_status(image_.get()), CAIRO_STATUS_SUCCESS);
  }
  int width() const { return cairo_image_surface_get_width(image_.get()); }
  int height() const { return cairo_image_surface_get_height(image_.get()); }
  Color at(double x, double y) const {
    std::uint32_t rgb = 0;
    std::memcpy(
        &rgb,
        cairo_image_surface_get_data(image_.get()) +
            std::ptrdiff_t{cairo_image_surface_get_stride(image_.get())} * static_cast<int>(y) +
            4 * static_cast<std::ptrdiff_t>(x),
        sizeof rgb);
    return {static_cast<unsigned char>(rgb >> 16), static_cast<unsigned char>(rgb >> 8),
            static_cast<unsigned char>(rgb)};
  }

 private:
  Handle<cairo_surface_t, cairo_surface_destroy> image_;
};

Pixels draw(const Picture& p, double scale = 1) {
  return Pixels(draw_figure(p, FileKind::Png, scale));
}

// The pixel in the middle of a cell.
Color cell_color(const Picture& p, const Pixels& pixels, int row, int column) {
  const Point origin = map_origin(p);
  const MapSize size = map_size(p);
  return pixels.at(origin.x + (column + 0.5) * size.width / p.skv,
                   origin.y + (row + 0.5) * size.height / p.sq);
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

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Picture, ColoursLieWhereCellsAre) {
  const Picture p = causal(64, 64);
  const Pixels pixels = draw(p);
  for (const auto& [q, k] : {std::pair{0, 0}, {63, 0}, {63, 63}, {31, 30}}) {
    EXPECT_EQ(cell_color(p, pixels, q, k), palette::kept) << q << "," << k;
    if (q == k) continue;
    EXPECT_EQ(cell_color(p, pixels, k, q), palette::masked) << k << "," << q;
  }
  EXPECT_EQ(pixels.at(0, 0), palette::paper);
}

TEST(Picture, TheEndingSaysWhichKindOfFile) {
  EXPECT_EQ(file_kind("a.png"), FileKind::Png);
  EXPECT_EQ(file_kind("b.png/a.svg"), FileKind::Svg);
  EXPECT_EQ(file_kind("a.b.pdf"), FileKind::Pdf);
  for (const std::string path : {"a.jpg", "png", ".png", "a.png.gz", ""}) {
    EXPECT_EQ(test::error_of<std::exception>([&] { file_kind(path); }),
              "cannot write " + path + ": its name must end in .png, .svg or .pdf");
  }
}

TEST(Picture, SvgAndPdfAreWholeAndHaveTheSizeOfThePng) {
  const Picture p = causal(64, 64);
  const Pixels png = draw(p);
  const std::string svg = draw_figure(p, FileKind::Svg), pdf = draw_figure(p, FileKind::Pdf);
  const std::string w = std::to_string(png.width()), h = std::to_string(png.height());
  EXPECT_NE(svg.find("viewBox=\"0 0 " + w + " " + h + "\""), std::string::npos);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  EXPECT_NE(pdf.find("/MediaBox [ 0 0 " + w + " " + h + " ]"), std::string::npos);
  EXPECT_TRUE(pdf.ends_with("%%EOF\n"));
}

TEST_F(PictureFile, OverwritesAndKeepsLinks) {
  write_file(folder_ / "a.png", draw_figure(causal(4, 4), FileKind::Png));
  fs::create_symlink("a.png", folder_ / "link.png");
  const std::string wide = draw_figure(causal(4, 4), FileKind::Png, 2);
  write_file(folder_ / "link.png", wide);
  EXPECT_TRUE(fs::is_symlink(folder_ / "link.png"));
  EXPECT_EQ(read_file(folder_ / "a.png"), wide);
  EXPECT_EQ(files(), 2u);
}

TEST_F(PictureFile, ErrorsNamePathAndReasonAndLeaveNothing) {
  const std::string missing = folder_ / "missing" / "mask.png";
  EXPECT_EQ(test::error_of<std::exception>([&] { write_file(missing, "bytes"); }),
            "cannot write " + missing + ": No such file or directory");
  EXPECT_EQ(test::error_of<std::exception>([&] { write_file(folder_, "bytes"); }),
            "cannot write " + folder_.string() + ": Is a directory");
  EXPECT_NE(test::error_of<std::exception>([&] { write_file("", "bytes"); }).find("path is empty"),
            std::string::npos);
  EXPECT_EQ(files(), 0u);
}

TEST_F(PictureFile, FullDiskIsAnErrorAndDevicesAreNotReplaced) {
  if (!fs::is_character_file("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(test::error_of<std::exception>([] { write_file("/dev/full", "bytes"); }),
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
    const Pixels canvas = draw(p);
    EXPECT_GT(canvas.width(), size.width);
    // The two corners that no averaging can touch if cells are at least a pixel.
    if (std::max(sq, skv) > 800) continue;
    EXPECT_EQ(cell_color(p, canvas, 0, 0), palette::kept);
    EXPECT_EQ(cell_color(p, canvas, 0, skv - 1), skv > 1 ? palette::masked : palette::kept);
  }
}

TEST(Picture, LargeMapsAreAveraged) {
  Picture p;
  p.sq = p.skv = 2048;
  for (int i = 0; i < 2048 * 2048; ++i) p.keep.push_back((i / 2048 + i) % 2);
  const Pixels canvas = draw(p);
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
  const Pixels canvas = draw(p);
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
  const Pixels canvas = draw(p);
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

TEST(Picture, LongAndOddTitlesAreDrawnWithinTheWidth) {
  Picture p = causal(8, 8);
  const int width = draw(p).width();
  p.title = std::string(5000, 'W') + "\n\x1b[31m\xff é\xed\xa0\x80\xf4\x90\x80\x80\xe0\x80\x80";
  EXPECT_EQ(draw(p).width(), width);
  std::rotate(p.title.begin(), p.title.begin() + 5000, p.title.end());  // not cut off
  p.subtitle = std::string(3000, 'a');
  EXPECT_EQ(draw(p).width(), width);
}

TEST(Picture, ScaleTwoDoublesTheMap) {
  const Picture p = causal(64, 64);
  EXPECT_EQ(map_size(p, 2).width, 2 * map_size(p).width);
  EXPECT_NEAR(draw(p, 2).width(), 2 * draw(p).width(), 6);
}

}  // namespace
}  // namespace fovea::cli
