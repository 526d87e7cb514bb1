#include "schema/problems.h"

#include <algorithm>

#include "schema/quote.h"

namespace dtrain {

namespace {

// More is a wall of text; hostile input could make millions.
constexpr size_t kShown = 50;
constexpr size_t kKept = 1000;

}  // namespace

int Problems::add_source(std::string_view argument) {
  const std::string shown = quoted(argument);
  sources_.push_back(shown.substr(1, shown.size() - 2));
  return static_cast<int>(sources_.size()) - 1;
}

void Problems::add(Place place, std::string_view path, std::string text) {
  if (problems_.size() < kKept) problems_.push_back({place, std::string(path), std::move(text)});
}

Error Problems::to_error(std::string hint) const {
  INVARIANT(!empty(), "there is something to report");
  std::vector<const Problem*> ordered;
  for (const Problem& problem : problems_) ordered.push_back(&problem);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Problem* a, const Problem* b) { return a->place < b->place; });
  std::string message;
  for (size_t i = 0; i < std::min(ordered.size(), kShown); ++i) {
    const Problem& problem = *ordered[i];
    if (i > 0) message += '\n';
    message += sources_[static_cast<size_t>(problem.place.source)];
    if (problem.place.source == 0 && problem.place.line > 0) {
      message += fmt::format(":{}:{}", problem.place.line, problem.place.column);
    }
    message += ": ";
    if (!problem.path.empty()) message += problem.path + ": ";
    message += problem.text;
  }
  if (ordered.size() > kShown) {
    message += fmt::format("\n{}: and {} more problems", sources_[0], ordered.size() - kShown);
  }
  return {Code::InvalidArgument, std::move(message), std::move(hint)};
}

}  // namespace dtrain
