// Everything wrong with one text, so that a person fixes it in one go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain {

// Where something was written: in the file (source 0) or in an argument that overrides it. Lines
// and columns start at 1; line 0 is the text as a whole.
struct Place {
  int source = 0;
  int line = 0;
  int column = 0;
  auto operator<=>(const Place&) const = default;
};

// One problem as facts. Line and column are 0 where there are none: of an argument, of a whole
// file.
struct Mistake {
  std::string file;  // or the argument: "--set train.resources.gpus=x"
  int line = 0;
  int column = 0;
  std::string message;
  std::string hint;  // what to do; may be empty
  bool operator==(const Mistake&) const = default;
};

// How a hint begins that is about too many GPUs.
inline constexpr std::string_view kFewerGpus = "ask for fewer `gpus`";

// Several errors, at least one, as one: the messages in a row, the first code and hint there is.
Error joined(std::vector<Error> errors);

class Problems {
 public:
  // has_lines: a person can look at the text, so that its lines mean something.
  explicit Problems(std::string file_name, bool has_lines = true)
      : has_lines_(has_lines), sources_{std::move(file_name)} {}

  // An argument such as "--set train.resources.gpus=2"; the result goes into Place::source.
  int add_source(std::string_view argument);

  // `text` says what and what was expected, and may end with "; what to do".
  void add(Place place, std::string_view path, std::string text);

  bool empty() const { return problems_.empty(); }
  size_t size() const { return problems_.size(); }

  // Not empty(). The lines in file order, at most fifty; code InvalidArgument.
  Error to_error(std::string hint) const;
  // All that were kept, in the same order.
  std::vector<Mistake> mistakes() const;

 private:
  struct Problem {
    Place place;
    std::string path;
    std::string text;
  };
  std::vector<const Problem*> in_order() const;

  bool has_lines_;
  std::vector<std::string> sources_;
  std::vector<Problem> problems_;
};

}  // namespace dtrain
