// dtrain export: an experiment as a file that other systems run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/errors.h"
#include "cli/looked_at.h"
#include "cli/new_file.h"
#include "cli/shown_spec.h"
#include "cli/spec_source.h"
#include "cli/words.h"
#include "schema/expand.h"
#include "schema/kubeflow_write.h"
#include "schema/quote.h"
#include "schema/shell_words.h"
#include "schema/slurm_script.h"
#include "schema/spec.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

struct ExportOptions {
  std::string id;
  std::string to;
  std::string file;
  std::string image;
  std::optional<std::string> output;
  std::vector<std::string> parameters;
  std::vector<std::string> settings;
};

Result<Spec> spec_of_file(const ExportOptions& options, std::vector<std::string>& notes) {
  TRY(const SpecSource source, find_spec_file(options.file));
  ParseOptions parsing;
  parsing.file_name = source.file_name;
  parsing.notes = &notes;
  parsing.is_in_shell = is_in_shell;
  TRY(parsing.parameters, parse_assignments(options.parameters, "-p"));
  TRY(parsing.set, parse_assignments(options.settings, "--set"));
  return parse_spec(source.yaml, parsing);
}

Result<Spec> spec_of_experiment(const ExportOptions& options, const CommandContext& context) {
  TRY(check_whole(options.id, "export --to " + options.to));
  if (!options.file.empty()) {
    return Error{Code::InvalidArgument, fmt::format("-f {}: experiment {} has a YAML of its own", options.file, options.id),
                 "leave out -f, or the ID"};
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::ShowReply shown, look_up(connection, options.id));
  TRY(ParseOptions parsing, parsing_of(shown, options.parameters, options.settings));
  TRY(Spec spec, parse_spec(shown.spec_yaml(), parsing));
  spec.suspend = begins_suspended(spec, parsing);
  return spec;
}

Status refuse_set(const Spec& spec, const ExportOptions& options) {
  if (!spec.is_set()) return ok();
  std::string values;
  for (const Parameter& parameter : spec.parameters) {
    if (parameter.values.size() > 1) values += fmt::format(" -p {}", shell_quoted(parameter.name + "=" + parameter.values.front()));
  }
  const std::string member = options.id.empty() ? "" : fmt::format("dtrain export {}.1 --to {}; or ", options.id, options.to);
  return Error{Code::InvalidArgument,
               fmt::format("{} is a set of {}, and what is exported is one experiment", options.id.empty() ? spec.project : options.id,
                           human_count(spec.member_count(), "member")),
               fmt::format("{}choose one value of each:{}", member, values)};
}

// What it has on the hosts besides, such as a python of its own, need not be taken out for it.
Result<Spec> with_image(Spec spec, const std::string& image, std::vector<std::string>& notes) {
  if (image.empty()) return spec;
  if (!kImage.accepts(image)) {
    return Error{Code::InvalidArgument, fmt::format("--image: got {}, expected {}", in_quotes(image), kImage.expected), ""};
  }
  if (const auto own = spec.images(); own.size() > 1) notes.push_back(fmt::format("all roles have {}; here they had {}", image, fmt::join(own, ", ")));
  spec.image = image;
  for (RoleSpec& role : spec.roles) role.image.clear();
  return spec;
}

Result<int> export_spec(const ExportOptions& options, const CommandContext& context) {
  if (options.to.empty()) {
    return Error{Code::InvalidArgument, "--to is missing: which system is it for?", "dtrain export --to kubeflow, or --to slurm"};
  }
  if (options.output && options.output->empty()) {
    return Error{Code::InvalidArgument, "-o: the name of the file is empty", "-o FILE, or -o - for standard output"};
  }
  std::vector<std::string> notes;
  if (options.to == "slurm" && !options.image.empty()) {
    return Error{Code::InvalidArgument, "--image: a batch script of Slurm runs on the nodes themselves", "leave it out"};
  }
  const auto read = options.id.empty() ? spec_of_file(options, notes) : spec_of_experiment(options, context);
  TRY(const Spec spec, read);
  TRY(refuse_set(spec, options));
  TRY(const Spec one, with_image(member_spec(spec, 1), options.image, notes));
  const bool to_slurm = options.to == "slurm";
  TRY(const Exported exported, to_slurm ? slurm_script(one) : kubeflow_manifest(one));
  for (const LeftOut& lost : exported.left_out) notes.push_back(fmt::format("left out: {}; {}", lost.key, lost.why));
  notes.insert(notes.end(), exported.notes.begin(), exported.notes.end());
  const std::string file = options.output.value_or("-");
  if (file == "-") {
    fmt::print("{}", exported.text);
  } else {
    TRY(write_new_file(file, exported.text, 0666, "-o another name, or remove it first"));
    fmt::print("Wrote {}. Next: {} {}\n", file, to_slurm ? "sbatch" : "kubectl create -f", shell_quoted(file));
  }
  tell(notes);
  return 0;
}

}  // namespace

Run declare_export(Options& options, CommandContext& context) {
  auto typed = std::make_shared<ExportOptions>();
  options.id(typed->id, "experiment or member; left out: the dtrain.yml of this directory");
  options.choice("--to", typed->to, {"kubeflow", "slurm"}, "the system that is to run it");
  options.text("--image", typed->image, "what it runs in there, instead of its own", "NAME");
  options.text("-o,--output", typed->output, "write this file; left out, or -: standard output", "FILE");
  options.text("-f,--file,--config-file", typed->file, "left out: dtrain.yml, else riseml.yml", "FILE");
  options.list("-p,--parameter", typed->parameters, "a parameter's value, as for train", "NAME=VALUE");
  options.list("--set", typed->settings, "override any key, as for train", "KEY=VALUE");
  options.footer("dtrain export --to kubeflow --image registry.example/mnist:1 | kubectl create -f -");
  return [typed, &context] { return export_spec(*typed, context); };
}

}  // namespace dtrain::cli
