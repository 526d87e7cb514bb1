#include "schema/yaml_tree.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

std::string problems_of(const std::string& text) {
  Problems problems("f.yml");
  parse_yaml(text, 0, problems);
  return problems.empty() ? "" : problems.to_error("").message;
}

}  // namespace

TEST_CASE("the tree knows where each part stands, and how it was written") {
  Problems problems("f.yml");
  const auto root = parse_yaml(
      "\xEF\xBB\xBF"
      "a: 1\nb:\n  - 'x'\n  - >\n    y\nc:\n",
      0, problems);
  REQUIRE(root);
  CHECK(problems.empty());
  CHECK(root->find("a")->place == Place{0, 1, 4});
  CHECK(root->find("a")->plain);
  const YamlNode& list = *root->find("b");
  REQUIRE(list.items.size() == 2);
  CHECK(list.items[0].place == Place{0, 3, 5});
  CHECK_FALSE(list.items[0].plain);
  CHECK(list.items[1].folded);
  CHECK(root->find("c")->kind == YamlNode::Kind::Null);
  CHECK(root->find("c")->place == Place{0, 6, 1});
  CHECK(root->find("d") == nullptr);
}

TEST_CASE("aliases are copies, within bounds") {
  Problems problems("f.yml");
  const auto root = parse_yaml("a: &x {k: 1}\nb: *x\n", 0, problems);
  REQUIRE(root);
  REQUIRE(root->find("b")->find("k"));
  CHECK(root->find("b")->find("k")->text == "1");
  CHECK(root->find("b")->place.line == 2);

  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    bomb += fmt::format("{0}: &{0} [*{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}, *{1}]\n", name,
                        static_cast<char>(name - 1));
  }
  CHECK(problems_of(bomb).find("too much in one file") != std::string::npos);

  std::string deep = "a: &a [x]\n";
  for (int i = 1; i < 40; ++i)
    deep += fmt::format("k{0}: &a{0} [*a{1}]\n", i, i == 1 ? "" : std::to_string(i - 1));
  CHECK(problems_of(deep).find("nested more than 32 levels") != std::string::npos);
}

TEST_CASE("documents that hold nothing are none, and anchors are of one document") {
  Problems problems("f.yml");
  const auto one = parse_yaml("---\n---\n# nothing\n---\na: 1\n---\n...\n---\n", 0, problems);
  REQUIRE(one);
  CHECK(one->find("a")->place == Place{0, 5, 4});
  const auto none = parse_yaml("---\n---\n", 0, problems);
  REQUIRE(none);
  CHECK(none->kind == YamlNode::Kind::Null);
  const auto two = parse_yaml_documents("a: &x 1\nb: *x\n---\nc: &x 2\nd: *x\n", 0, problems);
  REQUIRE(two);
  REQUIRE(two->size() == 2);
  CHECK((*two)[0].find("b")->text == "1");
  CHECK((*two)[1].find("d")->text == "2");
  CHECK(problems.empty());
  CHECK(problems_of("a: 1\n---\n---\nb: 2\n") == "f.yml:4:1: a second document starts here; a file holds one");
}

TEST_CASE("a text beyond the bounds is refused before it costs anything") {
  CHECK(problems_of("a: " + std::string(100 << 20, 'x')) ==
        "f.yml: 104857603 bytes are too many, expected at most 1048576");
  CHECK(problems_of("a: " + std::string(200'000, 'x')).find("a text of 200000 bytes") !=
        std::string::npos);
  CHECK(problems_of(std::string(100'000, '[')).find("nested more than") != std::string::npos);
  CHECK(problems_of(std::string(100'000, '{')).find("nested more than") != std::string::npos);
  std::string keys;
  for (int i = 0; i < 5000; ++i) keys += fmt::format("k{}: 1\n", i);
  CHECK(problems_of(keys) == "f.yml:1001:1: more than 1000 keys in one map");
  std::string values = "- 1\n";
  while (values.size() < 400'000) values += "- 1\n";
  CHECK(problems_of(values).find("too much in one file") != std::string::npos);
}
