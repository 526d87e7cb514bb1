// "Label:   value" lines with the values in one column, as `status ID` shows an experiment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"

namespace dtrain::cli {

class Fields {
 public:
  // An empty value leaves the line out. Line breaks in a value go on in the value's column, as does what is wider than
  // the screen.
  void add(std::string_view label, std::string value);
  // The same for what is of any length: it takes no more than one line of the screen.
  void add_line(std::string_view label, std::string value);
  std::string text(const Screen& screen = {}) const;

 private:
  struct Line {
    std::string label;
    std::string value;
    bool may_cut = false;
  };
  std::vector<Line> lines_;
};

}  // namespace dtrain::cli
