#include "cli/ending.h"

#include <doctest/doctest.h>

using namespace dtrain;
using namespace dtrain::cli;

namespace {

pb::StateEvent state_event(const std::string& id, const std::string& word, const std::string& reason = "") {
  pb::StateEvent event;
  event.set_id(id);
  event.set_state(word);
  event.set_reason(reason);
  event.set_attempt(1);
  return event;
}

void print(Ending& ending, const std::string& replica, const std::string& text) {
  pb::LogChunk chunk;
  chunk.set_replica(replica);
  chunk.set_attempt(1);
  chunk.set_data(text);
  ending.add(chunk);
}

pb::ExperimentInfo outcome(const std::string& word, const std::string& reason = "") {
  pb::ExperimentInfo info;
  info.set_id("4");
  info.set_state(word);
  info.set_reason(reason);
  info.set_started_unix_ms(1'000);
  info.set_finished_unix_ms(13'000);
  return info;
}

}  // namespace

TEST_CASE("a good end is short") {
  Ending ending;
  CHECK(ending.text(outcome("FINISHED"), "runs/4", {}) ==
        "4 finished after 12 seconds\nOutput: runs/4\n");
}

TEST_CASE("what was ended at its limit is not said to have run for less") {
  pb::ExperimentInfo failed = outcome("FAILED", "its max-duration of 2s has passed");
  failed.set_finished_unix_ms(2'998);
  CHECK(Ending().text(failed, "", {}).starts_with(
      "4 failed after 2 seconds: its max-duration of 2s has passed\n"));
  failed.set_finished_unix_ms(1'994);
  CHECK(Ending().text(failed, "", {}).starts_with("4 failed after 1 second: "));
  failed.set_finished_unix_ms(1'499);
  CHECK(Ending().text(failed, "", {}).starts_with("4 failed in under a second: "));
}

TEST_CASE("what starts it again goes on from a checkpoint where there may be one") {
  pb::ExperimentInfo failed = outcome("FAILED", "no room");
  CHECK(Ending().text(failed, "", {}).ends_with("Next: dtrain status 4, dtrain rerun 4\n"));
  failed.set_framework("engine");
  CHECK(Ending().text(failed, "", {}).ends_with(
      "Next: dtrain status 4, dtrain rerun 4 (--resume: from its newest checkpoint, if it has one)\n"));
  failed.set_exit_code(1);
  failed.set_started_unix_ms(0);
  CHECK(rerun_text(failed) == "dtrain rerun 4");
  failed.set_started_unix_ms(1'000);
  CHECK(rerun_text(failed) != "dtrain rerun 4");
  failed.set_members(2);
  CHECK(rerun_text(failed) == "dtrain rerun 4");
}

TEST_CASE("what the engine refused is not advised again as it was, and its log comes first") {
  pb::ExperimentInfo failed = outcome("FAILED", "4.train: exit code 2");
  failed.set_exit_code(2);
  CHECK(Ending().text(failed, "", {}).ends_with(
      "Next: dtrain logs 4.train, dtrain status 4, dtrain rerun 4\n"));
  failed.set_framework("engine");
  CHECK(Ending().text(failed, "", {}).ends_with(
      "Next: dtrain logs 4.train, dtrain status 4, "
      "dtrain rerun 4 --set KEY=VALUE (as it was, it is refused again)\n"));
}

TEST_CASE("what lacks podman and docker is not advised again as it was, but without its image") {
  pb::ExperimentInfo failed = outcome("FAILED", "image tiny of ps: neither podman nor docker is there on n1; mend that there");
  failed.set_started_unix_ms(0);
  CHECK(Ending().text(failed, "", {}).ends_with("Next: dtrain status 4, dtrain rerun 4 --no-image\n"));
}

TEST_CASE("the first failure is shown with its last lines, what followed is folded") {
  Ending ending;
  print(ending, "4.worker.1", "line 1\nTraceback\nValueError: no data\n");
  print(ending, "4.ps.1", "listening\n");
  CHECK_FALSE(ending.add(state_event("4", "STOPPING", "4.worker.1: exit code 3")));
  CHECK(ending.add(state_event("4.ps.1", "FINISHED", "ended with the experiment")));
  CHECK_FALSE(ending.add(state_event("4.worker.1", "FAILED", "exit code 3")));
  CHECK(ending.add(state_event("4.master", "KILLED", "ended because of 4.worker.1: exit code 3")));
  ending.add(state_event("4", "FAILED", "4.worker.1: exit code 3"));
  CHECK(ending.text(outcome("FAILED", "4.worker.1: exit code 3"), "runs/4", {}) ==
        "4 failed after 12 seconds: 4.worker.1: exit code 3\n"
        "Last lines of 4.worker.1:\n"
        "  | line 1\n"
        "  | Traceback\n"
        "  | ValueError: no data\n"
        "+2 ended because of it\n"
        "Output: runs/4\n"
        "Next: dtrain logs 4.worker.1, dtrain status 4, dtrain rerun 4\n");
}

TEST_CASE("only the last ten lines are kept, from however much output") {
  Ending ending;
  for (int i = 0; i < 100'000; ++i) print(ending, "4.train", "line " + std::to_string(i) + "\n");
  ending.add(state_event("4.train", "FAILED", "exit code 1"));
  std::string text = ending.text(outcome("FAILED", "4.train: exit code 1"), "", {});
  CHECK(text.find("| line 99990\n") != std::string::npos);
  CHECK(text.find("| line 99989\n") == std::string::npos);
}

TEST_CASE("the last lines are those of the attempt that failed, and not of those before") {
  Ending ending;
  const auto attempt = [&](uint32_t number, const std::string& text) {
    pb::StateEvent starting = state_event("4.train", "STARTING");
    starting.set_attempt(number);
    ending.add(starting);
    pb::LogChunk chunk;
    chunk.set_replica("4.train");
    chunk.set_attempt(number);
    chunk.set_data(text);
    if (!text.empty()) ending.add(chunk);
  };
  attempt(1, "no data\n");
  attempt(2, "out of memory\n");
  CHECK(ending.last_lines("4.train") == std::vector<std::string>{"out of memory"});
  attempt(3, "");
  const std::string text = ending.text(outcome("FAILED", "4.train: exit code 1"), "", {});
  CHECK_MESSAGE(text.find("4.train printed nothing in attempt 3.\n") != std::string::npos, text);
}

TEST_CASE("that nothing was printed is said only of a log that was seen from its start") {
  Ending ending;
  ending.add(state_event("4.train", "FAILED", "exit code 1"));
  const auto text = [&] { return ending.text(outcome("FAILED", "4.train: exit code 1"), "", {}); };
  CHECK(text().find("4.train printed nothing.\n") != std::string::npos);
  ending.expect_a_part();
  CHECK(text().find("printed nothing") == std::string::npos);
  CHECK(text().find("Its last lines: dtrain logs 4.train --tail 10\n") != std::string::npos);
}

TEST_CASE("a failure that a restart survived is not told as the cause") {
  Ending ending;
  ending.add(state_event("4.train", "FAILED", "exit code 1"));
  ending.add(state_event("4", "RESTARTING"));
  ending.add(state_event("4", "STARTING"));
  CHECK(ending.text(outcome("FINISHED"), "", {}) == "4 finished after 12 seconds\n");
}

TEST_CASE("whose words decided is shown beside who failed first") {
  Ending ending;
  const std::string reason = "4.master: exit code 1; 4.worker.1 printed 'ECC error'; all 3 restarts are used";
  ending.add(state_event("4", "STOPPING", "4.master: exit code 1"));
  pb::StateEvent failed = state_event("4", "FAILED", reason);
  failed.set_printer("4.worker.1");
  ending.add(failed);
  print(ending, "4.master", "connection reset\n");
  print(ending, "4.worker.1", "ECC error\n");
  pb::ExperimentInfo over = outcome("FAILED", reason);
  over.set_printer("4.worker.1");
  const std::string text = ending.text(over, "", {});
  CHECK_MESSAGE(text.find("connection reset") < text.find("ECC error\n"), text);
  CHECK_MESSAGE(text.find("Next: dtrain logs 4.worker.1, ") != std::string::npos, text);
  over.set_members(2);
  over.set_members_failed(1);
  CHECK(ending.text(over, "", {}).find("ECC error\n") != std::string::npos);
  const std::string quoted = "4.master: exit code 1: it said '; 4.worker.1 printed 'x''";
  CHECK(ending.text(outcome("FAILED", quoted), "", {}).find("ECC error\n") == std::string::npos);
  const std::string silent = Ending().text(outcome("FAILED", "nothing was printed for 30m"), "", {});
  CHECK_MESSAGE(silent.find("Next: dtrain logs 4, ") != std::string::npos, silent);
}

TEST_CASE("what it was stopping for and has another attempt after is not told as the cause, in a set either") {
  Ending ending;
  ending.add(state_event("4", "STOPPING", "4.master: exit code 75"));
  ending.add(state_event("4", "RESTARTING", "restart 1 of 3 after 4.master: exit code 75"));
  ending.add(state_event("4", "STOPPING", "4.worker.1: exit code 3"));
  ending.add(state_event("4.worker.1", "FAILED", "exit code 3"));
  ending.add(state_event("4.master", "KILLED", "ended because of 4.worker.1"));
  ending.add(state_event("4", "FAILED", "4.worker.1: exit code 3"));
  print(ending, "4.worker.1", "the worker's last words\n");
  const std::string text = ending.text(outcome("FAILED", "4.worker.1: exit code 3"), "", {});
  CHECK_MESSAGE(text.find("the worker's last words") != std::string::npos, text);
  CHECK_MESSAGE(text.find("+1 ended because of it") != std::string::npos, text);

  Ending set;
  set.add(state_event("5.1", "STOPPING", "5.1.train: exit code 75"));
  set.add(state_event("5.1", "RESTARTING", "restart 1 of 3 after 5.1.train: exit code 75"));
  set.add(state_event("5.2", "FAILED", "5.2.train: exit code 4"));
  print(set, "5.1.train", "first attempt\n");
  print(set, "5.2.train", "it was me\n");
  pb::ExperimentInfo of_set = outcome("FINISHED");
  of_set.set_id("5");
  of_set.set_members(2);
  of_set.set_members_finished(1);
  of_set.set_members_failed(1);
  const std::string told = set.text(of_set, "", {});
  CHECK_MESSAGE(told.find("it was me") != std::string::npos, told);
  CHECK_MESSAGE(told.find("first attempt") == std::string::npos, told);
}

TEST_CASE("a failure that was ignored is not the cause, and nobody ended because of it") {
  Ending ending;
  print(ending, "4.worker.1", "preempted\n");
  print(ending, "4.master", "ValueError: no data\n");
  CHECK_FALSE(ending.add(state_event("4.worker.1", "FAILED", "exit code 3")));
  CHECK_FALSE(ending.add(state_event("4.worker.2", "FINISHED")));
  CHECK_FALSE(ending.add(state_event("4", "STOPPING", "4.master: exit code 7")));
  CHECK(ending.add(state_event("4.ps.1", "FINISHED", "ended with the experiment")));
  CHECK_FALSE(ending.add(state_event("4.master", "FAILED", "exit code 7")));
  CHECK(ending.text(outcome("FAILED", "4.master: exit code 7"), "", {}) ==
        "4 failed after 12 seconds: 4.master: exit code 7\n"
        "Last lines of 4.master:\n"
        "  | ValueError: no data\n"
        "+1 ended because of it\n"
        "Next: dtrain logs 4.master, dtrain status 4, dtrain rerun 4\n");
  CHECK(ending.text(outcome("FAILED", "its max-duration of 12 s has passed"), "", {}) ==
        "4 failed after 12 seconds: its max-duration of 12 s has passed\n"
        "Next: dtrain status 4, dtrain rerun 4\n");
}

TEST_CASE("a kill has its reason and no last lines") {
  Ending ending;
  ending.add(state_event("4", "STOPPING", "killed by user"));
  ending.add(state_event("4.train", "KILLED", "killed by user"));
  CHECK(ending.text(outcome("KILLED", "killed by user"), "", {}) ==
        "4 killed after 12 seconds: killed by user\n");
  CHECK(ending.text(outcome("KILLED", "killed"), "", {}) == "4 killed after 12 seconds\n");
}

TEST_CASE("a set tells how many of its members made it, and of the first that did not") {
  pb::ExperimentInfo info = outcome("FINISHED");
  info.set_members(4);
  info.set_members_finished(3);
  info.set_members_failed(1);
  Ending ending;
  ending.add(state_event("4.10", "STOPPING", "4.10.train: exit code 3"));
  ending.add(state_event("4.2", "STOPPING", "4.2.train: exit code 1"));
  std::string text = ending.text(info, "", {});
  CHECK(text.find("4 finished after 12 seconds: 3 of 4 members finished, 1 failed: 4.2.train: exit "
                  "code 1\n") == 0);
  CHECK(text.find("4.2.train printed nothing.\n") != std::string::npos);
}

TEST_CASE("of a set that was killed the members are counted once") {
  pb::ExperimentInfo info = outcome("KILLED", "0 of 4 finished, 4 failed or killed");
  info.set_members(4);
  info.set_members_failed(4);
  info.set_members_killed(3);
  CHECK(Ending().text(info, "", {}) ==
        "4 killed after 12 seconds: 0 of 4 members finished, 1 failed, 3 killed\n");
}
