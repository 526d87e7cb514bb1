#include "schema/kubeflow_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "schema/mounts.h"
#include "schema/run_script.h"
#include "schema/shell_words.h"
#include "schema/spec_read.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

using KnownNames = std::set<std::string, std::less<>>;

// Words of a line that a shell takes as they are, but for quotes and "${NAME}" in double ones.
class WordReader {
 public:
  WordReader(std::string_view line, const KnownNames& known) : left_(line), known_(known) {}

  std::optional<std::vector<std::string>> words() {
    while (!left_.empty()) {
      const char c = take();
      const bool is_good = c == ' ' || c == '\t' ? end_word() : c == '\'' ? single() : c == '"' ? in_double() : bare(c);
      if (!is_good) return std::nullopt;
    }
    end_word();
    return std::move(words_);
  }
  const std::set<std::string>& referred() const { return referred_; }

 private:
  char take() {
    const char c = left_.front();
    left_.remove_prefix(1);
    return c;
  }
  bool end_word() {
    if (begun_) words_.push_back(std::move(word_) + kubernetes_text(text_));
    word_.clear();
    text_.clear();
    begun_ = false;
    return true;
  }
  bool single() {
    const size_t end = left_.find('\'');
    if (end == std::string_view::npos) return false;
    text_ += left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return begun_ = true;
  }
  bool in_double() {
    begun_ = true;
    while (!left_.empty()) {
      const char c = take();
      if (c == '"') return true;
      if (c == '\\' || c == '`' || (c == '$' && !reference())) return false;
      if (c != '$') text_ += c;
    }
    return false;
  }
  bool reference() {
    const size_t end = left_.find('}');
    if (!left_.starts_with('{') || end == std::string_view::npos) return false;
    const std::string_view name = left_.substr(1, end - 1);
    if (known_.find(name) == known_.end()) return false;
    // A "$" before it is doubled, too.
    word_ += kubernetes_text(text_ + "$");
    word_ += fmt::format("({})", name);
    referred_.emplace(name);
    text_.clear();
    left_.remove_prefix(end + 1);
    return true;
  }
  bool bare(char c) {
    if (c == '\\') {
      if (left_.empty() || left_.front() == '\n') return false;
      c = take();
    } else {
      constexpr std::string_view kHarmless = "_./:=,@%+-^";
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      const bool is_other = static_cast<unsigned char>(c) >= 0x80 || kHarmless.find(c) != std::string_view::npos;
      if (!is_letter && !is_other) return false;
    }
    text_ += c;
    return begun_ = true;
  }

  std::string_view left_;
  const KnownNames& known_;
  std::vector<std::string> words_;
  std::string word_;  // what is finished of the word, as Kubernetes has it
  std::string text_;  // what follows of it, as it is
  std::set<std::string> referred_;
  bool begun_ = false;
};

// One word, as it is: what refers to nothing.
std::optional<std::string> plain_word(std::string_view text) {
  const auto words = WordReader(text, {}).words();
  if (!words || words->size() != 1 || kubernetes_text(words->front()) != words->front()) return std::nullopt;
  return words->front();
}

constexpr std::string_view kLabel = "metadata.labels['training.kubeflow.org/";

// The field of a pod that such a word stands for; empty: none. A word without a variable of a shell is a text, also where
// it happens to be the job's name.
std::string field_of_word(std::string_view word, const PodNames& names) {
  if (word.find('$') == std::string_view::npos) return "";
  std::vector<std::string> fields{"metadata.name", "metadata.uid", "spec.nodeName", "status.podIP"};
  for (const char* label : {"job-name", "replica-type", "replica-index"}) fields.push_back(fmt::format("{}{}']", kLabel, label));
  const auto found = std::ranges::find_if(fields, [&](const std::string& field) { return word_of_field(field, names) == word; });
  return found == fields.end() ? "" : *found;
}

class CommandReader {
 public:
  CommandReader(std::vector<std::string> run, ContainerSide side) : lines_(std::move(run)), side_(std::move(side)) {}

  ContainerCommand command() {
    while (at_ < lines_.size() && (take_export() || take_unset())) ++at_;
    take_directories();
    if (out_.directory.empty()) forget_begin();
    put_command();
    return std::move(out_);
  }

 private:
  // A container has one variable of a name, and knows those that stand before it: what becomes another one, or is made of
  // what Kubeflow adds in the end, is for a shell.
  bool take_export() {
    constexpr std::string_view kExport = "export ";
    const std::string_view line = lines_[at_];
    const size_t equals = line.find('=');
    if (!line.starts_with(kExport) || equals == std::string_view::npos) return false;
    const std::string name(line.substr(kExport.size(), equals - kExport.size()));
    const std::string_view value = line.substr(equals + 1);
    if (!kEnvName.accepts(name) || is_set_by_us(name, side_.framework, nullptr) || settled_.contains(name)) return false;
    ContainerEnv entry{name, "", field_of_word(value, side_.names)};
    if (entry.field.empty()) {
      WordReader reader(value, side_.variables);
      const auto words = reader.words();
      if (!words || words->size() > 1 || reader.referred().contains(name)) return false;
      if (!words->empty()) entry.value = words->front();
      settled_.insert(reader.referred().begin(), reader.referred().end());
    }
    out_.env.push_back(std::move(entry));
    settled_.insert(name);
    side_.variables.insert(name);
    return true;
  }
  // What else is unset may be of the image, which only a shell takes away.
  bool take_unset() {
    const std::string& line = lines_[at_];
    if (!line.starts_with("unset ")) return false;
    const std::string name = line.substr(6);
    if (settled_.contains(name) || side_.variables.erase(name) == 0) return false;
    out_.unset.push_back(name);
    return true;
  }

  // Directories are made anew, and one is gone to, in lines as a manifest's own come to be; what else makes directories
  // means those of the image.
  void take_directories() {
    size_t at = at_;
    std::vector<std::string> made;
    for (; at < lines_.size() && lines_[at].starts_with("mkdir -p /"); ++at) {
      const auto path = plain_word(std::string_view(lines_[at]).substr(9));
      if (!path || !parse_mount(*path)) break;
      made.push_back(*path);
    }
    if (at == lines_.size()) return;
    const std::string& line = lines_[at];
    if (line != kIntoImageDirectory) {
      constexpr std::string_view kMake = "mkdir -p ", kThenGo = " && cd ";
      const size_t then = line.find(kThenGo);
      if (!line.starts_with(kMake) || then == std::string::npos) return;
      const std::string_view path = std::string_view(line).substr(kMake.size(), then - kMake.size());
      const auto directory = plain_word(path);
      if (!directory || !directory->starts_with('/') || line.substr(then + kThenGo.size()) != path) return;
      out_.directory = *directory;
    }
    out_.empty_directories = std::move(made);
    at_ = at + 1;
  }

  // The image's directory is where it begins, also after lines that stay a shell's and lead nowhere else.
  void forget_begin() {
    const auto stays = [](const std::string& line) {
      const bool is_alone = line.find_first_of(";&|\n") == line.npos;
      return is_alone && (line.starts_with("export ") || line.starts_with("unset ") || line.starts_with("mkdir -p "));
    };
    const auto first = std::find_if_not(lines_.begin() + static_cast<std::ptrdiff_t>(at_), lines_.end(), stays);
    if (first != lines_.end() && *first == kIntoImageDirectory) lines_.erase(first);
  }

  void put_command() {
    lines_.erase(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(at_));
    if (lines_.size() == 1) {
      side_.variables.merge(side_.told);
      std::vector<std::string> words = kubernetes_words(lines_[0], side_.variables);
      if (!words.empty() && words.front() == kImageEntrypoint) {
        out_.arguments.assign(words.begin() + 1, words.end());
        return;
      }
      if (words == std::vector<std::string>{kImageCommand}) return;
      out_.command = std::move(words);
    }
    if (out_.command.empty()) out_.command = {"/bin/sh", "-c", kubernetes_text(run_script(lines_))};
  }

  std::vector<std::string> lines_;
  ContainerSide side_;
  std::set<std::string> settled_;  // what has been set, or referred to
  size_t at_ = 0;
  ContainerCommand out_;
};

}  // namespace

std::string kubernetes_text(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    out += text[at];
    if (text[at] != '$' || at + 1 == text.size()) continue;
    if (text[at + 1] == '$' || text[at + 1] == '(') out += '$';
  }
  return out;
}

std::vector<std::string> kubernetes_words(std::string_view line, const std::set<std::string, std::less<>>& known) {
  auto words = WordReader(line, known).words();
  if (!words || words->empty()) return {};
  if (words->size() > 1 && words->front() == "exec" && is_shells_own((*words)[1])) {
    words->erase(words->begin());
    return std::move(*words);
  }
  return is_shells_own(words->front()) ? std::vector<std::string>() : std::move(*words);
}

ContainerCommand container_command(std::vector<std::string> run, ContainerSide side) {
  return CommandReader(std::move(run), std::move(side)).command();
}

}  // namespace dtrain
