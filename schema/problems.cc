#include "schema/problems.h"

#include <algorithm>

#include "schema/quote.h"

namespace dtrain {

namespace {

// More is a wall of text; hostile input could make millions.
constexpr size_t kProblemsShown = 50;
constexpr size_t kKept = 1000;

}  // namespace

Error joined(std::vector<Error> errors) {
  INVARIANT(!errors.empty(), "there is something to report");
  Error all = std::move(errors.front());
  for (size_t i = 1; i < errors.size(); ++i) {
    all.message += "; " + errors[i].message;
    if (all.hint.empty()) all.hint = std::move(errors[i].hint);
  }
  return all;
}

int Problems::add_source(std::string_view argument) {
  const std::string shown = in_quotes(argument);
  sources_.push_back(shown.substr(1, shown.size() - 2));
  return static_cast<int>(sources_.size()) - 1;
}

void Problems::add(Place place, std::string_view path, std::string text) {
  if (problems_.size() < kKept) problems_.push_back({place, std::string(path), std::move(text)});
}

std::vector<const Problems::Problem*> Problems::in_order() const {
  std::vector<const Problem*> ordered;
  for (const Problem& problem : problems_) ordered.push_back(&problem);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Problem* a, const Problem* b) { return a->place < b->place; });
  return ordered;
}

std::vector<Mistake> Problems::mistakes() const {
  std::vector<Mistake> mistakes;
  for (const Problem* problem : in_order()) {
    Mistake mistake{sources_[static_cast<size_t>(problem->place.source)], 0, 0, problem->text, ""};
    if (has_lines_ && problem->place.source == 0) {
      mistake.line = problem->place.line;
      mistake.column = problem->place.column;
    }
    // What to do comes last; a quoted value before it may have a semicolon of its own.
    const size_t todo = problem->text.rfind("; ");
    const auto quotes = std::count(
        problem->text.begin(),
        problem->text.begin() + static_cast<ptrdiff_t>(std::min(todo, problem->text.size())), '\'');
    if (todo != std::string::npos && quotes % 2 == 0) {
      mistake.hint = problem->text.substr(todo + 2);
      mistake.message.resize(todo);
    }
    if (!problem->path.empty()) mistake.message = problem->path + ": " + mistake.message;
    mistakes.push_back(std::move(mistake));
  }
  return mistakes;
}

Error Problems::to_error(std::string hint) const {
  INVARIANT(!empty(), "there is something to report");
  const std::vector<const Problem*> ordered = in_order();
  std::string message;
  for (size_t i = 0; i < std::min(ordered.size(), kProblemsShown); ++i) {
    const Problem& problem = *ordered[i];
    if (i > 0) message += '\n';
    message += sources_[static_cast<size_t>(problem.place.source)];
    if (has_lines_ && problem.place.source == 0 && problem.place.line > 0) {
      message += fmt::format(":{}:{}", problem.place.line, problem.place.column);
    }
    message += ": ";
    if (!problem.path.empty()) message += problem.path + ": ";
    message += problem.text;
  }
  if (ordered.size() > kProblemsShown) {
    message += fmt::format("\n{}: and {} more problems", sources_[0], ordered.size() - kProblemsShown);
  }
  return {Code::InvalidArgument, std::move(message), std::move(hint)};
}

}  // namespace dtrain
