#include "schema/ignore.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "schema/quote.h"

namespace dtrain {

namespace {

constexpr std::string_view kDefaults =
    "__pycache__/\n"
    "/runs/\n"
    "/output-[0-9]*/\n"
    "/checkout-[0-9]*/\n"
    "/wandb/\n";

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// The first part of a path, taken off it.
std::string_view take_part(std::string_view& path) {
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(std::min(part.size() + 1, path.size()));
  return part;
}

// Whether a glob of whole paths can match something that lies in the directory, or deeper.
bool may_match_below(std::string_view glob, std::string_view directory) {
  while (!directory.empty()) {
    const std::string_view part = take_part(glob);
    if (part == "**") return true;
    if (glob.empty() || !glob_matches(part, take_part(directory))) return false;
  }
  return !glob.empty();
}

}  // namespace

IgnoreRules::IgnoreRules() : defaults_(parse(Layer::Default, "", "", kDefaults)) {}

IgnoreRules::File IgnoreRules::parse(Layer layer, std::string name, std::string base,
                                     std::string_view text) {
  File file{layer, std::move(name), std::move(base), {}};
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (auto pattern = parse_ignore_line(text.substr(0, end), number)) {
      file.patterns.push_back(std::move(*pattern));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return file;
}

void IgnoreRules::add(Layer layer, std::string_view text) {
  if (layer == Layer::Git) return push("", text);
  File& file = layer == Layer::Riseml ? riseml_ : dtrain_;
  file = parse(layer, file.name, "", text);
}

void IgnoreRules::push(std::string_view directory, std::string_view text) {
  std::string base(directory);
  if (!base.empty()) base += '/';
  git_.push_back(parse(Layer::Git, base + ".gitignore", base, text));
}

IgnoreRules::Verdict IgnoreRules::last_match(const File& file, std::string_view path,
                                             bool is_directory) {
  const std::string_view relative = path.substr(file.base.size());
  const std::string_view name = name_of(path);
  for (auto pattern = file.patterns.rbegin(); pattern != file.patterns.rend(); ++pattern) {
    if (!pattern->matches(relative, name, is_directory)) continue;
    const auto kind = pattern->negated ? Verdict::Kind::Included : Verdict::Kind::Excluded;
    return {kind, file.layer, file.name, &*pattern};
  }
  return {};
}

IgnoreRules::Verdict IgnoreRules::decide(std::string_view path, bool is_directory) const {
  constexpr auto kUndecided = Verdict::Kind::Undecided;
  Verdict verdict = last_match(dtrain_, path, is_directory);
  if (verdict.kind == kUndecided) verdict = last_match(riseml_, path, is_directory);
  for (auto file = git_.rbegin(); file != git_.rend() && verdict.kind == kUndecided; ++file) {
    verdict = last_match(*file, path, is_directory);
  }
  if (verdict.kind == kUndecided) verdict = last_match(defaults_, path, is_directory);
  return verdict;
}

IgnoreRules::Verdict IgnoreRules::decide_below_excluded(std::string_view path,
                                                        bool is_directory) const {
  return last_match(dtrain_, path, is_directory);
}

bool IgnoreRules::takes_in_below(std::string_view directory) const {
  return std::any_of(dtrain_.patterns.begin(), dtrain_.patterns.end(), [&](const auto& pattern) {
    return pattern.negated && pattern.whole_path && may_match_below(pattern.glob, directory);
  });
}

std::string describe(const IgnoreRules::Verdict& verdict) {
  if (verdict.pattern == nullptr) return "";
  if (verdict.layer != IgnoreRules::Layer::Default) {
    return fmt::format("{}:{} {}", verdict.file, verdict.pattern->line,
                       in_quotes(verdict.pattern->text));
  }
  if (verdict.pattern->glob == "__pycache__") return "Python's bytecode cache";
  if (verdict.pattern->glob.starts_with("checkout-")) return "files of earlier runs";
  return verdict.pattern->glob == "wandb" ? "logs of earlier runs" : "outputs of earlier runs";
}

}  // namespace dtrain
