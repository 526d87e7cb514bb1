// The README of a folder says what each of its files holds; a file that it does not name fails
// here, and so does a name that no file has.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "schema/spec_keys.h"

namespace {

namespace fs = std::filesystem;
using dtrain::Key;
using dtrain::Shape;

std::string source_text(const std::string& file) {
  std::ostringstream bytes;
  bytes << std::ifstream(fs::path(SOURCE_DIR) / file).rdbuf();
  return bytes.str();
}

// Of `store.*`, `main.cc`, `sync_*` and `queue*.{h,cc}`: "store", "main", "sync_*", "queue*".
struct Named {
  std::string text;
  std::string stem;
  bool is_file = false;  // it can be nothing but a file's name
};

std::vector<Named> names_in(const std::string& readme) {
  const std::string text = source_text(readme);
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

bool holds_word(const std::string& text, std::string_view word) {
  const auto is_of_a_word = [&](size_t at) {
    return at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '-');
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !is_of_a_word(at - 1)) && !is_of_a_word(at + word.size())) return true;
  }
  return false;
}

void check_keys(const Shape& shape, const std::string& path, const std::string& readme,
                const std::string& text) {
  for (const Key& key : shape.keys) {
    if (key.shape.kind == Shape::Kind::Refused) continue;
    const std::string at = path + "." + std::string(key.name);
    CHECK_MESSAGE(holds_word(text, key.name), readme << " says nothing of " << at);
    if (key.name == "engine") {
      check_keys(key.shape, at, "engine/README.md", source_text("engine/README.md"));
    } else {
      check_keys(key.shape, at, readme, text);
    }
  }
  for (const Shape& part : shape.parts) check_keys(part, path, readme, text);
}

bool means(const std::string& stem, const std::string& file) {
  if (!stem.ends_with('*')) return stem == file;
  return stem.size() > 1 && file.starts_with(stem.substr(0, stem.size() - 1));
}

TEST_CASE("the README of a folder names each of its files, and no others") {
  for (const std::string folder :
       {"schema", "cli", "daemon", "runner", "tests/e2e", "tests/fuzz"}) {
    const std::vector<Named> names = names_in(folder + "/README.md");
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

TEST_CASE("each key of a dtrain.yml is in the README, those of the engine in its own") {
  check_keys(dtrain::spec_shape(), "", "README.md", source_text("README.md"));
}

}  // namespace
