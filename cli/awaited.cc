#include "cli/awaited.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schema/quote.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

constexpr size_t kIdsMost = 100;   // as in a dtrain.yml

Result<std::vector<ExperimentId>> ids_of(const std::vector<std::string>& words, const char* option) {
  std::vector<ExperimentId> ids;
  for (const std::string& word : words) {
    for (size_t at = 0; at <= word.size();) {
      const size_t end = std::min(word.find(',', at), word.size());
      const std::string text = word.substr(at, end - at);
      at = end + 1;
      if (!kExperimentText.accepts(text)) {
        return Error{Code::InvalidArgument,
                     fmt::format("{}: got {}, expected {}", option, in_quotes(as_utf8(text)), kExperimentText.expected),
                     fmt::format("several with commas between: {} 4,5.2", option)};
      }
      TRY(const ExperimentId id, parse_experiment_id(text));
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
  }
  if (ids.size() > kIdsMost) {
    return Error{Code::InvalidArgument, fmt::format("{}: got {} experiments, expected at most {}", option, ids.size(), kIdsMost),
                 "of a set its number is enough"};
  }
  return ids;
}

}  // namespace

Status put_awaited(const AwaitedWords& words, Spec& spec) {
  if (!words.after.empty()) {
    TRY(spec.after, ids_of(words.after, "--after"));
  }
  if (!words.after_end.empty()) {
    TRY(spec.after_end, ids_of(words.after_end, "--after-end"));
  }
  return ok();
}

}  // namespace dtrain::cli
