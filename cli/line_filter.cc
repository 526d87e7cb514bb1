#include "cli/line_filter.h"

#include <fmt/format.h>
#include <regex.h>

#include <memory>

#include "schema/quote.h"

namespace dtrain::cli {

// The C library's matcher: std::regex recurses on every character and dies of a long line.
Result<std::function<bool(std::string_view)>> compile_filter(const std::string& expression) {
  auto compiled = std::shared_ptr<regex_t>(new regex_t, [](regex_t* regex) {
    regfree(regex);
    delete regex;
  });
  *compiled = {};
  int failed = regcomp(compiled.get(), expression.c_str(), REG_EXTENDED);
  if (failed != 0) {
    char why[200];
    regerror(failed, compiled.get(), why, sizeof why);
    return Error{
        Code::InvalidArgument, fmt::format("--grep {}: {}", in_quotes(expression), why),
        "it is a regular expression as grep -E reads them; put \\ before . * ? + ( ) [ { |"};
  }
  return std::function<bool(std::string_view)>([compiled](std::string_view line) {
    // REG_STARTEND: the line needs no copy and may hold NUL bytes.
    regmatch_t range{0, static_cast<regoff_t>(line.size())};
    const char* text = line.data() == nullptr ? "" : line.data();
    return regexec(compiled.get(), text, 1, &range, REG_STARTEND) == 0;
  });
}

}  // namespace dtrain::cli
