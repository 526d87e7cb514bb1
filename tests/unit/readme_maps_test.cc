// The README of a folder says what each of its files holds; a file that it does not name fails
// here, and so does a name that no file has.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Of `store.*`, `main.cc`, `sync_*` and `queue*.{h,cc}`: "store", "main", "sync_*", "queue*".
struct Named {
  std::string text;
  std::string stem;
  bool is_file = false;  // it can be nothing but a file's name
};

std::vector<Named> names_in(const fs::path& readme) {
  std::ostringstream bytes;
  bytes << std::ifstream(readme).rdbuf();
  const std::string text = bytes.str();
  std::vector<Named> names;
  for (size_t open = text.find('`'); open != text.npos; open = text.find('`', open + 1)) {
    const size_t close = text.find_first_of("`\n", open + 1);
    if (close == text.npos) break;
    if (text[close] == '`') {
      const std::string name = text.substr(open + 1, close - open - 1);
      const size_t dot = std::min(name.find('.'), name.size());
      const std::string end = name.substr(dot);
      const bool is_file = name.find('/') == name.npos && dot > 0 &&
                           (end == ".*" || end == ".h" || end == ".cc" || end == ".{h,cc}");
      names.push_back({name, name.substr(0, dot), is_file});
    }
    open = close;
  }
  return names;
}

bool means(const std::string& stem, const std::string& file) {
  if (!stem.ends_with('*')) return stem == file;
  return stem.size() > 1 && file.starts_with(stem.substr(0, stem.size() - 1));
}

TEST_CASE("the README of a folder names each of its files, and no others") {
  for (const std::string folder : {"schema", "cli", "daemon", "runner", "tests/e2e", "tests/fuzz"}) {
    const std::vector<Named> names = names_in(fs::path(SOURCE_DIR) / folder / "README.md");
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension == ".h" || extension == ".cc") files.insert(entry.path().stem().string());
    }
    REQUIRE(files.size() > 10);
    for (const std::string& file : files) {
      const bool named =
          std::ranges::any_of(names, [&](const Named& name) { return means(name.stem, file); });
      CHECK_MESSAGE(named, folder << "/README.md says nothing of " << file);
    }
    for (const Named& name : names) {
      const bool there = !name.is_file || std::ranges::any_of(files, [&](const std::string& file) {
        return means(name.stem, file);
      });
      CHECK_MESSAGE(there, folder << "/README.md names " << name.text << ", which is not there");
    }
  }
}

}  // namespace
