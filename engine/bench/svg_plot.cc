#include "engine/bench/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace dtrain::engine {

namespace {

constexpr double kWidth = 420, kHeight = 320;                       // of a panel
constexpr double kLeft = 64, kRight = 16, kTop = 36, kBottom = 84;  // around its axes
// Told apart by who sees no red or green, too.
constexpr std::array<const char*, 5> kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#000000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char each : text) {
    if (each == '&')
      out += "&amp;";
    else if (each == '<')
      out += "&lt;";
    else if (each == '>')
      out += "&gt;";
    else
      out += each;
  }
  return out;
}

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

std::string number_text(double value) {
  if (value >= 1'000'000) return fmt::format("{:g}M", value / 1'000'000);
  if (value >= 10'000) return fmt::format("{:g}k", value / 1000);
  return fmt::format("{:g}", value);
}

// A round number that 4 to 8 steps of reach `most`.
double step_for(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (most / (power * factor) <= 8) return power * factor;
  }
  return power * 10;
}

class PanelDrawing {
 public:
  PanelDrawing(const PlotPanel& panel, double left) : panel_(panel), left_(left + kLeft) {
    double most = 0;
    for (const PlotSeries& series : panel.series) {
      xs_.insert(series.x.begin(), series.x.end());
      for (const double y : series.y) most = std::max(most, y);
      for (const double y : series.high) most = std::max(most, y);
    }
    step_ = step_for(most > 0 ? most : 1);
    top_ = std::max(step_, std::ceil(most / step_ - 1e-9) * step_);
  }

  std::string draw() const {
    return axes() + lines() +
           text_at(left_ + width() / 2, 20, "middle", panel_.title, " font-weight=\"bold\"");
  }

 private:
  static double width() { return kWidth - kLeft - kRight; }
  static double height() { return kHeight - kTop - kBottom; }
  double x_of(double x) const {
    if (xs_.size() < 2) return left_ + width() / 2;
    const double low = std::log(*xs_.begin()), high = std::log(*xs_.rbegin());
    return left_ + 8 + (width() - 16) * (std::log(x) - low) / (high - low);
  }
  double y_of(double y) const { return kTop + height() * (1 - y / top_); }

  std::string axes() const {
    std::string out = fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
        "stroke=\"#888\"/>\n",
        left_, kTop, width(), height());
    for (double y = 0; y <= top_ * (1 + 1e-9); y += step_) {
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/>\n",
          left_, left_ + width(), y_of(y));
      out += text_at(left_ - 5, y_of(y) + 4, "end", number_text(y));
    }
    // Labels that would lie on each other are left out.
    double last = -1e9;
    for (const double x : xs_) {
      if (x_of(x) - last < 30) continue;
      last = x_of(x);
      out += text_at(last, kTop + height() + 15, "middle", number_text(x));
    }
    out += text_at(left_ + width() / 2, kTop + height() + 32, "middle", panel_.x_label);
    const double middle = kTop + height() / 2, beside = left_ - 50;
    return out +
           text_at(beside, middle, "middle", panel_.y_label,
                   fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", beside, middle).c_str());
  }

  std::string lines() const {
    std::string out;
    for (size_t i = 0; i < panel_.series.size(); ++i) {
      const PlotSeries& series = panel_.series[i];
      const char* colour = kColours[i % kColours.size()];
      std::string points;
      for (size_t at = 0; at < series.x.size(); ++at) {
        points += fmt::format("{:.1f},{:.1f} ", x_of(series.x[at]), y_of(series.y[at]));
        out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                           x_of(series.x[at]), y_of(series.y[at]), colour);
        if (at >= series.low.size() || series.high[at] <= series.low[at]) continue;
        out += fmt::format(
            "<line class=\"whisker\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" "
            "stroke=\"{3}\"/>\n",
            x_of(series.x[at]), y_of(series.low[at]), y_of(series.high[at]), colour);
      }
      out += fmt::format(
          "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n", points,
          colour);
      const double key =
          left_ + width() / static_cast<double>(panel_.series.size()) * static_cast<double>(i);
      out += fmt::format(
          "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
          "stroke-width=\"3\"/>\n",
          key, key + 14, kHeight - 20, colour);
      out += text_at(key + 18, kHeight - 16, "start", series.name);
    }
    return out;
  }

  const PlotPanel& panel_;
  const double left_;
  std::set<double> xs_;
  double step_ = 1, top_ = 1;
};

}  // namespace

std::string svg_plot(const std::vector<PlotPanel>& panels) {
  const double width = kWidth * static_cast<double>(panels.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      width, kHeight);
  for (size_t i = 0; i < panels.size(); ++i)
    out += PanelDrawing(panels[i], kWidth * static_cast<double>(i)).draw();
  return out + "</svg>\n";
}

}  // namespace dtrain::engine
