// "Label:   value" lines with the values in one column, as `status ID` shows an experiment.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain::cli {

class Fields {
 public:
  // An empty value leaves the line out. Line breaks in a value go on in the value's column.
  void add(std::string_view label, std::string value);
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace dtrain::cli
