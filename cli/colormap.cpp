#include "colormap.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fovea::cli {
namespace {

struct Tint {
  double hue, chroma;  // OKLCh, hue in degrees
};

unsigned char gamma_byte(double linear) {
  const double v = std::clamp(linear, 0.0, 1.0);
  const double s = v <= 0.0031308 ? 12.92 * v : 1.055 * std::pow(v, 1 / 2.4) - 0.055;
  return static_cast<unsigned char>(std::lround(255 * s));
}

// OKLab by Bjorn Ottosson: equal steps in it look equal, which sRGB does not give.
Color from_oklab(double l, double a, double b) {
  const double lr = std::pow(l + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double mr = std::pow(l - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double sr = std::pow(l - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {gamma_byte(4.0767416621 * lr - 3.3077115913 * mr + 0.2309699292 * sr),
          gamma_byte(-1.2684380046 * lr + 2.6097574011 * mr - 0.3413193965 * sr),
          gamma_byte(-0.0041960863 * lr - 0.7034186147 * mr + 1.7076147010 * sr)};
}

Color from_oklch(double lightness, Tint tint) {
  const double angle = tint.hue * 3.14159265358979323846 / 180;
  return from_oklab(lightness, tint.chroma * std::cos(angle), tint.chroma * std::sin(angle));
}

double catmull_rom(double a, double b, double c, double d, double t) {
  return b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

// Smooth, because the eye sees every kink of a linear ramp as a line.
template <std::size_t N>
Tint between(const std::array<Tint, N>& points, double t) {
  const double at = t * static_cast<double>(N - 1);
  const auto i = std::min(static_cast<std::size_t>(at), N - 2);
  const Tint& b = points[i];
  const Tint& c = points[i + 1];
  // Beyond the ends the ramp goes on straight.
  const Tint a = i > 0 ? points[i - 1] : Tint{2 * b.hue - c.hue, 2 * b.chroma - c.chroma};
  const Tint d = i + 2 < N ? points[i + 2] : Tint{2 * c.hue - b.hue, 2 * c.chroma - b.chroma};
  const double f = at - static_cast<double>(i);
  return {catmull_rom(a.hue, b.hue, c.hue, d.hue, f),
          catmull_rom(a.chroma, b.chroma, c.chroma, d.chroma, f)};
}

}  // namespace

Color sequential(double t) {
  static constexpr std::array<Tint, 7> tints{{{302, 0.130},
                                              {277, 0.125},
                                              {246, 0.105},
                                              {208, 0.095},
                                              {168, 0.122},
                                              {136, 0.160},
                                              {106, 0.180}}};
  t = std::clamp(t, 0.0, 1.0);
  return from_oklch(0.28 + 0.64 * t, between(tints, t));
}

Color diverging(double t) {
  static constexpr std::array<Tint, 4> cold{{{245, 0.0}, {246, 0.070}, {250, 0.120}, {258, 0.125}}};
  static constexpr std::array<Tint, 4> warm{{{55, 0.0}, {48, 0.085}, {36, 0.155}, {25, 0.145}}};
  t = std::clamp(t, -1.0, 1.0);
  const double size = std::fabs(t);
  return from_oklch(0.985 - 0.62 * size, between(t < 0 ? cold : warm, size));
}

}  // namespace fovea::cli
