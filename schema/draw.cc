#include "schema/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace dtrain {

namespace {

using Random = std::mt19937_64;   // whose numbers the standard fixes; those of its distributions it does not

// From 0 to 1, without 1.
double fraction(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

uint64_t below(Random& random, uint64_t bound) {
  return std::min(bound - 1, static_cast<uint64_t>(fraction(random) * static_cast<double>(bound)));
}

// In each of `count` equal parts of 0 to 1 one place, in random order.
std::vector<double> one_in_each_part(size_t count, Random& random) {
  std::vector<double> places(count);
  for (size_t i = 0; i < count; ++i) places[i] = (static_cast<double>(i) + fraction(random)) / static_cast<double>(count);
  for (size_t i = count; i > 1; --i) std::swap(places[i - 1], places[below(random, i)]);
  return places;
}

// Digits enough to tell a thousand places of the range apart.
int digits_of(const Distribution& distribution) {
  constexpr int kUsual = 4, kMost = 17;
  const double width = distribution.max - distribution.min;
  const double largest = std::max(std::abs(distribution.min), std::abs(distribution.max));
  if (width <= 0) return kMost;
  return std::clamp(kUsual + static_cast<int>(std::lround(std::log10(largest / width))), kUsual, kMost);
}

std::string value_at(const Distribution& distribution, double place) {
  const auto [min, max, logarithmic, steps, step] = distribution;
  if (steps && !logarithmic) {
    return steps->at(std::min(steps->count() - 1, static_cast<uint64_t>(place * static_cast<double>(steps->count()))));
  }
  const double value = logarithmic ? min * std::pow(max / min, place) : min + (max - min) * place;
  if (steps) {
    return steps->at(std::min(steps->count() - 1, static_cast<uint64_t>(std::llround((value - min) / step))));
  }
  const int digits = digits_of(distribution);
  const std::string text = fmt::format("{:.{}g}", value, digits);
  const double rounded = std::strtod(text.c_str(), nullptr);
  if (rounded >= min && rounded <= max) return text;
  return fmt::format("{}", rounded < min ? min : max);
}

// Of `total` combinations of lists some, in their order: each set of as many is as likely as any other (Knuth's
// algorithm S).
std::vector<uint64_t> some_of(uint64_t total, size_t wanted, Random& random) {
  std::vector<uint64_t> chosen;
  for (uint64_t at = 0; chosen.size() < wanted; ++at) {
    if (below(random, total - at) < wanted - chosen.size()) chosen.push_back(at);
  }
  return chosen;
}

// How many combinations there are, where that is few enough to go through; else 0.
uint64_t countable(const std::vector<Drawable>& from) {
  constexpr uint64_t kMost = 1'000'000;
  uint64_t count = 1;
  for (const Drawable& each : from) {
    if (each.distribution || __builtin_mul_overflow(count, each.values.size(), &count) || count > kMost) return 0;
  }
  return count;
}

}  // namespace

std::vector<std::vector<std::string>> draw(const std::vector<Drawable>& from, size_t members, uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<std::string>> drawn(from.size());
  if (const uint64_t total = countable(from); total > 0) {
    for (uint64_t kind : some_of(total, std::min<uint64_t>(members, total), random)) {
      for (size_t i = from.size(); i-- > 0;) {
        drawn[i].push_back(from[i].values[kind % from[i].values.size()]);
        kind /= from[i].values.size();
      }
    }
    return drawn;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const Drawable& each = from[i];
    for (const double place : one_in_each_part(members, random)) {
      const size_t count = each.values.size();
      drawn[i].push_back(each.distribution ? value_at(*each.distribution, place)
                                           : each.values[std::min(count - 1, static_cast<size_t>(place * static_cast<double>(count)))]);
    }
  }
  return drawn;
}

}  // namespace dtrain
