#include "schema/line_pattern.h"

#include <re2/re2.h>

#include "schema/quote.h"

namespace dtrain {

namespace {

constexpr int64_t kMemoryMaxBytes = 1 << 20;  // of the compiled form and its caches
constexpr size_t kPatternMaxBytes = 1000;

RE2::Options options() {
  RE2::Options chosen;
  chosen.set_log_errors(false);
  chosen.set_max_mem(kMemoryMaxBytes);
  return chosen;
}

}  // namespace

LinePattern::LinePattern(std::unique_ptr<re2::RE2> compiled) : compiled_(std::move(compiled)) {}
LinePattern::LinePattern(LinePattern&&) noexcept = default;
LinePattern& LinePattern::operator=(LinePattern&&) noexcept = default;
LinePattern::~LinePattern() = default;

Result<LinePattern> LinePattern::compile(std::string_view text) {
  if (text.size() > kPatternMaxBytes) {
    return Error{Code::InvalidArgument,
                 fmt::format("a regular expression has at most {} characters", kPatternMaxBytes),
                 ""};
  }
  auto compiled = std::make_unique<RE2>(re2::StringPiece(text.data(), text.size()), options());
  if (!compiled->ok()) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is no regular expression: {}", in_quotes(text), compiled->error()),
                 ""};
  }
  return LinePattern(std::move(compiled));
}

Result<LinePattern> LinePattern::compile_any(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "(?:" : "|(?:") + text + ")";
  auto compiled = std::make_unique<RE2>(re2::StringPiece(all.data(), all.size()), options());
  if (!compiled->ok()) return Error{Code::InvalidArgument, compiled->error(), ""};
  return LinePattern(std::move(compiled));
}

std::optional<size_t> LinePattern::place_in(std::string_view line) const {
  re2::StringPiece found;
  const re2::StringPiece text(line.data(), line.size());
  if (!compiled_->Match(text, 0, line.size(), RE2::UNANCHORED, &found, 1)) return std::nullopt;
  return static_cast<size_t>(found.data() - line.data());
}

int LinePattern::groups() const { return compiled_->NumberOfCapturingGroups(); }

bool LinePattern::is_in(std::string_view line) const {
  const re2::StringPiece text(line.data(), line.size());
  return compiled_->Match(text, 0, line.size(), RE2::UNANCHORED, nullptr, 0);
}

std::optional<std::string_view> LinePattern::find(std::string_view line, size_t& at) const {
  const int group = compiled_->NumberOfCapturingGroups();
  re2::StringPiece found[2];
  const re2::StringPiece text(line.data(), line.size());
  if (at > line.size() ||
      !compiled_->Match(text, at, line.size(), RE2::UNANCHORED, found, group + 1)) {
    return std::nullopt;
  }
  const auto end = static_cast<size_t>(found[0].data() - line.data()) + found[0].size();
  at = found[0].empty() ? end + 1 : end;  // so that a match of nothing is not found for ever
  const re2::StringPiece& value = found[group];
  return value.data() == nullptr ? std::string_view()
                                 : std::string_view(value.data(), value.size());
}

}  // namespace dtrain
