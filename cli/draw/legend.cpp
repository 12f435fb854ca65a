#include "cli/draw/legend.h"

namespace fovea::cli {
namespace {

std::string count_text(std::size_t part, std::size_t whole) {
  return std::to_string(part) + " (" + percent(part, whole) + ")";
}

}  // namespace

std::vector<LegendRow> legend_rows(const Picture& picture, const Summary& s) {
  std::vector<LegendRow> rows;
  const bool scored = !picture.score.empty();
  const std::size_t masked = s.cells - s.kept;
  if (!scored) rows.push_back({Swatch::Plain, palette::kept, "kept", percent(s.kept, s.cells)});
  if (!scored || masked > 0) {
    const Color color = scored ? palette::masked_score : palette::masked;
    rows.push_back({Swatch::Plain, color, "masked", percent(masked, s.cells)});
  }
  const std::size_t not_finite = s.nan + s.minus_inf + s.plus_inf;
  if (not_finite > 0) {
    rows.push_back(
        {Swatch::Plain, palette::not_finite, not_finite_kinds(s), percent(not_finite, s.cells)});
  }
  if (s.tile_count == 0) return rows;
  rows.push_back(
      {Swatch::Heading, palette::ink,
       "tiles " + std::to_string(picture.tile_q) + " \u00d7 " + std::to_string(picture.tile_k),
       ""});
  rows.push_back(
      {Swatch::TileEmpty, palette::masked, "empty", count_text(s.tiles[0], s.tile_count)});
  rows.push_back({Swatch::TileFull, palette::kept, "full", count_text(s.tiles[1], s.tile_count)});
  rows.push_back(
      {Swatch::TileMixed, palette::mixed_line, "mixed", count_text(s.tiles[2], s.tile_count)});
  return rows;
}

}  // namespace fovea::cli
