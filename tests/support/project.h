// A project directory for one test: files by name, gone with the test.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "schema/materialise.h"

namespace dtrain::test {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(
      const std::filesystem::path& below = std::filesystem::temp_directory_path());
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline TemporaryFolder::TemporaryFolder(const std::filesystem::path& below) {
  std::string name = (below / "dtrain-test-XXXXXX").native();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

inline TemporaryFolder::~TemporaryFolder() {
  CHECK(remove_tree(path_).ok());
}

// With the directories it needs; replaces what is there.
inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  REQUIRE(file.good());
}

// All that there is to read; "" where nothing is. Asserts nothing: an assertion that failed may be what asks. In blocks:
// a byte at a time is slow where a sanitizer looks at each.
inline std::string content_of(const std::filesystem::path& path) {
  std::ostringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  return all.str();
}

inline std::string read_file(const std::filesystem::path& path) {
  REQUIRE_MESSAGE(std::ifstream(path).good(), "can't read " << path.string());
  return content_of(path);
}

// Gives the file times of an hour ago, so that only its change time is young.
inline void make_old(const std::filesystem::path& path) {
  const timespec then{std::time(nullptr) - 3600, 123'456'789};
  const timespec times[2] = {then, then};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

// Everything below: kind, mode, path and content or target, a line each, sorted. Two trees are the
// same when these are.
inline std::string describe_tree(const std::filesystem::path& root) {
  std::vector<std::string> lines;
  for (const auto& item : std::filesystem::recursive_directory_iterator(root)) {
    struct stat st {};
    REQUIRE(::lstat(item.path().c_str(), &st) == 0);
    const std::string path = item.path().lexically_relative(root);
    const unsigned mode = st.st_mode & 0777;
    if (S_ISLNK(st.st_mode)) {
      lines.push_back(
          fmt::format("{} -> {}", path, std::filesystem::read_symlink(item.path()).native()));
    } else if (S_ISDIR(st.st_mode)) {
      lines.push_back(fmt::format("{}/ {:o}", path, mode));
    } else {
      lines.push_back(fmt::format("{} {:o} {}", path, mode, read_file(item.path())));
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace dtrain::test
