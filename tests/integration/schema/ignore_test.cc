// Our reading of .gitignore beside git's own, on random rules and paths.
#include "schema/ignore.h"

#include <doctest/doctest.h>
#include <stdio.h>

#include <cstdlib>
#include <random>
#include <set>

#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

bool have_git() {
  return std::system("git --version >/dev/null 2>&1") == 0;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t n) { return engine_() % n; }
  template <size_t N>
  std::string pick(const char* const (&choices)[N]) {
    return choices[below(N)];
  }

 private:
  std::mt19937 engine_;
};

const char* const kNames[] = {"a", "b", "ab", "a.o", "b.o", "a.b", "foo", ".a", "a b", "#a", "!a"};

std::string random_part(Random& random) {
  static const char* const kPieces[] = {
      "a",   "b",  "*", "?",    "[ab]", "[!a]", ".o",          "foo", "*.o", "[a-c]",
      "\\*", "ab", ".", "[^b]", "a\\b", "[]a]", "[[:alpha:]]", " ",   "#",   "!"};
  std::string part;
  for (size_t i = 1 + random.below(3); i > 0; --i) part += random.pick(kPieces);
  return part;
}

std::string random_line(Random& random) {
  std::string line = random.below(4) == 0 ? "!" : "";
  if (random.below(4) == 0) line += '/';
  const size_t parts = random.below(3);
  for (size_t i = 0; i < parts; ++i) {
    line += random.below(3) == 0 ? "**" : random_part(random);
    line += '/';
  }
  line += random.below(6) == 0 && parts > 0 ? "**" : random_part(random);
  if (random.below(4) == 0) line += '/';
  return line;
}

// What a walk by our rules sees below `directory`.
void walk(IgnoreRules& rules, const fs::path& root, const std::string& directory,
          std::set<std::string>& in) {
  const fs::path here = root / directory;
  const bool has_rules = fs::exists(here / ".gitignore");
  if (has_rules) rules.push(directory, test::read_file(here / ".gitignore"));
  for (const auto& item : fs::directory_iterator(here)) {
    const std::string name = item.path().filename();
    if (name == ".git" || name == ".gitignore") continue;
    const std::string path = directory.empty() ? name : directory + "/" + name;
    if (rules.decide(path, item.is_directory()).excluded()) continue;
    if (item.is_directory()) {
      walk(rules, root, path, in);
    } else {
      in.insert(path);
    }
  }
  if (has_rules) rules.pop();
}

// What git would add: every file that is not ignored.
std::set<std::string> ask_git(const fs::path& root) {
  const std::string command =
      "cd '" + root.native() +
      "' && git -c core.excludesFile=/dev/null ls-files -z -o --exclude-standard";
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::set<std::string> files;
  std::string name;
  for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) {
    if (c != 0) {
      name += static_cast<char>(c);
    } else {
      if (!name.ends_with(".gitignore")) files.insert(name);
      name.clear();
    }
  }
  REQUIRE(::pclose(pipe) == 0);
  return files;
}

TEST_CASE("random rules mean what git means by them") {
  if (!have_git()) return dtrain::tests::say_skipped("no git here");
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  Random random(20231);
  for (int i = 0; i < 120; ++i) {
    std::string path;
    for (size_t depth = random.below(4); depth > 0; --depth) path += random.pick(kNames) + "/";
    path += random.pick(kNames);
    std::error_code clash;  // a name may be a file already where a directory is wanted
    fs::create_directories((root / path).parent_path(), clash);
    if (!clash && !fs::exists(root / path)) test::write_file(root / path, "");
  }
  REQUIRE(std::system(("git init -q '" + root.native() + "' 2>/dev/null").c_str()) == 0);
  for (int round = 0; round < 150; ++round) {
    std::string top, nested;
    for (size_t i = 1 + random.below(5); i > 0; --i) top += random_line(random) + "\n";
    for (size_t i = random.below(3); i > 0; --i) nested += random_line(random) + "\n";
    test::write_file(root / ".gitignore", top);
    fs::path inner;
    for (const auto& item : fs::directory_iterator(root)) {
      if (item.is_directory() && item.path().filename() != ".git") inner = item.path();
    }
    test::write_file(inner / ".gitignore", nested);

    IgnoreRules rules;
    std::set<std::string> ours;
    walk(rules, root, "", ours);
    const auto theirs = ask_git(root);
    if (ours != theirs) {
      for (const auto& path : ours) {
        if (!theirs.contains(path)) MESSAGE("only ours: ", path);
      }
      for (const auto& path : theirs) {
        if (!ours.contains(path)) MESSAGE("only git's: ", path);
      }
    }
    CAPTURE(top);
    CAPTURE(nested);
    CHECK(ours == theirs);
  }
}

}  // namespace
}  // namespace dtrain
