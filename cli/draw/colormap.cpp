#include "cli/draw/colormap.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fovea::cli {
namespace {

// Equal steps of lightness in OKLab, as 0xRRGGBB: equal steps in it look equal, which sRGB does not
// give.
using Ramp = std::array<unsigned, 17>;
constexpr Ramp sequential_ramp{0x360c5c, 0x381e6d, 0x382e7c, 0x343f89, 0x2e5091, 0x276097,
                               0x1f719b, 0x1e809d, 0x22909e, 0x249f9d, 0x2faf98, 0x48bd8f,
                               0x64ca82, 0x85d672, 0xaadf60, 0xd0e64e, 0xf5eb3d};
constexpr Ramp diverging_ramp{0x083b7e, 0x185396, 0x296bae, 0x4384c1, 0x639cd1, 0x86b4dd,
                              0xabcce9, 0xd2e3f2, 0xfafafa, 0xf3dbcd, 0xebbca2, 0xe19c7b,
                              0xd77b55, 0xc85937, 0xb13b24, 0x95221a, 0x790410};

Color color_of(unsigned rgb) {
  return {static_cast<unsigned char>(rgb >> 16), static_cast<unsigned char>(rgb >> 8 & 255),
          static_cast<unsigned char>(rgb & 255)};
}

Color along(const Ramp& ramp, double t) {
  const double at = std::clamp(t, 0.0, 1.0) * (ramp.size() - 1);
  const auto i = std::min(static_cast<std::size_t>(at), ramp.size() - 2);
  return mix(color_of(ramp[i]), color_of(ramp[i + 1]), at - static_cast<double>(i));
}

unsigned char mix_byte(unsigned char a, unsigned char b, double t) {
  return static_cast<unsigned char>(std::lround(a + (b - a) * t));
}

}  // namespace

Color mix(Color a, Color b, double t) {
  t = std::clamp(t, 0.0, 1.0);
  return {mix_byte(a.r, b.r, t), mix_byte(a.g, b.g, t), mix_byte(a.b, b.b, t)};
}

Color sequential(double t) { return along(sequential_ramp, t); }
Color diverging(double t) { return along(diverging_ramp, (t + 1) / 2); }

}  // namespace fovea::cli
