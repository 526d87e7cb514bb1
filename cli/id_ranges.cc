#include "cli/id_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/remote.h"
#include "schema/quote.h"

namespace dtrain::cli {

namespace {

Result<std::vector<ExperimentId>> ask_daemon(Connection& connection, const IdRange& range, const Counts& counts) {
  std::vector<ExperimentId> known;
  if (range.first.member != 0) {
    pb::ShowRequest set;
    set.set_id(to_string(range.first.set()));
    TRY(const pb::ShowReply shown, connection.show(set));
    const uint32_t last = std::min(range.last.member, shown.experiment().members());
    for (uint32_t member = range.first.member; member <= last; ++member) known.push_back({range.first.number, member});
    return known;
  }
  pb::ListRequest request;
  request.set_all(true);
  request.set_from(range.first.number);
  TRY(const pb::ListReply list, connection.list(request));
  for (const pb::ExperimentInfo& info : list.experiments()) {
    const auto id = parse_experiment_id(info.id());
    if (id.ok() && *id >= range.first && *id <= range.last && counts(info)) known.push_back(*id);
  }
  return known;
}

}  // namespace

bool is_range(const std::string& text) { return text.find('-') != std::string::npos; }

Result<IdRange> read_range(const std::string& text) {
  const Error none{Code::InvalidArgument, fmt::format("{} is no range of IDs", in_quotes(as_utf8(text))),
                   "4-9 are experiments, 4.1-4.6 members of one set, from the smaller number to the larger"};
  const size_t dash = text.find('-');
  if (dash == std::string::npos) return none;
  const auto first = parse_experiment_id(text.substr(0, dash)), last = parse_experiment_id(text.substr(dash + 1));
  if (!first.ok() || !last.ok() || *first > *last) return none;
  const bool are_members = first->member != 0 && last->member != 0 && first->number == last->number;
  if (!are_members && (first->member != 0 || last->member != 0)) return none;
  return IdRange{*first, *last};
}

Result<std::vector<std::string>> without_ranges(const std::vector<std::string>& typed, const AskKnown& known) {
  std::vector<std::string> ids;
  std::set<std::string> named(typed.begin(), typed.end());
  for (const std::string& text : typed) {
    if (!is_range(text)) {
      ids.push_back(text);
      continue;
    }
    TRY(const IdRange range, read_range(text));
    TRY(const auto there, known(range));
    if (there.empty()) {
      return Error{Code::NotFound, fmt::format("there is nothing from {} to {}", to_string(range.first), to_string(range.last)),
                   range.first.member == 0 ? "dtrain status -n 0 lists all there is" : fmt::format("dtrain status {} shows its members", range.first.number)};
    }
    for (const ExperimentId& id : there) {
      if (named.insert(to_string(id)).second) ids.push_back(to_string(id));
    }
  }
  return ids;
}

Result<std::vector<std::string>> without_ranges(const std::vector<std::string>& typed, Connection& connection, const Counts& counts) {
  return without_ranges(typed, [&](const IdRange& range) { return ask_daemon(connection, range, counts); });
}

bool may_be_changed(const pb::ExperimentInfo& info) { return key_user().empty() || info.user() == key_user(); }

}  // namespace dtrain::cli
