// Options and parse_command: the one file that knows CLI11.
#include <CLI/CLI.hpp>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <type_traits>

#include "cli/command.h"
#include "cli/kubeflow_names.h"
#include "cli/terminal.h"
#include "schema/shell_words.h"
#include "schema/suggest.h"

namespace dtrain::cli {

namespace {

// Refuses text that from_chars doesn't read as a whole T, in our words.
template <typename T>
CLI::Validator must_read(const char* what) {
  return CLI::Validator(
      [what](std::string& text) {
        T value{};
        const char* end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        if (read.ec == std::errc() && read.ptr == end) return std::string();
        const bool is_number = read.ptr == end && read.ec == std::errc::result_out_of_range;
        if (is_number) return fmt::format("'{}' is {}", text, std::is_integral_v<T> ? "too large" : "out of range");
        if (std::is_unsigned_v<T> && text.size() > 1 && text[0] == '-' && text.find_first_not_of("0123456789", 1) == text.npos) {
          return fmt::format("'{}' is less than 0", text);
        }
        return fmt::format("'{}' is not {}", text, what);
      },
      "");
}

bool is_shown(const CLI::Option& option) {
  return !option.get_group().empty();
}

bool is_positional(const CLI::Option& option) {
  return option.nonpositional() == false;
}

// "-f, --file FILE" for an option, "ID" or "[ID]..." for a positional.
std::string usage_of(const CLI::Option& option) {
  std::string text;
  for (const std::string& name : option.get_snames()) text += fmt::format("-{}", name);
  for (const std::string& name : option.get_lnames()) {
    text += fmt::format("{}--{}", text.empty() ? "    " : ", ", name);
  }
  const std::string placeholder = option.get_type_name();
  if (placeholder.empty()) return text;   // a flag
  const bool may_stand_alone = option.get_items_expected_min() == 0;
  return fmt::format(fmt::runtime(may_stand_alone ? "{} [{}]" : "{} {}"), text, placeholder);
}

std::string positional_usage(const CLI::Option& option) {
  const std::string dots = option.get_items_expected_max() > 1 ? "..." : "";
  const std::string name = option.get_name(true) + dots;
  return option.get_required() ? name : "[" + name + "]";
}

void append_rows(std::string& out, const std::string& heading,
                 const std::vector<std::pair<std::string, std::string>>& rows, size_t width) {
  constexpr size_t kHelpColumn = 28, kNarrow = 60;
  const size_t column = width == 0 || width >= kNarrow ? kHelpColumn : 8;
  if (rows.empty()) return;
  out += "\n" + heading + "\n";
  for (const auto& [left, right] : rows) {
    const std::string help = wrapped(right, width, column);
    // A long left side pushes its help to the next line, so that the others stay in one column.
    if (left.size() + 4 > column) {
      out += fmt::format("  {}\n{:{}}{}\n", left, "", column, help);
    } else {
      out += fmt::format("  {:<{}}{}\n", left, column - 2, help);
    }
  }
}

// "--cpus: 1 required N missing" is CLI11's way to say that a value is missing.
std::string in_our_words(const std::string& message) {
  const size_t colon = message.find(": ");
  const bool no_value = colon != std::string::npos && message.ends_with(" missing") &&
                        message.find(" required ", colon) != std::string::npos;
  return no_value ? message.substr(0, colon) + " takes a value" : message;
}

bool is_yaml_name(std::string_view word) {
  return word.ends_with(".yml") || word.ends_with(".yaml");
}

}  // namespace

// One line as typed, from declaration to the Run it asks for.
class CommandLine {
 public:
  CommandLine(const Command& command, CommandContext& context)
      : app_(std::string(command.summary), "dtrain " + std::string(command.name)), options_(app_), context_(context) {
    prepare(app_);
    run_ = command.declare(options_, context);
  }

  Result<Run> parse(std::vector<std::string> words) {
    std::vector<std::string> rest;
    if (options_.rest_.words != nullptr) {
      const auto dashes = std::find(words.begin(), words.end(), "--");
      if (dashes != words.end()) {
        rest.assign(dashes + 1, words.end());
        words.erase(dashes, words.end());
      }
    }
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
    try {
      app_.parse(words);
    } catch (const CLI::CallForHelp&) {
      return help_run();
    } catch (const CLI::ParseError& error) {
      return refusal(in_our_words(error.what()));
    }
    if (options_.rest_.words != nullptr) *options_.rest_.words = std::move(rest);
    TRY(refuse_extras());
    TRY(refuse_empty());
    for (const Options* at = &options_; at != nullptr; at = chosen(*at)) {
      for (const auto& step : at->after_parse_) step();
    }
    TRY(Run run, chosen_run());
    const Options* const sub = chosen(options_);
    return run_with_ids(std::move(run), sub == nullptr ? options_ : *sub);
  }

  std::vector<std::string> words() const {
    std::vector<std::string> words;
    collect_words(app_, words);
    for (const auto& sub : options_.subcommands_) {
      words.push_back(sub.app->get_name());
      collect_words(*sub.app, words);
    }
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    return words;
  }

  std::vector<std::string> values(const std::string& name) const {
    for (const auto& [option, words] : options_.offered_) {
      if (option->check_name(name)) return words;
    }
    return {};
  }

  static void prepare(CLI::App& app) {
    app.set_help_flag("-h,--help", "show this");
    app.allow_extras();  // refuse_extras says it better, with a suggestion
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }

 private:
  static void collect_words(const CLI::App& app, std::vector<std::string>& words) {
    for (const CLI::Option* option : app.get_options()) {
      if (!is_shown(*option)) continue;
      for (const std::string& name : option->get_snames()) words.push_back("-" + name);
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    }
  }

  Run run_with_ids(Run run, const Options& options) const {
    if (options.ids_.empty() && options.id_lists_.empty()) return run;
    return [run = std::move(run), ids = options.ids_, lists = options.id_lists_, &context = context_]() -> Result<int> {
      for (std::string* id : ids) TRY(replace_names(*id, context));
      for (std::vector<std::string>* list : lists) {
        for (std::string& id : *list) TRY(replace_names(id, context));
      }
      return run();
    };
  }

  static const Options* chosen(const Options& options) {
    for (const auto& sub : options.subcommands_) {
      if (sub.app->parsed()) return sub.options.get();
    }
    return nullptr;
  }

  // The innermost command that was typed.
  const CLI::App& innermost() const {
    const CLI::App* at = &app_;
    for (const auto& sub : options_.subcommands_) {
      if (sub.app->parsed()) at = sub.app;
    }
    return *at;
  }

  std::string path_of(const CLI::App& app) const {
    return &app == &app_ ? app_.get_name() : app_.get_name() + " " + app.get_name();
  }

  Error refusal(std::string message) const {
    const std::string path = path_of(innermost());
    // CLI11 ends some of its sentences with a dot or a line break.
    while (!message.empty() && (message.back() == '\n' || message.back() == '.'))
      message.pop_back();
    return {Code::InvalidArgument, fmt::format("{}: {}", path.substr(7), message),
            fmt::format("{} --help lists what it takes", path)};
  }

  Status refuse_extras() const {
    const std::vector<std::string> extras = app_.remaining(true);
    if (extras.empty()) return ok();
    const std::string& word = extras.front();
    std::vector<std::string> known;
    collect_words(innermost(), known);
    const bool wants_subcommand = !options_.subcommands_.empty() && &innermost() == &app_;
    if (wants_subcommand) {
      for (const auto& sub : options_.subcommands_) known.push_back(sub.app->get_name());
    }
    std::string what = fmt::format("'{}' does not belong here", word);
    if (wants_subcommand) what = fmt::format("'{}' is none of {}", word, subcommand_names());
    if (word.starts_with("-")) what = fmt::format("there is no option '{}'", word);
    Error error = refusal(std::move(what));
    // One letter is as near to any other, and in a word that is no option it is none.
    if (!word.starts_with("-")) std::erase_if(known, [](const std::string& name) { return name.size() == 2 && name[0] == '-'; });
    const bool is_letter = word.size() == 2 && word.starts_with("-");
    const std::string_view meant =
        is_letter ? std::string_view() : nearest(word, {known.begin(), known.end()});
    const bool takes_file = std::find(known.begin(), known.end(), "--file") != known.end();
    if (takes_file && is_yaml_name(word)) {
      error.message += fmt::format("; did you mean '-f {}'?", word);
    } else if (!meant.empty()) {
      error.message += fmt::format("; did you mean '{}'?", meant);
    } else if (options_.rest_.words != nullptr && !word.starts_with("-")) {
      std::string command;
      for (const std::string& extra : extras) command += " " + shell_quoted(extra);
      error.hint = fmt::format("a command goes after --: {}{} --{}", path_of(app_), typed_positionals(), command);
    }
    return error;
  }

  // An ID that a script left empty is a mistake of the script, and does not mean the newest.
  Status refuse_empty() const {
    for (const CLI::Option* option : innermost().get_options()) {
      const auto& words = option->results();
      if (!is_positional(*option) || std::find(words.begin(), words.end(), "") == words.end()) {
        continue;
      }
      Error error = refusal(fmt::format("{} is empty", option->get_name(true)));
      error.hint = option->get_description();
      return error;
    }
    return ok();
  }

  std::string typed_positionals() const {
    std::string text;
    for (const CLI::Option* option : innermost().get_options()) {
      if (!is_positional(*option)) continue;
      for (const std::string& word : option->results()) text += " " + word;
    }
    return text;
  }

  std::string subcommand_names() const {
    std::string names;
    for (const auto& sub : options_.subcommands_) {
      names += (names.empty() ? "" : ", ") + sub.app->get_name();
    }
    return names;
  }

  Result<Run> chosen_run() const {
    if (options_.subcommands_.empty()) return run_;
    for (const auto& sub : options_.subcommands_) {
      if (sub.app->parsed()) return sub.run;
    }
    if (run_) return run_;
    return refusal("say what to do: " + subcommand_names());
  }

  Run help_run() const {
    return [text = help(screen_of(STDOUT_FILENO).width)]() -> Result<int> {
      std::fputs(text.c_str(), stdout);
      return 0;
    };
  }

  std::string help(size_t width) const {
    const CLI::App& app = innermost();
    const bool outer = &app == &app_;
    std::string usage = "usage: " + path_of(app);
    std::vector<std::pair<std::string, std::string>> commands, positionals, rows;
    if (outer) {
      for (const auto& sub : options_.subcommands_) {
        commands.emplace_back(sub.app->get_name(), sub.app->get_description());
      }
    }
    for (const CLI::Option* option : app.get_options()) {
      if (!is_shown(*option)) continue;
      if (is_positional(*option)) {
        positionals.emplace_back(option->get_name(true), option->get_description());
      } else {
        rows.emplace_back(usage_of(*option), option->get_description());
      }
    }
    if (!commands.empty()) usage += " COMMAND";
    if (!rows.empty()) usage += " [options]";
    for (const CLI::Option* option : app.get_options()) {
      if (is_positional(*option)) usage += " " + positional_usage(*option);
    }
    if (outer && options_.rest_.words != nullptr) {
      usage += fmt::format(" [-- {}]", options_.rest_.placeholder);
      positionals.emplace_back(options_.rest_.placeholder, options_.rest_.help);
    }
    std::string text = fmt::format("{}\n{}\n", wrapped(usage, width, 0), wrapped(app.get_description(), width, 0));
    append_rows(text, "Commands", commands, width);
    append_rows(text, "Arguments", positionals, width);
    append_rows(text, "Options", rows, width);
    if (!app.get_footer().empty()) text += "\n" + folded(app.get_footer(), width) + "\n";
    return text;
  }

  CLI::App app_;
  Options options_;
  const CommandContext& context_;
  Run run_;
};

void Options::flag(const std::string& names, bool& value, const std::string& help) {
  app_.add_flag(names, value, help);
}

void Options::foreign_flag(const std::string& names) {
  app_.add_flag(names)->group("");
}

void Options::text(const std::string& names, std::string& value, const std::string& help,
                   const std::string& placeholder) {
  app_.add_option(names, value, help)->type_name(placeholder);
}

void Options::text(const std::string& names, std::optional<std::string>& value, const std::string& help,
                   const std::string& placeholder) {
  app_.add_option_function<std::string>(names, [&value](const std::string& given) { value = given; }, help)->type_name(placeholder);
}

void Options::number(const std::string& names, uint64_t& value, const std::string& help,
                     const std::string& placeholder) {
  app_.add_option(names, value, help)
      ->check(must_read<uint64_t>("a whole number"))
      ->type_name(placeholder);
}

void Options::real(const std::string& names, double& value, const std::string& help,
                   const std::string& placeholder) {
  app_.add_option(names, value, help)->check(must_read<double>("a number"))->type_name(placeholder);
}

void Options::list(const std::string& names, std::vector<std::string>& values,
                   const std::string& help, const std::string& placeholder) {
  app_.add_option(names, values, help)
      ->type_name(placeholder)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Options::choice(const std::string& names, std::string& value,
                     const std::vector<std::string>& words, const std::string& help) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : "|") + word;
  CLI::Option* option = app_.add_option(names, value, help);
  offered_.emplace_back(option, words);
  option
      ->check(CLI::Validator(
          [words, all](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            return fmt::format("'{}' is none of {}", text, all);
          },
          ""))
      ->type_name(all);
}

void Options::offer(const std::string& name, std::vector<std::string> words) {
  offered_.emplace_back(app_.get_option(name), std::move(words));
}

void Options::optional_text(const std::string& names, bool& given, std::string& value,
                            const std::string& help, const std::string& placeholder) {
  CLI::Option* option = app_.add_option(names, value, help)->type_name(placeholder)->expected(0, 1);
  after_parse_.push_back([option, &given] { given = option->count() > 0; });
}

void Options::positional(const std::string& name, std::string& value, const std::string& help,
                         bool required) {
  app_.add_option(name, value, help)->type_name("")->required(required);
}

void Options::positionals(const std::string& name, std::vector<std::string>& values,
                          const std::string& help, bool required) {
  app_.add_option(name, values, help)
      ->type_name("")
      ->required(required)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void Options::id(std::string& value, const std::string& help, bool required) {
  positional("ID", value, help, required);
  ids_.push_back(&value);
}

void Options::ids(std::vector<std::string>& values, const std::string& help, bool required) {
  positionals("ID", values, help, required);
  id_lists_.push_back(&values);
}

void Options::id_list(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  list(name, values, help, "ID,...");
  id_lists_.push_back(&values);
}

void Options::rest(std::vector<std::string>& words, const std::string& placeholder,
                   const std::string& help) {
  rest_ = {&words, placeholder, help};
}

void Options::json(CommandContext& context) {
  flag("--json", context.json, "facts as JSON on stdout, errors as JSON on stderr");
}

void Options::footer(const std::string& text) {
  app_.footer(text);
}

void Options::subcommand(const std::string& name, const std::string& summary,
                         const std::function<Run(Options&)>& declare) {
  CLI::App* app = app_.add_subcommand(name, summary);
  CommandLine::prepare(*app);
  auto options = std::make_unique<Options>(*app);
  Run run = declare(*options);
  subcommands_.push_back({app, std::move(options), std::move(run)});
}

Result<Run> parse_command(const Command& command, CommandContext& context,
                          std::vector<std::string> words) {
  // The Run may look at the options' variables only; CLI11's objects are gone by then.
  CommandLine line(command, context);
  return line.parse(std::move(words));
}

std::vector<std::string> completion_words(const Command& command) {
  CommandContext context;
  return CommandLine(command, context).words();
}

std::vector<std::string> completion_values(const Command& command, const std::string& option) {
  CommandContext context;
  return CommandLine(command, context).values(option);
}

}  // namespace dtrain::cli
