// How digits are written by hand: strokes through a few points, several styles a digit. x goes from
// left to right and y from top to bottom, both in hundredths of half a digit's height.
#pragma once

#include <vector>

namespace dtrain::engine {

struct Point {
  float x = 0, y = 0;
};

struct Stroke {
  bool smooth = true;  // a curve through the points, or straight lines
  std::vector<Point> points;
};

using Glyph = std::vector<Stroke>;

// [digit][style]
std::vector<std::vector<Glyph>> digit_glyphs();

}  // namespace dtrain::engine
