// Members of a set that are drawn at random, where all combinations would be too many.
//
// A Latin hypercube (McKay, Beckman and Conover 1979): each distribution is cut into as many equal parts as there are
// members, and each part has one of them, so that few members tell of all of it; a list beside one has each of its
// values as often as any other, but for one. Where there are only lists, no combination is drawn twice, and each set of
// them is as likely as any other.
// Pure: the same seed draws the same, and what a distribution gives is the same whatever others there are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schema/decimal.h"

namespace dtrain {

// Numbers of which any may be drawn.
struct Distribution {
  double min = 0;
  double max = 0;            // >= min
  bool logarithmic = false;  // as much between 0.001 and 0.01 as between 0.01 and 0.1; then min > 0
  std::optional<DecimalRange> steps = {};   // only these: from min on, with `step` between them
  double step = 0;
};

// One parameter: a distribution, or a list that one value each is taken of.
struct Drawable {
  std::string name;
  std::vector<std::string> values;
  std::optional<Distribution> distribution = {};
};

// For each of them a list, all of one length: how many there are of lists alone where that is less than `members`.
std::vector<std::vector<std::string>> draw(const std::vector<Drawable>& from, size_t members, uint64_t seed);

}  // namespace dtrain
