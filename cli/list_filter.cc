#include "cli/list_filter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "schema/ids.h"
#include "schema/quote.h"
#include "schema/shell_words.h"
#include "schema/states.h"
#include "schema/suggest.h"

namespace dtrain::cli {

namespace {

// LOST is of replicas alone.
constexpr std::array kStates{State::Created,   State::Pending,    State::Building, State::Starting, State::Running, State::Stopping,
                             State::Suspended, State::Restarting, State::Finished, State::Failed,   State::Killed};

}  // namespace

// Of what is unreadable nobody can tell whether it is over.
bool ListFilter::names_ends() const {
  return std::ranges::any_of(states, [](const std::string& state) { return is_over(state) || state == kUnreadable; });
}

std::string ListFilter::text() const {
  std::string text;
  if (!user.empty()) text += " --user " + shell_quoted(user);
  if (!states.empty()) text += fmt::format(" --state {}", fmt::join(states, ","));
  return text;
}

std::vector<std::string> state_words() {
  std::vector<std::string> words;
  for (const State state : kStates) words.emplace_back(to_string(state));
  words.emplace_back(kUnreadable);
  return words;
}

Result<std::vector<std::string>> parse_states(const std::string& words) {
  std::vector<std::string> states;
  const std::vector<std::string> known = state_words();
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(',', at), words.size());
    std::string word = words.substr(at, end - at);
    at = end + 1;
    std::ranges::transform(word, word.begin(), [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
    if (std::ranges::find(known, word) != known.end()) {
      states.push_back(std::move(word));
      continue;
    }
    const std::string_view meant = nearest(word, {known.begin(), known.end()});
    return Error{Code::InvalidArgument,
                 fmt::format("--state: {} is no state of an experiment{}", word.empty() ? "an empty text" : in_quotes(as_utf8(word)),
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)),
                 fmt::format("one or several of {}, with commas between", fmt::join(known, ", "))};
  }
  return states;
}

void keep_matching(const ListFilter& filter, pb::ListReply& reply) {
  if (filter.is_any()) return;
  const auto matches = [&](const pb::ExperimentInfo& info) {
    const bool in_state = filter.states.empty() || std::ranges::find(filter.states, info.state()) != filter.states.end();
    return in_state && (filter.user.empty() || info.user() == filter.user);
  };
  pb::ListReply kept;
  bool keeps = false;
  for (pb::ExperimentInfo& info : *reply.mutable_experiments()) {
    const auto id = parse_experiment_id(info.id());
    const bool is_member = id.ok() && id->member != 0;   // it follows its set
    if (!is_member) keeps = matches(info);
    if (keeps) kept.add_experiments()->Swap(&info);
  }
  reply.mutable_experiments()->Swap(kept.mutable_experiments());
}

std::string render_none_matching(const ListFilter& filter, bool all, bool of_project) {
  std::string text = "No experiment";
  if (of_project) text += " of this project";
  if (!filter.user.empty()) text += fmt::format("{} of {}", of_project ? " and" : "", filter.user);
  const bool live_only = !all && filter.states.empty();
  text += filter.states.empty() ? (live_only ? " waits or runs" : " is there")
                                : fmt::format(" is {}", fmt::join(filter.states, " or "));
  if (live_only) text += fmt::format(". {} status -a{}{} looks at ended ones, too", called(), filter.text(), of_project ? " --project" : "");
  return text + "\n";
}

}  // namespace dtrain::cli
