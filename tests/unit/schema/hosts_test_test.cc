#include "schema/hosts_test.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("each fact of a probe is a line, which is read as that fact") {
  const ProbeFact facts[] = {ProbeBegan{"ab"},
                             ProbeDisk{true, 1.5e8, uint64_t{5} << 40, "No space left \"here\"\n"},
                             ProbeDisk{},
                             ProbeWrote{"cd"},
                             ProbeReach{3, Reach::TimedOut, "Connection timed out"},
                             ProbeLink{2, 0.25, 1e9, 2e9, -1500.5},
                             ProbeLeftOut{60, 99},
                             ProbeDone{}};
  for (const ProbeFact& fact : facts) {
    const std::string line = to_line(fact);
    CAPTURE(line);
    CHECK(line.find('\n') == line.size() - 1);
    const auto read = parse_probe_line(std::string_view(line).substr(0, line.size() - 1));
    REQUIRE(read.has_value());
    CHECK(*read == fact);
  }
}

TEST_CASE("what is no fact is none, and what a fact lacks or has of another kind is nothing") {
  for (const char* line : {"", "hosts-probe", "hosts-probe {", "hosts-probe []", "hosts-probe {\"fact\": \"more\"}", "{\"fact\": \"done\"}"}) {
    CHECK_MESSAGE(!parse_probe_line(line), line);
  }
  CHECK(parse_probe_line("hosts-probe {\"fact\": \"began\", \"sent\": 3}") == ProbeFact(ProbeBegan{}));
  CHECK(parse_probe_line("hosts-probe {\"fact\": \"reach\", \"to\": 1, \"reach\": 77}") == ProbeFact(ProbeReach{1, Reach::Other, ""}));
}
