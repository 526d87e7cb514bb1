#include "cli/host_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schema/quote.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

Result<std::vector<std::string>> host_terms(const std::string& words) {
  std::vector<std::string> terms;
  for (size_t at = 0; at <= words.size();) {
    const size_t end = std::min(words.find(',', at), words.size());
    const std::string_view term = trimmed(std::string_view(words).substr(at, end - at));
    at = end + 1;
    if (!is_utf8(term) || !kHostTerm.accepts(term)) {
      return Error{Code::InvalidArgument, fmt::format("--host: got {}, expected {}", term.empty() ? "an empty text" : in_quotes(as_utf8(term)), kHostTerm.expected),
                   "several with commas between: --host 'gpu-*,!gpu-7'; left out: any host"};
    }
    terms.emplace_back(term);
  }
  return terms;
}

}  // namespace dtrain::cli
