#include "cli/awaited.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schema/quote.h"
#include "schema/resume.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

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
  return ids;
}

}  // namespace

Status put_awaited(const AwaitedWords& words, Spec& spec) {
  if (!words.are_given()) return ok();
  TRY(spec.after, ids_of(words.after, "--after"));
  TRY(spec.after_end, ids_of(words.after_end, "--after-end"));
  return ok();
}

Status put_awaited_directory(Connection& connection, Spec& spec) {
  std::vector<ExperimentId> ids = spec.after;
  ids.insert(ids.end(), spec.after_end.begin(), spec.after_end.end());
  if (ids.empty() || spec.framework == Framework::Engine) return ok();
  pb::ShowRequest request;
  request.set_id(to_string(ids.front()));
  TRY(const pb::ShowReply shown, connection.show(request));
  std::erase(spec.env_from_shell, kAfterVariable);
  spec.env[kAfterVariable] = shown.output_dir();
  return ok();
}

}  // namespace dtrain::cli
