// `fovea show`: fills a Picture from a line and draws it into a file or the terminal.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iostream>
#include <memory>
#include <numbers>
#include <random>
#include <stdexcept>

#include "cli/check/array.h"
#include "cli/check/captured.h"
#include "cli/check/workload.h"
#include "cli/draw/figure.h"
#include "cli/draw/terminal.h"
#include "cli/verbs/verbs.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string line, output, tile = "auto", score = "auto";
  int batch = 0, head = 0;
  double scale = 1;
  bool plain = false;
};

[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

int parse_side(const std::string& whole, std::string_view text) {
  int side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  if (end != text.data() + text.size() || error != std::errc{} || side < 1) {
    refuse("--tile " + whole + ": must be a size (64), two (128x64), 'auto' or 'none'");
  }
  return side;
}

// About eight tiles a side unless told otherwise; {0, 0} for none.
std::pair<int, int> tile_size(const Options& options, const fovea_sizes& sizes) {
  if (options.tile == "none") return {0, 0};
  if (options.tile == "auto") {
    const auto longest = static_cast<std::uint64_t>(std::max(sizes.sq, sizes.skv));
    const int side = static_cast<int>(std::bit_ceil(std::max<std::uint64_t>(longest / 8, 1)));
    return {side, side};
  }
  const std::size_t by = options.tile.find('x');
  const std::string_view text = options.tile;
  if (by == std::string::npos) {
    const int side = parse_side(options.tile, text);
    return {side, side};
  }
  return {parse_side(options.tile, text.substr(0, by)),
          parse_side(options.tile, text.substr(by + 1))};
}

// Scores to modify if a score of 0 would show nothing: a few smooth waves.
class Waves {
 public:
  Waves(const fovea_sizes& sizes, double deviation) {
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> phase(0, 2 * std::numbers::pi), cycles(0.5, 4);
    for (Wave& wave : waves_) {
      wave = {2 * std::numbers::pi * cycles(random) / static_cast<double>(sizes.sq),
              2 * std::numbers::pi * cycles(random) / static_cast<double>(sizes.skv),
              phase(random)};
    }
    amplitude_ = deviation * std::sqrt(2.0 / static_cast<double>(waves_.size()));
  }
  float operator()(std::int64_t q, std::int64_t k) const {
    double sum = 0;
    for (const Wave& wave : waves_) {
      sum += std::cos(wave.by_q * static_cast<double>(q) + wave.by_k * static_cast<double>(k) +
                      wave.phase);
    }
    return static_cast<float>(amplitude_ * sum);
  }

 private:
  struct Wave {
    double by_q, by_k, phase;
  };
  std::array<Wave, 5> waves_;
  double amplitude_ = 1;
};

// The scores that the modifier gets: a number, or waves of some deviation.
struct Scores {
  double constant = 0;
  double deviation = 0;  // 0: constant
};
Scores choose_scores(const Options& options, const BoundProgram& program) {
  constexpr double visible = 20;  // reaches the usual soft caps of 20 to 50
  if (options.score == "auto") {
    const bool flat = !program.has_mod() || program.is_additive();
    return flat ? Scores{0, 0} : Scores{0, visible};
  }
  if (options.score == "waves") return {0, visible};
  double value = 0;
  const char* const last = options.score.data() + options.score.size();
  const auto [end, error] = std::from_chars(options.score.data(), last, value);
  if (end != last || error != std::errc{}) {
    refuse("--score " + options.score + ": must be a number, 'waves' or 'auto'");
  }
  return {value, 0};
}

// Which position a row or column of the picture stands for.
std::int32_t position(int i, int shown, std::int64_t all) {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(i) * all / shown);
}

void fill_map(Picture& picture, const BoundProgram& program, const Options& options,
              const fovea_sizes& sizes) {
  const Scores scores = choose_scores(options, program);
  const Waves waves(sizes, scores.deviation);
  const auto cells = static_cast<std::size_t>(picture.sq) * static_cast<std::size_t>(picture.skv);
  if (program.has_mask()) picture.keep.reserve(cells);
  if (program.has_mod()) picture.score.reserve(cells);
  for (int row = 0; row < picture.sq; ++row) {
    for (int column = 0; column < picture.skv; ++column) {
      const BoundProgram::Position at{options.batch, options.head,
                                      position(row, picture.sq, sizes.sq),
                                      position(column, picture.skv, sizes.skv)};
      const bool flat = scores.deviation == 0;
      const float score = flat ? static_cast<float>(scores.constant) : waves(at.q, at.k);
      const BoundProgram::Value value = program.evaluate(at, score);
      if (program.has_mask()) picture.keep.push_back(value.keep ? 1 : 0);
      if (program.has_mod()) picture.score.push_back(value.score);
    }
  }
}

void fill_tiles(Picture& picture, const BoundProgram& program, const Options& options,
                const fovea_sizes& sizes) {
  const auto [tile_q, tile_k] = tile_size(options, sizes);
  if (tile_q == 0 || !program.has_mask()) return;
  constexpr std::int64_t most = 1 << 22;
  const std::int64_t tiles =
      ((sizes.sq + tile_q - 1) / tile_q) * ((sizes.skv + tile_k - 1) / tile_k);
  if (tiles > most)
    refuse("--tile " + options.tile + ": gives " + std::to_string(tiles) + " tiles");
  picture.tile_q = tile_q;
  picture.tile_k = tile_k;
  for (std::int64_t q = 0; q < sizes.sq; q += tile_q) {
    for (std::int64_t k = 0; k < sizes.skv; k += tile_k) {
      picture.tiles.push_back(
          program.classify({options.batch, options.head, q, std::min(q + tile_q, sizes.sq), k,
                            std::min(k + tile_k, sizes.skv)}));
    }
  }
}

std::string subtitle(const Options& options, const fovea_sizes& sizes,
                     const BoundProgram& program) {
  std::string out = std::to_string(sizes.sq) + " \xc3\x97 " + std::to_string(sizes.skv) +
                    "   b=" + std::to_string(options.batch) + " h=" + std::to_string(options.head);
  if (!program.has_mod()) return out;
  const Scores scores = choose_scores(options, program);
  char text[64];
  if (scores.deviation == 0) {
    std::snprintf(text, sizeof text, "   score=%g", scores.constant);
  } else {
    std::snprintf(text, sizeof text, "   score: waves of deviation %g", scores.deviation);
  }
  return out + text;
}

// The line, with h=8 sq=256 if it has none.
std::string with_sizes_to_show(const std::string& line) {
  std::string out = line;
  const bool packed = line_value(line, "layout") == "thd";
  if (line_value(line, "h").empty() && line_value(line, "hkv").empty()) out += " h=8";
  if (!packed && line_value(line, "sq").empty()) out += " sq=256";
  return out;
}

// The program of a line, and data for what it captures.
struct Subject {
  Program program;
  fovea_sizes sizes{};
  CapturedData captured;
};
Subject make_subject(const std::string& text) {
  const std::string line = with_sizes_to_show(line_of(text));
  const Problem problem(line);
  const Program program = problem.program();
  fovea_problem_config config{};
  describe(problem, config);
  const fovea_sizes sizes = seen_sizes(config);
  const std::string seed = line_value(line, "seed");
  return {program, sizes,
          make_captured(program.get(), sizes, seed.empty() ? 1 : std::stoull(seed))};
}

void check_choices(const Options& options, const fovea_sizes& sizes) {
  if (options.batch >= sizes.b) {
    refuse("--batch " + std::to_string(options.batch) + ": b=" + std::to_string(sizes.b));
  }
  if (options.head >= sizes.h) {
    refuse("--head " + std::to_string(options.head) + ": h=" + std::to_string(sizes.h));
  }
  if (sizes.sq < 1 || sizes.skv < 1) {
    refuse("there is nothing to show: sq=" + std::to_string(sizes.sq) +
           " skv=" + std::to_string(sizes.skv));
  }
}

Picture make_picture(const Options& options) {
  const Subject subject = make_subject(options.line);
  const fovea_sizes& sizes = subject.sizes;
  const BoundProgram program(subject.program.get(), subject.captured, sizes);
  if (!program.has_mask() && !program.has_mod()) {
    refuse("there is nothing to show: give mask=\"...\" or mod=\"...\"");
  }
  check_choices(options, sizes);
  Picture picture;
  if (program.has_mod()) picture.title = program.mod_text();
  if (program.has_mask()) {
    picture.title += (picture.title.empty() ? "" : "   where   ") + program.mask_text();
  }
  picture.subtitle = subtitle(options, sizes, program);
  constexpr std::int64_t most = 1024;  // more cannot be seen
  picture.sq = static_cast<int>(std::min(sizes.sq, most));
  picture.skv = static_cast<int>(std::min(sizes.skv, most));
  picture.span_q = static_cast<int>(sizes.sq);
  picture.span_k = static_cast<int>(sizes.skv);
  fill_map(picture, program, options, sizes);
  fill_tiles(picture, program, options, sizes);
  return picture;
}

void print_in_terminal(const Picture& picture, bool plain) {
  winsize window{};
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const bool known = terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;
  const int columns = known && window.ws_col > 0 ? std::clamp<int>(window.ws_col, 24, 160) : 80;
  const int rows = known && window.ws_row > 0 ? std::clamp<int>(window.ws_row - 2, 12, 80) : 40;
  std::cout << draw_text(picture, columns, rows, terminal && !plain);
}

void run(const Options& options) {
  if (options.output.empty()) {
    print_in_terminal(make_picture(options), options.plain);
    return;
  }
  const FileKind kind = file_kind(options.output);  // before the work: it may refuse
  write_file(options.output, draw_figure(make_picture(options), kind, options.scale));
  std::cerr << "wrote " << options.output << "\n";
  if (!has_font()) {
    std::cerr << "its letters are Cairo's own, because no font is installed (on Debian or Ubuntu: "
                 "apt-get install fonts-dejavu-core)\n";
  }
}

}  // namespace

void add_show(CLI::App& program) {
  Verb verb(program, "show", "Draw a mask, or the modified scores as a heat map");
  const auto options = std::make_shared<Options>();
  verb.option("LINE", options->line, "A problem line: mask=\"...\" sq=256 ...; or a formula")
      .required();
  verb.option("-o,--output", options->output, "Write this file: .png, .svg or .pdf");
  verb.option("--tile", options->tile, "Tiles to classify: 64, 128x64, auto or none")
      .tell_default();
  verb.option("--score", options->score, "Scores to modify: a number, waves or auto")
      .tell_default();
  verb.option("--batch", options->batch, "The sequence b to draw").not_negative();
  verb.option("--head", options->head, "The query head h to draw").not_negative();
  verb.option("--scale", options->scale, "Pixels per point of the picture")
      .between(0.5, 4.0)
      .tell_default();
  verb.flag("--plain", options->plain, "No colours in the terminal");
  verb.footer(
      "Examples:\n"
      "  fovea show 'mask=causal sq=64 skv=64'\n"
      "  fovea show 'mask=\"q >= k && q - k < 64\" mod=alibi' -o window.svg\n"
      "  fovea show 'mask=\"doc[b,q] == doc[b,k]\" tensor=\"doc:i32[B,Sq]=docs(5)\"' -o docs.png");
  verb.callback([options] { run(*options); });
}

}  // namespace fovea::cli
