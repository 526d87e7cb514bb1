#include "cli/log_printer.h"

#include <doctest/doctest.h>

#include <string>

#include "cli/follow.h"

using namespace dtrain;
using namespace dtrain::cli;

namespace {

constexpr uint64_t kTime = 1504164226000;  // 2017-08-31T07:23:46Z

pb::LogChunk chunk(const std::string& replica, const std::string& data, uint64_t time = kTime) {
  pb::LogChunk log;
  log.set_replica(replica);
  log.set_attempt(1);
  log.set_time_unix_ms(time);
  log.set_data(data);
  return log;
}

pb::StateEvent state(const std::string& id, const std::string& word, const std::string& reason = "",
                     int exit_code = 0) {
  pb::StateEvent event;
  event.set_id(id);
  event.set_state(word);
  event.set_reason(reason);
  event.set_exit_code(exit_code);
  event.set_time_unix_ms(kTime);
  return event;
}

LogFormat pipe() {
  return {};
}

LogFormat terminal() {
  LogFormat format;
  format.screen = {true, false, 60, 24};
  return format;
}

// What was put out since the last call.
std::string taken(LogPrinter& printer) {
  std::string bytes = printer.output();
  printer.clear();
  return bytes;
}

const std::vector<std::string> kIds = {"4", "4.master", "4.ps.1", "4.worker.1", "4.tensorboard"};

}  // namespace

TEST_CASE("the prefix is RiseML's: as wide as the longest ID, in UTC") {
  LogPrinter printer(pipe());
  printer.set_ids(kIds);
  printer.add(state("4", "BUILDING"));
  printer.add(chunk("4.worker.1", "hello\n\nworld\n"), 0);
  CHECK(taken(printer) ==
        "4             | [2017-08-31T07:23:46Z] --> BUILDING\n"
        "4.worker.1    | [2017-08-31T07:23:46Z] hello\n"
        "4.worker.1    | [2017-08-31T07:23:46Z] \n"
        "4.worker.1    | [2017-08-31T07:23:46Z] world\n");
}

TEST_CASE("a line that came in pieces is one line, with the time of its first byte") {
  LogPrinter printer(pipe());
  printer.set_ids({"4", "4.train"});
  printer.add(chunk("4.train", "one "), 0);
  CHECK(taken(printer).empty());
  printer.add(chunk("4.train", "line\nnext", kTime + 5000), 0);
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:46Z] one line\n");
  printer.finish();
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:51Z] next\n");
}

TEST_CASE("a state that comes in the middle of a line does not break it, an end does") {
  LogPrinter printer(pipe());
  printer.set_ids({"4", "4.train"});
  printer.add(chunk("4.train", "one "), 0);
  printer.add(state("4.train", "RUNNING"));
  printer.add(chunk("4.train", "line\nnext"), 0);
  printer.add(state("4.train", "FINISHED"));
  CHECK(taken(printer) ==
        "4.train | [2017-08-31T07:23:46Z] --> RUNNING\n"
        "4.train | [2017-08-31T07:23:46Z] one line\n"
        "4.train | [2017-08-31T07:23:46Z] next\n"
        "4.train | [2017-08-31T07:23:46Z] --> FINISHED\n");
}

TEST_CASE("pieces of several replicas don't mix") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.ps.1", "4.ps.2"});
  printer.add(chunk("4.ps.1", "a"), 0);
  printer.add(chunk("4.ps.2", "x\n"), 0);
  printer.add(chunk("4.ps.1", "b\n"), 0);
  CHECK(taken(printer) ==
        "4.ps.2 | [2017-08-31T07:23:46Z] x\n"
        "4.ps.1 | [2017-08-31T07:23:46Z] ab\n");
}

TEST_CASE("an unfinished line of an attempt ends where the next attempt begins") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "cut of"), 0);
  pb::LogChunk next = chunk("4.train", "again\n");
  next.set_attempt(2);
  printer.add(next, 0);
  CHECK(taken(printer) ==
        "4.train | [2017-08-31T07:23:46Z] cut of\n"
        "4.train | [2017-08-31T07:23:46Z] again\n");
}

TEST_CASE("in a pipe a progress bar leaves its last version") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "\r10%\r20%"), 0);
  printer.add(chunk("4.train", "\r30%\r"), 0);
  CHECK(taken(printer).empty());
  printer.add(chunk("4.train", "\r100%\r\ndos line\r\n"), 0);
  CHECK(taken(printer) ==
        "4.train | [2017-08-31T07:23:46Z] 100%\n"
        "4.train | [2017-08-31T07:23:46Z] dos line\n");
}

TEST_CASE("bytes pass through a pipe as they are") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "\xff\xfe \x1b[31mred\n"), 0);
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:46Z] \xff\xfe \x1b[31mred\n");
}

TEST_CASE("on a screen strange bytes are shown and can't move the cursor") {
  LogPrinter printer(terminal());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "\xff\x07 \x1b[2J\x1b]0;title\x07gr\xc3\xbc\xc3\x9f\n"), 0);
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:46Z] \\xff\\x07 gr\xc3\xbc\xc3\x9f\n");
}

TEST_CASE("a colour that a line leaves open is carried to its next line") {
  LogFormat format = terminal();
  format.screen.colours = true;
  LogPrinter printer(format);
  printer.set_ids({"4"});
  printer.add(chunk("4", "\x1b[31mred\nstill\x1b[0m\nplain\n"), 0);
  CHECK(taken(printer) ==
        "4 | [2017-08-31T07:23:46Z] \x1b[31mred\x1b[0m\n"
        "4 | [2017-08-31T07:23:46Z] \x1b[31mstill\x1b[0m\n"
        "4 | [2017-08-31T07:23:46Z] plain\n");
}

TEST_CASE("each replica has a colour on a screen, and states are bold") {
  LogFormat format = terminal();
  format.screen.colours = true;
  LogPrinter printer(format);
  printer.set_ids({"4", "4.ps.1", "4.ps.2"});
  printer.add(chunk("4.ps.1", "a\n"), 0);
  printer.add(chunk("4.ps.2", "b\n"), 0);
  printer.add(state("4", "RUNNING"));
  std::string bytes = taken(printer);
  std::string first = bytes.substr(0, bytes.find('4'));
  std::string second = bytes.substr(bytes.find('\n') + 1);
  second = second.substr(0, second.find('4'));
  CHECK(first.substr(0, 2) == "\x1b[");
  CHECK(second.substr(0, 2) == "\x1b[");
  CHECK(first != second);
  CHECK(bytes.find("\x1b[1m--> RUNNING\x1b[0m") != std::string::npos);
}

TEST_CASE("a failure shows its reason and code, once") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.ps.1"});
  printer.add(state("4.ps.1", "FAILED", "exit code 3", 3));
  CHECK(taken(printer) ==
        "4.ps.1 | [2017-08-31T07:23:46Z] --> FAILED\n"
        "4.ps.1 | [2017-08-31T07:23:46Z] Reason: exit code 3\n");
  printer.add(state("4.ps.1", "FAILED", "out of memory", 137));
  CHECK(taken(printer) ==
        "4.ps.1 | [2017-08-31T07:23:46Z] --> FAILED\n"
        "4.ps.1 | [2017-08-31T07:23:46Z] Reason: out of memory\n"
        "4.ps.1 | [2017-08-31T07:23:46Z] Exit Code: 137\n");
}

TEST_CASE("a reason that stays the same is not repeated") {
  LogPrinter printer(pipe());
  printer.set_ids({"4"});
  printer.add(state("4", "STOPPING", "4.ps.1: exit code 3"));
  printer.add(state("4", "FAILED", "4.ps.1: exit code 3", 3));
  CHECK(taken(printer) ==
        "4 | [2017-08-31T07:23:46Z] --> STOPPING\n"
        "4 | [2017-08-31T07:23:46Z] Reason: 4.ps.1: exit code 3\n"
        "4 | [2017-08-31T07:23:46Z] --> FAILED\n");
}

TEST_CASE("lost output is marked") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "cut"), 0);
  pb::LogChunk later = chunk("4.train", "rest\n");
  later.set_dropped_bytes(3 << 20);
  printer.add(later, 0);
  CHECK(taken(printer) ==
        "4.train | [2017-08-31T07:23:46Z] cut\n"
        "4.train | [2017-08-31T07:23:46Z] [3.0 MB of output lost here: its host had no room for "
        "it]\n"
        "4.train | [2017-08-31T07:23:46Z] rest\n");
}

TEST_CASE("a line without end is printed in parts and never kept whole") {
  LogPrinter printer(pipe());
  printer.set_ids({"4.train"});
  std::string part(100'000, 'x');
  size_t printed = 0;
  size_t largest = 0;
  for (int i = 0; i < 100; ++i) {
    printer.add(chunk("4.train", part), 0);
    largest = std::max(largest, printer.output().size());
    printed += taken(printer).size();
  }
  printer.finish();
  printed += taken(printer).size();
  CHECK(printed >= 100 * part.size());
  CHECK(largest < 2 * kLineMaxBytes);
}

TEST_CASE("raw keeps the bytes clean of marks, and remarks on what was lost once") {
  LogFormat format;
  format.raw = true;
  LogPrinter printer(std::move(format));
  pb::LogChunk lost;
  lost.set_replica("4.worker.1");
  lost.set_dropped_bytes(2048);
  lost.set_data("after\n");
  printer.add(lost, 0);
  CHECK(printer.output() == "after\n");
  CHECK(printer.take_remarks() ==
        "4.worker.1: [2.0 KB of output lost here: its host had no room for it]\n");
  CHECK(printer.take_remarks().empty());
}

TEST_CASE("a reason that only repeats the state is not told") {
  LogPrinter printer({});
  pb::StateEvent killed;
  killed.set_id("4");
  killed.set_state("KILLED");
  killed.set_reason("killed");
  printer.add(killed);
  CHECK(printer.output().find("Reason") == std::string::npos);
  killed.set_reason("ran longer than 1h");
  printer.add(killed);
  CHECK(printer.output().find("Reason: ran longer than 1h") != std::string::npos);
}

TEST_CASE("raw gives the bytes back, the unfinished end too") {
  LogFormat format = pipe();
  format.raw = true;
  LogPrinter printer(format);
  printer.set_ids({"4.train"});
  std::string bytes = "a\r\n\r50%\r100%\n\xff\x1b[0m\nend";
  for (char c : bytes) printer.add(chunk("4.train", std::string(1, c)), 0);
  printer.add(state("4.train", "FINISHED"));
  printer.finish();
  CHECK(taken(printer) == bytes);
}

TEST_CASE("a filter keeps the lines that match and leaves out states") {
  LogFormat format = pipe();
  format.matches = [](std::string_view line) { return line.find("loss") != line.npos; };
  LogPrinter printer(format);
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "a\nloss=1\nb\n"), 0);
  printer.add(state("4.train", "FINISHED"));
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:46Z] loss=1\n");
}

TEST_CASE("elapsed time counts from the start") {
  LogFormat format = pipe();
  format.time = TimeStyle::Elapsed;
  format.start_unix_ms = kTime - 3'725'000;
  LogPrinter printer(format);
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "x\n"), 0);
  CHECK(taken(printer) == "4.train | [01:02:05] x\n");
}

TEST_CASE("on a screen a bar moves in its row and other lines pass above it") {
  LogPrinter printer(terminal());
  printer.set_ids({"4.ps.1", "4.ps.2"});
  printer.add(chunk("4.ps.1", "\r10%"), 0);
  printer.settle(0);
  CHECK(taken(printer) == "4.ps.1 | [2017-08-31T07:23:46Z] 10%");
  // Faster than the eye: kept back, and the time of the next drawing is known.
  printer.add(chunk("4.ps.1", "\r20%"), 50);
  printer.settle(50);
  CHECK(taken(printer).empty());
  REQUIRE(printer.next_settle_ms().has_value());
  CHECK(*printer.next_settle_ms() == 100);
  printer.settle(100);
  CHECK(taken(printer) == "\r\x1b[J4.ps.1 | [2017-08-31T07:23:46Z] 20%");
  printer.add(chunk("4.ps.2", "hello\n"), 101);
  printer.settle(101);
  CHECK(taken(printer) ==
        "\r\x1b[J4.ps.2 | [2017-08-31T07:23:46Z] hello\n4.ps.1 | [2017-08-31T07:23:46Z] 20%");
  printer.add(chunk("4.ps.1", "\r100%\n"), 102);
  printer.settle(102);
  CHECK(taken(printer) == "\r\x1b[J4.ps.1 | [2017-08-31T07:23:46Z] 100%\n");
}

TEST_CASE("bars of several replicas have a row each and refresh once a second") {
  LogPrinter printer(terminal());
  printer.set_ids({"4.ps.1", "4.ps.2"});
  printer.add(chunk("4.ps.1", "\r1%"), 0);
  printer.add(chunk("4.ps.2", "\r2%"), 0);
  printer.settle(0);
  CHECK(taken(printer) == "4.ps.1 | [2017-08-31T07:23:46Z] 1%\n4.ps.2 | [2017-08-31T07:23:46Z] 2%");
  printer.add(chunk("4.ps.1", "\r3%"), 500);
  printer.settle(500);
  CHECK(taken(printer).empty());
  CHECK(*printer.next_settle_ms() == 1000);
  printer.settle(1000);
  CHECK(taken(printer) ==
        "\r\x1b[1A\x1b[J4.ps.1 | [2017-08-31T07:23:46Z] 3%\n4.ps.2 | [2017-08-31T07:23:46Z] 2%");
}

TEST_CASE("an unfinished line shows up after a moment") {
  LogPrinter printer(terminal());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "Downloading..."), 0);
  printer.settle(0);
  CHECK(taken(printer).empty());
  CHECK(*printer.next_settle_ms() == 500);
  printer.settle(500);
  CHECK(taken(printer) == "4.train | [2017-08-31T07:23:46Z] Downloading...");
  printer.add(chunk("4.train", " done\n"), 600);
  CHECK(taken(printer) == "\r\x1b[J4.train | [2017-08-31T07:23:46Z] Downloading... done\n");
}

TEST_CASE("a live row never fills the whole width") {
  LogPrinter printer(terminal());
  printer.set_ids({"4.train"});
  printer.add(chunk("4.train", "\r" + std::string(200, '#')), 0);
  printer.settle(0);
  CHECK(taken(printer).size() == 59);
}

TEST_CASE("times are short on a terminal of any width and full in a pipe, unless somebody says otherwise") {
  const auto time = [](const Screen& screen, const char* said) { return log_format_of(screen, said).time; };
  const Screen narrow{true, true, 60, 24}, wide{true, true, 200, 50}, piped;
  CHECK(time(narrow, "") == TimeStyle::Clock);
  CHECK(time(wide, "") == TimeStyle::Clock);
  CHECK(time(piped, "") == TimeStyle::Iso);
  CHECK(time(narrow, "iso") == TimeStyle::Iso);
  CHECK(time(piped, "clock") == TimeStyle::Clock);
  CHECK(time(piped, "elapsed") == TimeStyle::Elapsed);
}
