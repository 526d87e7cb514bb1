#include "engine/bench/svg_plot.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::engine {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST_CASE("each series is a line, and text is text") {
  const std::string svg = svg_plot(
      {{"a < b & c", "x", "y", {{"one", {1, 2, 4}, {10, 20, 40}}, {"two", {1, 4}, {0, 5}}}},
       {"right", "x", "y", {}}});
  CHECK(svg.starts_with("<svg xmlns="));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(count(svg, "<polyline ") == 2);
  CHECK(count(svg, "<circle ") == 5);
  CHECK(svg.find("a &lt; b &amp; c") != std::string::npos);
  CHECK(count(svg, "<text ") == count(svg, "</text>"));
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
}

TEST_CASE("a whisker reaches from the lowest to the highest, within the axes, where these differ") {
  const std::string svg = svg_plot({{"t", "x", "y", {{"s", {1, 2}, {1, 2}, {1, 1}, {1, 8}}}}});
  CHECK(count(svg, "class=\"whisker\"") == 1);
  double low = 0, high = 0, x = 0;
  REQUIRE(std::sscanf(svg.c_str() + svg.find("class=\"whisker\""), "class=\"whisker\" x1=\"%lf\" x2=\"%*f\" y1=\"%lf\" y2=\"%lf\"",
                      &x, &low, &high) == 3);
  CHECK(high < low);
  CHECK(high >= 36);  // where the axes begin
}

TEST_CASE("the x axis is logarithmic, and more is higher") {
  const std::string svg = svg_plot({{"t", "x", "y", {{"s", {1, 2, 4}, {0, 1, 2}}}}});
  const size_t at = svg.find("points=\"") + 8;
  double x[3], y[3];
  REQUIRE(std::sscanf(svg.c_str() + at, "%lf,%lf %lf,%lf %lf,%lf", &x[0], &y[0], &x[1], &y[1],
                      &x[2], &y[2]) == 6);
  CHECK(x[1] - x[0] == doctest::Approx(x[2] - x[1]).epsilon(0.01));
  CHECK(y[0] > y[1]);
  CHECK(y[0] - y[1] == doctest::Approx(y[1] - y[2]).epsilon(0.01));
}

}  // namespace
}  // namespace dtrain::engine
