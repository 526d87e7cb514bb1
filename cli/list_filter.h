// Which experiments `dtrain status` lists: of one user, in some states. Pure.
#pragma once

#include <string>
#include <vector>

#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::cli {

struct ListFilter {
  std::string user;                  // empty: whoever
  std::vector<std::string> states;   // as lists show them; empty: any

  bool is_any() const { return user.empty() && states.empty(); }
  bool names_ends() const;     // ended ones are asked for
  // As it would be typed: " --user anna --state FAILED,KILLED".
  std::string text() const;
};

std::vector<std::string> state_words();

// "running,PENDING", as lists show them. InvalidArgument: one is none, with the nearest that is.
Result<std::vector<std::string>> parse_states(const std::string& words);

// Takes the others out. Of a set the whole counts, and its members stay with it.
void keep_matching(const ListFilter& filter, pb::ListReply& reply);

// "No experiment of anna is FAILED or KILLED" and what to do about it; `all`: ended ones were looked at, too.
std::string render_none_matching(const ListFilter& filter, bool all, bool of_project);

}  // namespace dtrain::cli
