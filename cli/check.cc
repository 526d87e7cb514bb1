#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_data.h"
#include "cli/errors.h"
#include "cli/json_output.h"
#include "cli/roles_text.h"
#include "cli/spec_source.h"
#include "cli/spec_warnings.h"
#include "cli/terminal.h"
#include "cli/words.h"
#include "schema/spec.h"

namespace dtrain::cli {

namespace {

struct CheckOptions {
  std::string file;
  std::vector<std::string> parameters;
  std::vector<std::string> set;
  bool no_image = false;
};

// Data that `train` would not find is no mistake of the YAML's: it may lie where the training starts from.
std::vector<std::string> warnings_of(const Spec& spec, const std::filesystem::path& root) {
  std::vector<std::string> warnings = spec_warnings(spec);
  if (const Status data = check_engine_data(spec, root); !data.ok()) {
    warnings.push_back(fmt::format("{}; {}", data.error().message, data.error().hint));
  }
  return warnings;
}

Result<int> check(const CheckOptions& options, const CommandContext& context) {
  TRY(const SpecSource source, find_spec_file(options.file));
  ParseOptions parse;
  parse.file_name = source.file_name;
  TRY(parse.parameters, parse_assignments(options.parameters, "-p"));
  TRY(parse.set, parse_assignments(options.set, "--set"));
  if (options.no_image) parse.image = "";
  std::vector<Mistake> mistakes;
  std::vector<std::string> notes;
  parse.mistakes = &mistakes;
  parse.notes = &notes;
  parse.is_in_shell = is_in_shell;
  const auto parsed = parse_spec(source.yaml, parse);
  std::vector<std::string> warnings;
  if (parsed.ok()) warnings = warnings_of(*parsed, source.root);
  if (context.json) {
    // Mistakes are what was asked for, so they are facts and no error of this command.
    const Spec* const spec = parsed.ok() ? &parsed.value() : nullptr;
    fmt::print("{}", check_json(source.file_name, spec, mistakes, warnings, notes));
    return parsed.ok() ? 0 : exit_code_of(parsed.error());
  }
  if (!parsed.ok()) return parsed.error();
  const Spec& spec = parsed.value();
  std::string fine = fmt::format("{} is fine: {}, {}, {}{}", source.file_name, spec.project, to_string(spec.framework),
                                 roles_text(spec), spec.source.empty() ? "" : " (the first member)");
  if (spec.is_set()) fine += fmt::format(", a set of {}", human_count(spec.member_count(), "member"));
  fmt::print("{}\n", folded(fine, screen_of(STDOUT_FILENO).width));
  tell(notes);
  warn(warnings);
  return 0;
}

}  // namespace

Run declare_check(Options& options, CommandContext& context) {
  auto typed = std::make_shared<CheckOptions>();
  options.text("-f,--file,--config-file", typed->file, "left out: dtrain.yml, else riseml.yml",
               "FILE");
  options.list("-p,--parameter", typed->parameters, "a parameter's value, as for train",
               "NAME=VALUE");
  options.list("--set", typed->set, "override any key, as for train", "KEY=VALUE");
  options.flag("--no-image", typed->no_image, "without its image, as for train");
  options.json(context);
  return [typed, &context] { return check(*typed, context); };
}

}  // namespace dtrain::cli
