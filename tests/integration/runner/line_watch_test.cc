#include "runner/line_watch.h"

#include <doctest/doctest.h>

#include "schema/spec.h"

namespace dtrain::runner {
namespace {

using Lines = std::vector<PrintedLine>;

Lines found_in(const std::vector<WatchedLine>& wanted, const std::string& output, size_t piece) {
  LineWatch watch(wanted);
  for (size_t at = 0; at < output.size(); at += piece) watch.take(std::string_view(output).substr(at, piece));
  watch.finish();
  return watch.found();
}

TEST_CASE("the first line of each kind is found, in whatever pieces it comes") {
  const std::vector<WatchedLine> wanted = {{0, "^ECC", false}, {2, "nan$", false}, {3, "never", false}};
  const std::string output = "an ECC\nloss=nan\r\nECC one\nECC two\nnan\nlast: ECC";
  for (size_t piece = 1; piece <= output.size(); ++piece) {
    CAPTURE(piece);
    CHECK(found_in(wanted, output, piece) == Lines{{2, "loss=nan"}, {0, "ECC one"}});
  }
}

TEST_CASE("a progress bar's lines end by their returns, and the last line needs no end") {
  CHECK(found_in({{0, "^50%", false}}, "10%\r50%\r90%", 4) == Lines{{0, "50%"}});
  CHECK(found_in({{0, "^90%$", false}}, "10%\r50%\r90%", 4) == Lines{{0, "90%"}});
  CHECK(found_in({{0, "^$", false}}, "\n\n", 1) == Lines{});
}

TEST_CASE("of a line without an end a part is looked at, and no more kept") {
  const std::string begin(kPrintedLineMaxBytes - 3, 'a');
  for (const size_t piece : {size_t{7}, size_t{100'000}}) {
    CHECK(found_in({{0, "abcd", false}}, begin + "bcd\n", piece).empty() == false);
    CHECK(found_in({{0, "bcde", false}}, begin + "bcde\n", piece).empty());
    CHECK(found_in({{0, "^bcde", false}}, begin + std::string(1'000'000, 'x') + "\nbcde\n", piece) == Lines{{0, "bcde"}});
  }
  CHECK(found_in({{0, "x", false}}, std::string(500, 'x'), 64)[0].line.size() == 200);
}

TEST_CASE("of a long line is shown what fits") {
  const std::string line = "{" + std::string(300, 'a') + " loss=nan, lr=0.1}";
  CHECK(found_in({{0, "loss=nan", false}}, line + "\n", 50) == Lines{{0, "..." + std::string(19, 'a') + " loss=nan, lr=0.1}"}});
}

TEST_CASE("patterns that are too large to be looked for at once are looked for one by one") {
  std::vector<WatchedLine> wanted;
  for (uint32_t i = 0; i < 32; ++i) wanted.push_back({i, fmt::format("(?:a{{1,500}}b{{1,400}}){{1,2}}{}$", i), false});
  CHECK(found_in(wanted, "aab7\nab31\nab", 3) == Lines{{7, "aab7"}, {31, "ab31"}});
}

TEST_CASE("who prints it is ended for the first of those that say so") {
  LineWatch watch({{0, "warns", false}, {1, "breaks", true}, {2, "ends", true}});
  watch.take("it warns\n");
  CHECK(watch.ending() == nullptr);
  watch.take("it ends\nit breaks\n");
  REQUIRE(watch.ending() != nullptr);
  CHECK(*watch.ending() == PrintedLine{2, "it ends"});
  CHECK(watch.found() == Lines{{0, "it warns"}, {2, "it ends"}, {1, "it breaks"}});
}

TEST_CASE("a pattern of another version that can't be used finds nothing") {
  CHECK(found_in({{0, "a(", false}, {1, "b", false}}, "a(b\n", 10) == Lines{{1, "a(b"}});
}

}  // namespace
}  // namespace dtrain::runner
