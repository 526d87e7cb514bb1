#include "cli/list_filter.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

pb::ListReply list_of(const std::vector<std::array<const char*, 3>>& lines) {
  pb::ListReply reply;
  for (const auto& [id, user, state] : lines) {
    pb::ExperimentInfo& info = *reply.add_experiments();
    info.set_id(id);
    info.set_user(user);
    info.set_state(state);
  }
  return reply;
}

std::string ids_of(const pb::ListReply& reply) {
  std::string ids;
  for (const auto& info : reply.experiments()) ids += (ids.empty() ? "" : " ") + info.id();
  return ids;
}

std::string kept(const ListFilter& filter) {
  pb::ListReply reply = list_of({{"1", "anna", "FINISHED"},
                                 {"2", "ben", "RUNNING"},
                                 {"2.1", "ben", "FAILED"},
                                 {"2.2", "ben", "RUNNING"},
                                 {"3", "anna", "FAILED"},
                                 {"4", "anna", "RUNNING"},
                                 {"5", "", "UNREADABLE"}});
  keep_matching(filter, reply);
  return ids_of(reply);
}

TEST_CASE("every word that is offered for a state is one") {
  REQUIRE(!state_words().empty());
  for (const std::string& word : state_words()) CHECK_MESSAGE(parse_states(word).ok(), word);
}

TEST_CASE("states are read as they are typed, and what is none is refused with the nearest") {
  CHECK(*parse_states("RUNNING") == std::vector<std::string>{"RUNNING"});
  CHECK(*parse_states("pending,Suspended") == std::vector<std::string>{"PENDING", "SUSPENDED"});
  const auto misspelt = parse_states("RUNNING,FALED");
  REQUIRE(!misspelt.ok());
  CHECK(misspelt.error().code == Code::InvalidArgument);
  CHECK(misspelt.error().message == "--state: 'FALED' is no state of an experiment; did you mean FAILED?");
  CHECK(misspelt.error().hint.starts_with("one or several of CREATED, PENDING, "));
  CHECK(parse_states("done").error().message == "--state: 'DONE' is no state of an experiment");
  CHECK(parse_states("RUNNING,").error().message == "--state: an empty text is no state of an experiment");
  CHECK(parse_states("UNREADABEL").error().message.ends_with("; did you mean UNREADABLE?"));
  CHECK(!parse_states("LOST").ok());   // of replicas
}

TEST_CASE("a list is of one user, of some states or of both, and a set stays whole") {
  CHECK(kept({}) == "1 2 2.1 2.2 3 4 5");
  CHECK(kept({"anna", {}}) == "1 3 4");
  CHECK(kept({"", {"RUNNING"}}) == "2 2.1 2.2 4");
  CHECK(kept({"", {"FAILED", "FINISHED"}}) == "1 3");
  CHECK(kept({"anna", {"RUNNING"}}) == "4");
  CHECK(kept({"carl", {}}).empty());
  CHECK(kept({"", *parse_states("unreadable")}) == "5");
}

TEST_CASE("who asks for an end asks for what has ended") {
  CHECK_FALSE(ListFilter{}.names_ends());
  CHECK_FALSE(ListFilter{"anna", {"RUNNING", "STOPPING"}}.names_ends());
  CHECK(ListFilter{"", {"RUNNING", "KILLED"}}.names_ends());
  CHECK(ListFilter{"", {"UNREADABLE"}}.names_ends());
}

TEST_CASE("where nothing is like that it is said, and how to see more") {
  CHECK(render_none_matching({"anna", {}}, false, false) ==
        "No experiment of anna waits or runs. dtrain status -a --user anna looks at ended ones, too\n");
  CHECK(render_none_matching({"anna", {}}, true, false) == "No experiment of anna is there\n");
  CHECK(render_none_matching({"", {"FAILED", "KILLED"}}, true, false) == "No experiment is FAILED or KILLED\n");
  CHECK(render_none_matching({"anna", {"RUNNING"}}, false, true) == "No experiment of this project and of anna is RUNNING\n");
}

}  // namespace
}  // namespace dtrain::cli
