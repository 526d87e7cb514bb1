// What stays out of a snapshot, and why.
//
// Read in this order, the last word wins: the defaults below, .gitignore of the project and of each
// directory on the way down, .risemlignore, .dtrainignore (these two at the project's top only).
// All are written as .gitignore is; what one leaves out, a later one may take in again with '!'.
//
// By default __pycache__/ anywhere, runs/, wandb/ and what `dtrain output cp` makes (output-4/)
// at the top, virtual environments (directories with a pyvenv.cfg), and further down a runs/ of
// nothing but links to outputs, and keys to a daemon stay out. `.git` and a DTRAIN_HOME stay out whatever anyone says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/ignore_pattern.h"

namespace dtrain {

inline constexpr std::string_view kVirtualEnvMark = "pyvenv.cfg";

class IgnoreRules {
 public:
  enum class Layer { Default, Git, Riseml, Dtrain };

  struct Verdict {
    enum class Kind { Undecided, Included, Excluded };
    Kind kind = Kind::Undecided;
    Layer layer = Layer::Default;
    std::string_view file;                   // ".gitignore", "sub/.gitignore"
    const IgnorePattern* pattern = nullptr;  // of the rule that decided; valid until pop()
    bool excluded() const { return kind == Kind::Excluded; }
  };

  IgnoreRules();  // with the defaults

  // An ignore file at the project's top.
  void add(Layer layer, std::string_view text);
  // The .gitignore of the directory the walk enters; pop() when it leaves that.
  void push(std::string_view directory, std::string_view text);
  void pop() { git_.pop_back(); }

  // `path` is relative to the project. Its parents are taken to be in.
  Verdict decide(std::string_view path, bool is_directory) const;
  // The same for what lies in a directory that is out: only .dtrainignore can take it in again.
  Verdict decide_below_excluded(std::string_view path, bool is_directory) const;
  // Whether .dtrainignore names something below this directory, which is out, to be taken in again
  // ("!data/small.csv"): then it is walked nevertheless.
  bool takes_in_below(std::string_view directory) const;

 private:
  struct File {
    Layer layer;
    std::string name;
    std::string base;  // "" or "a/b/": what its patterns are relative to
    std::vector<IgnorePattern> patterns;
  };
  static File parse(Layer layer, std::string name, std::string base, std::string_view text);
  static Verdict last_match(const File& file, std::string_view path, bool is_directory);

  File defaults_;
  std::vector<File> git_;  // outermost first
  File riseml_{Layer::Riseml, ".risemlignore", "", {}};
  File dtrain_{Layer::Dtrain, ".dtrainignore", "", {}};
};

// ".gitignore:3 '*.o'", or for a default what it is about: "Python's bytecode cache".
std::string describe(const IgnoreRules::Verdict& verdict);

}  // namespace dtrain
