// Files of testdata with what must come of each beside it.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace dtrain::tests {

inline std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Those of a folder below testdata, by name.
inline std::vector<std::filesystem::path> golden_files(const std::string& folder, const std::string& extension) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TESTDATA) / folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  REQUIRE(!files.empty());
  std::sort(files.begin(), files.end());
  return files;
}

// Compares with the file's .expected; with DTRAIN_REWRITE_GOLDEN set, writes it instead.
inline void check_expected(const std::filesystem::path& file, const std::string& got) {
  const std::filesystem::path expected = std::filesystem::path(file).replace_extension(".expected");
  if (std::getenv("DTRAIN_REWRITE_GOLDEN") != nullptr) std::ofstream(expected, std::ios::binary) << got;
  CHECK(got == text_of(expected));
}

}  // namespace dtrain::tests
