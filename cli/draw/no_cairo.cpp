// Replaces figure.cpp and canvas.cpp in a program without Cairo.
#include <stdexcept>

#include "cli/draw/figure.h"

namespace fovea::cli {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error(
      "this program was built without Cairo, which draws files: install it (on Debian or Ubuntu: "
      "apt-get install libcairo2-dev pkg-config) and build again; without -o the picture is drawn "
      "in the terminal");
}

}  // namespace

FileKind file_kind(const std::string&) { refuse(); }
std::string draw_figure(const Picture&, FileKind, double) { refuse(); }
bool has_font() { return true; }

}  // namespace fovea::cli
