#include "cli/words.h"

#include <doctest/doctest.h>

using namespace dtrain::cli;

TEST_CASE("a reason may say no more than its state") {
  CHECK(says_state("killed", "KILLED"));
  CHECK_FALSE(says_state("killed by anna", "KILLED"));
  CHECK_FALSE(says_state("", "KILLED"));
}

TEST_CASE("sizes in steps of 1024 with one decimal") {
  CHECK(human_size(0) == "0 B");
  CHECK(human_size(1023) == "1023 B");
  CHECK(human_size(1024) == "1.0 KB");
  CHECK(human_size(5'976'883) == "5.7 MB");
  CHECK(human_size((uint64_t{1} << 20) - 1) == "1.0 MB");
  CHECK(human_size(uint64_t{38} << 30) == "38.0 GB");
}

TEST_CASE("memory in the units that mem is written in") {
  CHECK(human_memory(uint64_t{512} << 20) == "512 MiB");
  CHECK(human_memory((uint64_t{1} << 30) - 1) == "1.0 GiB");
  CHECK(human_memory(uint64_t{47} << 29) == "23.5 GiB");
}

TEST_CASE("ages have one unit, in the right plural") {
  CHECK(human_age(999) == "just now");
  CHECK(human_age(1'000) == "1 second");
  CHECK(human_age(59'999) == "59 seconds");
  CHECK(human_age(60'000) == "1 minute");
  CHECK(human_age(3 * 3'600'000) == "3 hours");
  CHECK(human_age(49 * 3'600'000) == "2 days");
  CHECK(human_ago(0, 5'000) == "");
  CHECK(human_ago(2'000, 5'000) == "3 seconds ago");
  CHECK(human_ago(9'000, 5'000) == "just now");  // the clock was set back
}

TEST_CASE("durations: hours do not roll into days, and seconds are rounded") {
  CHECK(human_duration(1'499) == "1 second");
  CHECK(human_duration(1'990) == "2 seconds");
  CHECK(human_duration(59'700) == "1m 0s");
  CHECK(human_duration(1'000) == "1 second");
  CHECK(human_duration(184'000) == "3m 4s");
  CHECK(human_duration(uint64_t{26} * 3'600'000 + 9'000) == "26h 0m 9s");
}

TEST_CASE("times are UTC in RiseML's form") {
  CHECK(iso_time(1504164226999) == "2017-08-31T07:23:46Z");
  CHECK(iso_time_ms(1504164226009) == "2017-08-31T07:23:46.009Z");
}
