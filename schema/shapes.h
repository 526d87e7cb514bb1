// Short names for the shapes that tables of keys are written with.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "schema/spec_keys.h"

namespace dtrain::shapes {

using Kind = Shape::Kind;

inline Shape make(Kind kind, std::string_view expected) {
  Shape shape;
  shape.kind = kind;
  shape.expected = expected;
  return shape;
}

inline Shape boolean() {
  return make(Kind::Boolean, "true or false");
}
inline Shape only_false() {
  return make(Kind::False, "false");
}
inline Shape nothing() {
  return make(Kind::Nothing, "nothing");
}
inline Shape refused(std::string_view why) {
  return make(Kind::Refused, why);
}
inline Shape any_number() {
  return make(Kind::Number, "");
}

inline Shape bounded(Kind kind, double minimum, double maximum) {
  Shape shape = make(kind, "");
  shape.minimum = minimum;
  shape.maximum = maximum;
  return shape;
}
inline Shape integer(double minimum, double maximum) {
  return bounded(Kind::Integer, minimum, maximum);
}
inline Shape number(double minimum, double maximum) {
  return bounded(Kind::Number, minimum, maximum);
}

inline Shape text(const TextFormat& format) {
  Shape shape = make(Kind::Text, format.expected);
  shape.format = &format;
  return shape;
}
inline Shape word(std::vector<std::string_view> words) {
  Shape shape = make(Kind::Word, "");
  shape.words = std::move(words);
  return shape;
}
inline Shape list(std::string_view expected, Shape item, size_t most = 1000, size_t least = 1) {
  Shape shape = make(Kind::List, expected);
  shape.parts = {std::move(item)};
  shape.least = least;
  shape.most = most;
  return shape;
}
inline Shape map(std::string_view expected, std::vector<Key> keys) {
  Shape shape = make(Kind::Map, expected);
  shape.keys = std::move(keys);
  return shape;
}
inline Shape dict(std::string_view expected, const TextFormat& names, Shape value) {
  Shape shape = make(Kind::Dict, expected);
  shape.format = &names;
  shape.parts = {std::move(value)};
  return shape;
}
inline Shape either(std::string_view expected, std::vector<Shape> parts) {
  Shape shape = make(Kind::Either, expected);
  shape.parts = std::move(parts);
  return shape;
}

}  // namespace dtrain::shapes
