#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/new_file.h"
#include "cli/remote.h"
#include "cli/spec_source.h"
#include "cli/words.h"
#include "schema/quote.h"
#include "schema/shell_words.h"
#include "schema/spec.h"

namespace dtrain::cli {

namespace {

struct InitOptions {
  std::string file = "dtrain.yml";
  std::string project;
};

Result<int> init(const InitOptions& options) {
  std::string project = options.project;
  if (project.empty()) {
    std::error_code failed;
    const auto here = std::filesystem::current_path(failed);
    if (failed) {
      return Error{Code::NotFound, "the current directory is gone",
                   "cd to a directory that exists"};
    }
    project = project_name_of(here);
  }
  const std::string yaml = starter_yaml(project);
  ParseOptions parse;
  parse.file_name = options.file;
  if (auto spec = parse_spec(yaml, parse); !spec.ok()) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} can't be a project's name", in_quotes(project)),
                 "up to 100 letters, digits, '-' and '_', beginning and ending with a letter or digit: "
                 "-n NAME"};
  }
  TRY(write_new_file(options.file, yaml, 0666,
                      fmt::format("dtrain check -f {} looks for mistakes in it", options.file)));
  const bool is_found = options.file == InitOptions().file;
  fmt::print("Wrote {} for project {}. Put your command into `run`, then: {} train{}\n",
             options.file, project, called(), is_found ? "" : " -f " + shell_quoted(options.file));
  return 0;
}

}  // namespace

Run declare_init(Options& options, CommandContext&) {
  auto typed = std::make_shared<InitOptions>();
  options.text("-f,--file,--config-file", typed->file, "write this file; left out: dtrain.yml", "FILE");
  options.text("-n,--project-name", typed->project, "left out: made from the directory's name",
               "NAME");
  return [typed] { return init(*typed); };
}

}  // namespace dtrain::cli
