#include "schema/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "schema/combinations.h"

namespace dtrain {

namespace {

using Random = std::mt19937_64;   // whose numbers the standard fixes; those of its distributions it does not

// From 0 to 1, without 1.
double fraction(Random& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

uint64_t below(Random& random, uint64_t bound) { return random() % bound; }

// Of a seed and a name: so that one parameter more changes nothing for the others.
Random random_of(uint64_t seed, const std::string& name) {
  uint64_t mixed = 0xcbf29ce484222325 ^ seed;   // FNV-1a
  for (const char c : name) mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return Random(mixed);
}

template <typename T>
void shuffle(std::vector<T>& all, Random& random) {
  for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[below(random, i)]);
}

// In each of `count` equal parts of 0 to 1 one place, in random order.
std::vector<double> one_in_each_part(size_t count, Random& random) {
  std::vector<double> places(count);
  for (size_t i = 0; i < count; ++i) places[i] = (static_cast<double>(i) + fraction(random)) / static_cast<double>(count);
  shuffle(places, random);
  return places;
}

// With digits enough to tell ten times as many places of the range apart as there are members, and no exponent where
// people write none.
std::string text_of(const Distribution& distribution, size_t members, double value) {
  constexpr int kUsual = 4, kMost = 17;
  const double width = distribution.max - distribution.min;
  const double largest = std::max(std::abs(distribution.min), std::abs(distribution.max));
  const double places = 10 * static_cast<double>(members) * (largest / width);
  // The widest ranges have no finite width, which no integer could hold the logarithm of.
  const int digits = width <= 0 ? kMost : static_cast<int>(std::clamp<double>(1 + std::ceil(std::log10(places)), kUsual, kMost));
  const double size = std::abs(value);
  if (size < 1e-4 || size >= 1e15) return fmt::format("{:.{}g}", value, digits);
  const int decimals = std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(size))));
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string value_at(const Distribution& distribution, size_t members, double place) {
  const auto [min, max, logarithmic, steps, step] = distribution;
  if (steps && !logarithmic) {
    return steps->at(std::min(steps->count() - 1, static_cast<uint64_t>(place * static_cast<double>(steps->count()))));
  }
  const double value = logarithmic ? std::exp(std::lerp(std::log(min), std::log(max), place)) : min * (1 - place) + max * place;
  if (steps) {
    return steps->at(std::min(steps->count() - 1, static_cast<uint64_t>(std::llround((value - min) / step))));
  }
  const std::string text = text_of(distribution, members, value);
  const double rounded = std::strtod(text.c_str(), nullptr);
  if (rounded >= min && rounded <= max) return text;
  return fmt::format("{}", rounded < min ? min : max);
}

// Of `total` combinations of lists some, in random order: each set of as many is as likely as any other (Floyd's algorithm).
std::vector<uint64_t> some_of(uint64_t total, uint64_t wanted, Random& random) {
  std::set<uint64_t> chosen;
  for (uint64_t last = total - wanted; last < total; ++last) {
    if (!chosen.insert(below(random, last + 1)).second) chosen.insert(last);
  }
  std::vector<uint64_t> all(chosen.begin(), chosen.end());
  shuffle(all, random);
  return all;
}

}  // namespace

std::vector<std::vector<std::string>> draw(const std::vector<Drawable>& from, size_t members, uint64_t seed) {
  std::vector<std::vector<std::string>> drawn(from.size());
  std::vector<Parameter> lists;
  for (const Drawable& each : from) {
    if (!each.distribution) lists.push_back({each.name, each.values});
  }
  // Of more than can be counted two that are alike will not be drawn.
  const uint64_t total = combination_count(lists, Combine::Product);
  if (lists.size() == from.size() && total != UINT64_MAX) {
    Random random(seed);
    for (const uint64_t kind : some_of(total, std::min<uint64_t>(members, total), random)) {
      const std::vector<size_t> places = combination(lists, Combine::Product, kind);
      for (size_t i = 0; i < places.size(); ++i) drawn[i].push_back(lists[i].values[places[i]]);
    }
    return drawn;
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const Drawable& each = from[i];
    Random random = random_of(seed, each.name);
    for (const double place : one_in_each_part(members, random)) {
      const size_t count = each.values.size();
      drawn[i].push_back(each.distribution ? value_at(*each.distribution, members, place)
                                           : each.values[std::min(count - 1, static_cast<size_t>(place * static_cast<double>(count)))]);
    }
  }
  return drawn;
}

}  // namespace dtrain
