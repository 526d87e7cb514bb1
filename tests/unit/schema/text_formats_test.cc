#include "schema/text_formats.h"

#include <doctest/doctest.h>

#include <regex>
#include <string>
#include <vector>

using namespace dtrain;

TEST_CASE("sizes read back as they are written") {
  CHECK(parse_memory("16GiB") == uint64_t{16} << 30);
  CHECK(parse_memory("16Gi") == uint64_t{16} << 30);
  CHECK(parse_memory("500MB") == 500'000'000u);
  CHECK(parse_memory("1.5G") == 1'500'000'000u);
  CHECK(parse_memory("4 KiB") == 4096u);
  CHECK(parse_memory("0B") == 0u);
  for (const char* text : {"", "16", "GiB", "16 GiB ", "16gib", "-1GiB", "1e3MB", "1.GB",
                           "9999999PB", "BB", "1BB", "1KBB"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_memory(text));
  }
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1} << 30,
                               uint64_t{1536} << 20, uint64_t{3} << 50, uint64_t{500'000'000}}) {
    CHECK(parse_memory(format_memory(bytes)) == bytes);
  }
  CHECK(format_memory(uint64_t{16} << 30) == "16GiB");
}

TEST_CASE("durations read back as they are written") {
  CHECK(parse_duration_ms("12h") == 43'200'000);
  CHECK(parse_duration_ms("1h30m") == 5'400'000);
  CHECK(parse_duration_ms("1.5s") == 1'500);
  CHECK(parse_duration_ms("500ms") == 500);
  CHECK(parse_duration_ms("1d") == 86'400'000);
  for (const char* text : {"", "5", "h", "1 h", "-1s", "1hh", "1w", "99999999999999d", "1s2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_duration_ms(text));
  }
  for (const int64_t ms : {0, 1, 999, 1000, 61'000, 3'600'000, 90'061'001}) {
    CHECK(parse_duration_ms(format_duration_ms(ms)) == ms);
  }
  CHECK(format_duration_ms(5'400'000) == "1h30m");
}

TEST_CASE("each predicate and its pattern say the same") {
  const std::vector<std::string> samples{"",
                                         "a",
                                         "a-b",
                                         "-a",
                                         "a-",
                                         "a_b",
                                         "_a",
                                         "1a",
                                         "a b",
                                         "A=b",
                                         "A=",
                                         "=x",
                                         "/",
                                         "/mnt/x",
                                         "mnt",
                                         "../x",
                                         "a/../b",
                                         "a..b",
                                         "..",
                                         "a/..",
                                         "./a",
                                         "2.15",
                                         "2.15.0",
                                         "2",
                                         "2.15.0-gpu",
                                         "2.15.0rc1",
                                         "2.15.",
                                         "2.15.0.1",
                                         "latest",
                                         "1.2.1-",
                                         "auto",
                                         "python3.11",
                                         "conda:tf",
                                         "conda:",
                                         "/usr/bin/python",
                                         "./python",
                                         "16GiB",
                                         "16",
                                         "5s",
                                         "1h30m",
                                         "500MB",
                                         "5 s",
                                         "5 MB",
                                         "1.5G",
                                         "a\nb",
                                         "ü",
                                         "x.y",
                                         "KB",
                                         "1B",
                                         "1BB",
                                         "10m",
                                         "2.15.0-gpu-py3",
                                         "A_1=a b\nc",
                                         "....",
                                         "a/...",
                                         "1.2a",
                                         "samples/s",
                                         ".hidden"};
  for (const TextFormat* format :
       {&kProjectName, &kParameterName, &kMetricName, &kDataName, &kEnvName, &kEnvEntry, &kMemoryText,
        &kDurationText, &kTensorflowVersion, &kAbsolutePath, &kInnerPath, &kPythonChoice,
        &kSomeText, &kAnyText}) {
    const std::regex pattern{std::string(format->pattern)};
    for (const std::string& sample : samples) {
      CAPTURE(format->expected);
      CAPTURE(sample);
      CHECK(format->accepts(sample) == std::regex_search(sample, pattern));
    }
  }
}
