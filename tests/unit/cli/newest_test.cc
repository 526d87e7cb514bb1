#include "cli/newest.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

void add(pb::ListReply& live, const char* id, const char* state, const char* project_dir) {
  pb::ExperimentInfo* info = live.add_experiments();
  info->set_id(id);
  info->set_state(state);
  info->set_project_dir(project_dir);
}

TEST_CASE("killed is the newest of the project one stands in, whatever is newer elsewhere") {
  pb::ListReply live;
  add(live, "3", "RUNNING", "/here");
  add(live, "4", "PENDING", "/here");
  add(live, "5", "RUNNING", "/elsewhere");
  CHECK(newest_to_kill(live, "/here").value() == "4");
}

TEST_CASE("where nothing of the project runs, an ID is asked for") {
  pb::ListReply live;
  CHECK(newest_to_kill(live, "/here").error().message == "there is nothing to kill: no experiment runs");
  add(live, "3", "RUNNING", "/elsewhere");
  add(live, "5", "RUNNING", "/elsewhere");
  const Error error = newest_to_kill(live, "/here").error();
  CHECK(error.code == Code::NotFound);
  CHECK(error.message == "no experiment of this project (/here) runs; of other projects: 3, 5");
  CHECK(error.hint == "to end one of those, give its ID: dtrain kill 5");
  for (const char* id : {"6", "7", "8", "9", "10"}) add(live, id, "RUNNING", "/elsewhere");
  CHECK(newest_to_kill(live, "/here").error().message.ends_with(": 6, 7, 8, 9, 10 and 2 older"));
}

TEST_CASE("what is suspended is killed last of a project's") {
  pb::ListReply live;
  add(live, "3", "RUNNING", "/here");
  add(live, "4", "SUSPENDED", "/here");
  CHECK(newest_to_kill(live, "/here").value() == "3");
  live.mutable_experiments()->DeleteSubrange(0, 1);
  CHECK(newest_to_kill(live, "/here").value() == "4");
}

TEST_CASE("suspended, or let go on, without an ID is the only one there is") {
  pb::ListReply live;
  CHECK(only_to_suspend(live, "/here", false).error().code == Code::NotFound);
  add(live, "3", "RUNNING", "/elsewhere");
  add(live, "4", "PENDING", "/here");
  add(live, "5", "SUSPENDED", "/here");
  add(live, "6", "STOPPING", "/here");
  CHECK(only_to_suspend(live, "/here", false).value() == "4");
  CHECK(only_to_suspend(live, "/here", true).value() == "5");
  live.mutable_experiments(3)->set_reason("suspended; waits for 6.train on vm to end");
  const Error several = only_to_suspend(live, "/here", true).error();
  CHECK(several.message == "several experiments of this project are suspended: 5, 6");
  CHECK(several.hint == "say which: dtrain resume 6");
  add(live, "7", "RUNNING", "/here");
  CHECK(only_to_suspend(live, "/here", false).error().code == Code::InvalidArgument);
}

TEST_CASE("without an ID members of a set are named and not let go on, and what is suspended is said to be") {
  pb::ListReply live;
  add(live, "42", "RUNNING", "/here");
  add(live, "42.1", "SUSPENDED", "/here");
  add(live, "42.3", "RUNNING", "/here");
  add(live, "42.4", "SUSPENDED", "/here");
  CHECK(only_to_suspend(live, "/here", false).value() == "42");
  const Error members = only_to_suspend(live, "/here", true).error();
  CHECK(members.message == "no experiment of this project (/here) is suspended, but members are: 42.1, 42.4");
  CHECK(members.hint == "say which: dtrain resume 42.4, or dtrain resume 42 for all of 42");
  for (auto& each : *live.mutable_experiments()) each.set_state("SUSPENDED");
  CHECK(only_to_suspend(live, "/here", true).value() == "42");
  const Error again = only_to_suspend(live, "/here", false).error();
  CHECK(again.message == "no experiment of this project (/here) runs or waits; suspended already: 42");
  CHECK(again.hint == "dtrain resume 42 lets it go on");
}

TEST_CASE("watched is the newest with processes") {
  pb::ListReply live;
  CHECK(newest_running(live, "/here").empty());
  add(live, "3", "RUNNING", "/here");
  add(live, "4", "PENDING", "/here");
  add(live, "5", "RUNNING", "/elsewhere");
  CHECK(newest_running(live, "/here") == "3");
}

TEST_CASE("what is of another project is told with where it is from") {
  pb::ExperimentInfo taken;
  taken.set_id("7");
  taken.set_project("toaster");
  taken.set_project_dir("/elsewhere");
  CHECK(of_another_project(taken, "/elsewhere").empty());
  CHECK(of_another_project(taken, "/here") == "nothing was submitted from /here: this is the newest that there is for you, 7 of project toaster in /elsewhere");
}

}  // namespace
}  // namespace dtrain::cli
