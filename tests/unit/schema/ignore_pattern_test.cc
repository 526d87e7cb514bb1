#include "schema/ignore_pattern.h"

#include <doctest/doctest.h>

#include <chrono>

namespace dtrain {
namespace {

bool matches(std::string_view line, std::string_view path) {
  const auto pattern = parse_ignore_line(line, 1);
  if (!pattern) return false;
  const bool is_directory = path.ends_with('/');
  if (is_directory) path.remove_suffix(1);
  return pattern->matches(path, path.substr(path.rfind('/') + 1), is_directory);
}

TEST_CASE("what a line matches; a path that ends in / is a directory") {
  struct Row {
    const char* line;
    const char* path;
    bool match;
  };
  const Row rows[] = {
      // A pattern without a slash is for names at any depth.
      {"*.o", "a.o", true},
      {"*.o", "sub/deep/a.o", true},
      {"*.o", "a.o.txt", false},
      {"*.o", ".o", true},
      {"name", "name", true},
      {"name", "sub/name/", true},
      {"name", "names", false},
      {"a?c", "abc", true},
      {"a?c", "a/c", false},
      // A slash anywhere but at the end anchors it.
      {"/name", "name", true},
      {"/name", "sub/name", false},
      {"sub/name", "sub/name", true},
      {"sub/name", "x/sub/name", false},
      {"sub/*", "sub/a", true},
      {"sub/*", "sub/a/b", false},
      {"sub*/a", "sub1/a", true},
      {"sub*/a", "sub/x/a", false},
      // A slash at the end is for directories only.
      {"build/", "build/", true},
      {"build/", "build", false},
      {"build/", "sub/build/", true},
      {"/build/", "sub/build/", false},
      // ** as a whole part is any number of directories.
      {"**/foo", "foo", true},
      {"**/foo", "a/b/foo", true},
      {"**/foo", "a/bfoo", false},
      {"**/a/b", "x/a/b", true},
      {"a/**", "a/x", true},
      {"a/**", "a/x/y", true},
      {"a/**", "a/", false},
      {"a/**/b", "a/b", true},
      {"a/**/b", "a/x/b", true},
      {"a/**/b", "a/x/y/b", true},
      {"a/**/b", "a/xb", false},
      {"a/**/b/*.c", "a/x/b/y/b/z.c", true},
      {"a**/b", "axx/b", true},
      {"a**/b", "a/x/b", false},
      {"/**/x/**/y", "q/x/y", true},
      // Brackets.
      {"[abc].py", "b.py", true},
      {"[!abc].py", "b.py", false},
      {"[^abc].py", "d.py", true},
      {"[a-c]x", "bx", true},
      {"[a-c]x", "dx", false},
      {"[]a]x", "]x", true},
      {"[a-]x", "-x", true},
      {"[[:digit:]]x", "7x", true},
      {"[[:digit:]]x", "ax", false},
      {"[a", "[a", false},
      {"a[/]b", "a/b", false},
      {"*.py[cod]", "a.pyc", true},
      {"[\\]]x", "]x", true},
      // Escapes and spaces.
      {"\\#file", "#file", true},
      {"\\!file", "!file", true},
      {"a\\*b", "a*b", true},
      {"a\\*b", "axb", false},
      {"name  ", "name", true},
      {"name\\ ", "name ", true},
      {"name\\  ", "name ", true},
      {" name", " name", true},
      {"name\r", "name", true},
      {"a\\", "a\\", false},
      // No patterns at all.
      {"# comment", "# comment", false},
      {"", "", false},
      {"   ", "   ", false},
      {"/", "a", false},
      // Bytes that are not UTF-8 are bytes.
      {"\xff*", "\xff\xfe", true},
      {"?", "\xff", true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.line);
    CAPTURE(row.path);
    CHECK(matches(row.line, row.path) == row.match);
  }
}

TEST_CASE("a pattern keeps what an explanation needs") {
  const auto pattern = parse_ignore_line("!/data/*.bin ", 12);
  REQUIRE(pattern);
  CHECK(pattern->text == "!/data/*.bin");
  CHECK(pattern->line == 12);
  CHECK(pattern->negated);
  CHECK(pattern->whole_path);
  CHECK(!pattern->directory_only);
  CHECK(pattern->glob == "data/*.bin");
}

TEST_CASE("many stars take no exponential time") {
  std::string stars, deep;
  for (int i = 0; i < 60; ++i) stars += "*a";
  for (int i = 0; i < 60; ++i) deep += "**/a/";
  const std::string text(4000, 'a');
  std::string path;
  for (int i = 0; i < 1000; ++i) path += "a/";
  const auto start = std::chrono::steady_clock::now();
  CHECK(!glob_matches(stars + "b", text));
  CHECK(!glob_matches(deep + "b", path + "a"));
  CHECK(!glob_matches(deep + stars + "b", path + text));
  // Exponential would be longer than the age of the universe.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

}  // namespace
}  // namespace dtrain
