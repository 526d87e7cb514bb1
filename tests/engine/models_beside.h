// Text to train on, and how far two models that came of it are from each other.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/project.h"

namespace dtrain::engine {

// Bytes with some structure to learn: train.txt and test.txt.
inline void write_text(const std::filesystem::path& folder) {
  std::string text;
  for (int i = 0; i < 1200; ++i) text += fmt::format("{} times {} is {}. ", i % 13, i % 7, (i % 13) * (i % 7));
  test::write_file(folder / "train.txt", text);
  test::write_file(folder / "test.txt", text.substr(0, 2000));
}

// The distance of two models, as their files have them, relative to the size of one.
inline double distance(const std::string& one, const std::string& other) {
  REQUIRE(one.size() == other.size());
  uint64_t header = 0;
  std::memcpy(&header, one.data(), sizeof(header));
  const size_t begin = sizeof(header) + header;
  REQUIRE(one.substr(0, begin) == other.substr(0, begin));
  double difference = 0, size = 0;
  for (size_t at = begin; at < one.size(); at += sizeof(float)) {
    float a, b;
    std::memcpy(&a, one.data() + at, sizeof(a));
    std::memcpy(&b, other.data() + at, sizeof(b));
    difference += std::pow(static_cast<double>(a) - b, 2);
    size += std::pow(static_cast<double>(a), 2);
  }
  return std::sqrt(difference / size);
}

}  // namespace dtrain::engine
