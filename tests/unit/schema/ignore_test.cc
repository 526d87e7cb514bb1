#include "schema/ignore.h"

#include <doctest/doctest.h>

namespace dtrain {
namespace {

using Layer = IgnoreRules::Layer;

bool out(const IgnoreRules& rules, std::string_view path, bool is_directory = false) {
  return rules.decide(path, is_directory).excluded();
}

std::string why(const IgnoreRules& rules, std::string_view path, bool is_directory = false) {
  return describe(rules.decide(path, is_directory));
}

TEST_CASE("by default caches and earlier runs stay out, RiseML's YAML stays in") {
  const IgnoreRules rules;
  CHECK(out(rules, "__pycache__", true));
  CHECK(out(rules, "pkg/__pycache__", true));
  CHECK(out(rules, "runs", true));
  CHECK(out(rules, "wandb", true));
  CHECK(out(rules, "output-4", true));
  CHECK(out(rules, "output-4.2", true));
  CHECK(why(rules, "output-4", true) == "outputs of earlier runs");
  CHECK(!out(rules, "output-layer", true));
  CHECK(out(rules, "checkout-4.2", true));
  CHECK(why(rules, "checkout-4", true) == "files of earlier runs");
  CHECK(!out(rules, "checkout-4"));
  CHECK(!out(rules, "checkout-mine", true));
  CHECK(!out(rules, "output-4"));
  CHECK(!out(rules, "src/output-4", true));
  CHECK(!out(rules, "src/runs", true));
  CHECK(!out(rules, "src/wandb", true));
  CHECK(!out(rules, "runs"));
  CHECK(!out(rules, "riseml.yml"));
  CHECK(!out(rules, "riseml_gpu.yml"));
  CHECK(why(rules, "pkg/__pycache__", true) == "Python's bytecode cache");
}

TEST_CASE("the last pattern of a file that matches decides") {
  IgnoreRules rules;
  rules.add(Layer::Git, "*.bin\n!keep.bin\nsub/keep.bin\n");
  CHECK(out(rules, "a.bin"));
  CHECK(!out(rules, "keep.bin"));
  CHECK(out(rules, "sub/keep.bin"));
  CHECK(why(rules, "sub/keep.bin") == ".gitignore:3 'sub/keep.bin'");
}

TEST_CASE("a nested .gitignore counts below its directory, and more than those above") {
  IgnoreRules rules;
  rules.add(Layer::Git, "*.log\n/only-top\n");
  rules.push("sub", "!important.log\n/anchored\nx/y\n");
  CHECK(!out(rules, "sub/important.log"));
  CHECK(!out(rules, "sub/deep/important.log"));
  CHECK(out(rules, "sub/other.log"));
  CHECK(out(rules, "sub/anchored"));
  CHECK(!out(rules, "sub/deep/anchored"));
  CHECK(out(rules, "sub/x/y"));
  CHECK(!out(rules, "sub/only-top"));
  CHECK(why(rules, "sub/anchored") == "sub/.gitignore:2 '/anchored'");
  rules.pop();
  CHECK(out(rules, "other/important.log"));
}

TEST_CASE(".dtrainignore has the last word, then .risemlignore") {
  IgnoreRules rules;
  rules.add(Layer::Git, "data/\n*.h5\n");
  rules.add(Layer::Riseml, "!small.h5\nnotes.txt\n");
  rules.add(Layer::Dtrain, "!data/\n!notes.txt\n!__pycache__/\n*.csv\n");
  CHECK(!out(rules, "data", true));
  CHECK(out(rules, "big.h5"));
  CHECK(!out(rules, "small.h5"));
  CHECK(!out(rules, "notes.txt"));
  CHECK(!out(rules, "__pycache__", true));
  CHECK(out(rules, "data/x.csv"));
  CHECK(why(rules, "x.csv") == ".dtrainignore:4 '*.csv'");
}

TEST_CASE("below a directory that is out, only a path in .dtrainignore takes in again") {
  IgnoreRules rules;
  rules.add(Layer::Git, "data/\n!data/other.csv\n");
  rules.add(Layer::Dtrain, "!data/small.csv\n!*.txt\n!logs/**/*.txt\n");
  CHECK(rules.takes_in_below("data"));
  CHECK(!rules.takes_in_below("dat"));
  CHECK(!rules.takes_in_below("data/small.csv"));
  CHECK(rules.takes_in_below("logs"));
  CHECK(!rules.takes_in_below("elsewhere"));
  CHECK(rules.takes_in_below("logs/a/b"));
  CHECK(rules.decide_below_excluded("data/small.csv", false).kind ==
        IgnoreRules::Verdict::Kind::Included);
  CHECK(rules.decide_below_excluded("data/other.csv", false).kind ==
        IgnoreRules::Verdict::Kind::Undecided);
}

TEST_CASE("a path that takes in again may have wildcards in each of its parts") {
  IgnoreRules rules;
  rules.add(Layer::Git, "data/\n");
  rules.add(Layer::Dtrain, "!data/*/raw-?/*.csv\n!deep/**\n");
  for (const char* directory : {"data", "data/a", "data/a/raw-1", "deep", "deep/er/than"}) CHECK_MESSAGE(rules.takes_in_below(directory), directory);
  for (const char* directory : {"dat", "data/a/raw", "data/a/raw-1/b", "dee"}) CHECK_MESSAGE(!rules.takes_in_below(directory), directory);
}

TEST_CASE("files come with any line ends, a byte order mark, or no newline at the end") {
  IgnoreRules rules;
  rules.add(Layer::Git, "\xEF\xBB\xBF*.a\r\n\r\n# c\r\n*.b\r\n*.c");
  CHECK(out(rules, "x.a"));
  CHECK(out(rules, "x.b"));
  CHECK(out(rules, "x.c"));
  CHECK(why(rules, "x.c") == ".gitignore:5 '*.c'");
}

}  // namespace
}  // namespace dtrain
