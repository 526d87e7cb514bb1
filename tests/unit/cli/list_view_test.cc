#include "cli/list_view.h"

#include <doctest/doctest.h>

#include "tests/unit/cli/now.h"

namespace dtrain::cli {
namespace {

pb::ExperimentInfo* add(pb::ListReply& reply, const char* id, const char* state, uint64_t age_ms) {
  pb::ExperimentInfo* info = reply.add_experiments();
  info->set_id(id);
  info->set_project("ai-toaster");
  info->set_state(state);
  info->set_submitted_unix_ms(kNow - age_ms);
  return info;
}

pb::ListReply some_list() {
  pb::ListReply reply;
  add(reply, "5", "RUNNING", 61'000);
  pb::ExperimentInfo* set = add(reply, "4", "RUNNING", 7'200'000);
  set->set_members(3);
  set->set_members_finished(1);
  set->set_members_failed(1);
  (*add(reply, "4.1", "FINISHED", 7'200'000)->mutable_parameters())["lr"] = "0.1";
  pb::ExperimentInfo* member = add(reply, "4.2", "PENDING", 7'200'000);
  (*member->mutable_parameters())["lr"] = "0.2";
  (*member->mutable_parameters())["batch"] = "64";
  member->set_reason("needs 4 GPUs; free: 1");
  return reply;
}

TEST_CASE("experiments are a line each in RiseML's columns, members the branches of their set") {
  CHECK(render_list(some_list(), {{}, kNow, false}) ==
        "ID     PROJECT        STATE      AGE         TYPE\n"
        "5      ai-toaster     ● RUNNING  1 minute    Experiment\n"
        "4      ai-toaster     ● RUNNING  2 hours     Set (2 of 3, 1 failed)\n"
        "├─ 4.1 ai-toaster     ✓ FINISHED 2 hours     ├─ Experiment\n"
        "╰─ 4.2 ai-toaster     ● PENDING  2 hours     ╰─ Experiment\n");
}

TEST_CASE("whose each is, where it is of several users") {
  pb::ListReply reply;
  add(reply, "4", "RUNNING", 61'000)->set_user("anna");
  add(reply, "5", "RUNNING", 61'000)->set_user("anna");
  CHECK(render_list(reply, {{}, kNow, false}).find("USER") == std::string::npos);
  CHECK(render_list(reply, {{}, kNow, false, true}).starts_with("ID     PROJECT        STATE      AGE         TYPE            USER\n"));
  add(reply, "6", "RUNNING", 61'000)->set_user("bert");
  CHECK(render_list(reply, {{}, kNow, false}) ==
        "ID     PROJECT        STATE      AGE         TYPE            USER\n"
        "4      ai-toaster     ● RUNNING  1 minute    Experiment      anna\n"
        "5      ai-toaster     ● RUNNING  1 minute    Experiment      anna\n"
        "6      ai-toaster     ● RUNNING  1 minute    Experiment      bert\n");
}

TEST_CASE("a list of the newest says that there are older ones") {
  pb::ListReply reply;
  for (const char* id : {"6", "7", "7.1", "7.2", "8"}) add(reply, id, "FINISHED", 0);
  pb::ListReply same = reply;
  CHECK(take_newest(same, 3, "").empty());
  CHECK(take_newest(same, 0, "").empty());
  CHECK(same.experiments_size() == 5);
  CHECK(take_newest(same, 2, "") ==
        "Older experiments are not shown; dtrain status -n 0 lists all\n");
  REQUIRE(same.experiments_size() == 4);
  CHECK(same.experiments(0).id() == "7");
  CHECK(take_newest(reply, 1, " --project") ==
        "Older experiments are not shown; dtrain status -n 0 --project lists all\n");
  CHECK(reply.experiments_size() == 1);
  CHECK(reply.experiments(0).id() == "8");
}

TEST_CASE("a list of some members of a set says that there are others") {
  pb::ListReply reply;
  add(reply, "3", "RUNNING", 0)->set_members(9);   // listed without members
  add(reply, "4", "RUNNING", 0)->set_members(2);
  for (const char* id : {"4.1", "4.2"}) add(reply, id, "RUNNING", 0);
  CHECK(members_left_out(reply).empty());
  add(reply, "5", "RUNNING", 0)->set_members(5000);
  for (const char* id : {"5.7", "5.8", "5.9"}) add(reply, id, "RUNNING", 0);
  CHECK(members_left_out(reply) == "4997 of the 5000 members of 5 are not shown; dtrain status 5 --sort id lists all\n");
}

TEST_CASE("-l adds parameters, sorted, and reasons") {
  const std::string text = render_list(some_list(), {{}, kNow, true});
  CHECK(text.find("batch=64, lr=0.2 needs 4 GPUs; free: 1\n") != std::string::npos);
  CHECK(text.find("PARAMS") != std::string::npos);
}

TEST_CASE("members of a set show what tells them apart, on narrow screens too") {
  pb::ListReply reply = some_list();
  for (pb::ExperimentInfo& info : *reply.mutable_experiments()) {
    if (info.id().starts_with("4.")) (*info.mutable_parameters())["activation"] = "relu";
  }
  reply.mutable_experiments()->RemoveLast();
  pb::ExperimentInfo* member = add(reply, "4.2", "PENDING", 7'200'000);
  (*member->mutable_parameters())["activation"] = "relu";
  (*member->mutable_parameters())["lr"] = "0.2";
  CHECK(render_list(reply, {{true, false, 40, 24}, kNow, true}) ==
        "ID     STATE      PARAMS\n"
        "5      ● RUNNING\n"
        "4      ● RUNNING\n"
        "├─ 4.1 ✓ FINISHED lr=0.1\n"
        "╰─ 4.2 ● PENDING  lr=0.2\n");
}

TEST_CASE("a narrow terminal drops TYPE before PROJECT and never ID or STATE") {
  Screen screen;
  screen.is_terminal = true;
  screen.width = 40;
  const std::string text = render_list(some_list(), {screen, kNow, false});
  CHECK(text.find("TYPE") == std::string::npos);
  CHECK(text.find("● PENDING") != std::string::npos);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    CHECK(display_width(text.substr(begin, end - begin)) <= 40);
  }
}

TEST_CASE("an empty list says what to do next") {
  CHECK(render_nothing(nullptr, false, {{}, kNow, false}) ==
        "No experiments yet. In the directory of your code: dtrain init, then dtrain train\n");
  pb::ListReply reply;
  pb::ExperimentInfo* newest = add(reply, "7", "FAILED", 90'000);
  newest->set_finished_unix_ms(kNow - 60'000);
  CHECK(render_nothing(newest, false, {{}, kNow, false}) ==
        "Nothing is running. The newest is 7 (ai-toaster): FAILED 1 minute ago.\n"
        "dtrain status -a lists what ran last, dtrain status 7 shows this one.\n");
  CHECK(render_nothing(nullptr, true, {{}, kNow, false}) ==
        "No experiments of this project yet. dtrain train starts one\n");
  CHECK(render_nothing(newest, true, {{}, kNow, false}).find("status -a --project lists") !=
        std::string::npos);
}

}  // namespace
}  // namespace dtrain::cli
