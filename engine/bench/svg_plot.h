// Line plots as one SVG file: panels side by side, each with a logarithmic x axis of its own.
#pragma once

#include <string>
#include <vector>

namespace dtrain::engine {

struct PlotSeries {
  std::string name;
  std::vector<double> x, y;             // x > 0, ascending; y >= 0
  std::vector<double> low = {}, high = {};  // of each y, drawn as a whisker; empty: none
};
struct PlotPanel {
  std::string title, x_label, y_label;
  std::vector<PlotSeries> series;
};

std::string svg_plot(const std::vector<PlotPanel>& panels);

}  // namespace dtrain::engine
