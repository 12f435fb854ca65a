// The colours of pictures: those with a meaning, and the two colour maps of scores.
// bindings/python/fovea/picture.py has the same ones; a test compares them.
#pragma once

namespace fovea::cli {

struct Color {
  unsigned char r = 0, g = 0, b = 0;
  bool operator==(const Color&) const = default;
};

// a at t = 0, b at t = 1.
Color mix(Color a, Color b, double t);

namespace palette {
constexpr Color paper{255, 255, 255};
constexpr Color ink{31, 41, 51};
constexpr Color muted{97, 110, 124};
constexpr Color kept{42, 105, 172};
constexpr Color kept_in_mixed{82, 140, 201};  // lighter, so that full tiles stand out
constexpr Color masked{232, 235, 240};
constexpr Color masked_in_mixed{253, 230, 203};
constexpr Color mixed_line{224, 123, 0};
constexpr Color masked_score{218, 221, 226};  // darker: white is a value of the diverging map
constexpr Color not_finite{214, 51, 143};
}  // namespace palette

// t in [0, 1]: dark indigo over teal to yellow.
Color sequential(double t);
// t in [-1, 1]: blue over white to red.
Color diverging(double t);

}  // namespace fovea::cli
