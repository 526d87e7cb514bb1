// output path | ls | cp: what an experiment wrote to its OUTPUT_DIR, and what a replica left elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/copy_outputs.h"
#include "cli/escapes.h"
#include "cli/fetch_outputs.h"
#include "cli/json_output.h"
#include "cli/kubeflow_names.h"
#include "cli/left_files.h"
#include "cli/looked_at.h"
#include "cli/redial.h"
#include "cli/remote.h"
#include "cli/remote_outputs.h"
#include "cli/submit.h"
#include "cli/words.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

struct OutputOptions {
  std::string id;
  std::vector<std::string> files;
  std::string to;
  bool force = false;
};

struct Output {
  std::string id;
  fs::path directory;   // where the daemon is
  Connection connection;
};

bool is_elsewhere() { return !remote_machine().empty(); }

Result<Output> find_output(const std::string& id, const CommandContext& context) {
  std::string asked;
  if (!id.empty()) {
    TRY(const ExperimentId experiment, parse_experiment_id(id));
    asked = to_string(experiment);
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::ShowReply reply, look_up(connection, asked));
  Output output{reply.experiment().id(), reply.output_dir(), std::move(connection)};
  std::error_code failed;
  if (!is_elsewhere() && !fs::is_directory(output.directory, failed)) {
    return Error{Code::NotFound,
                 fmt::format("there is no output of {}: {} is not there", output.id,
                             output.directory.string()),
                 reply.experiment().members() == 0
                     ? "programs write to the directory that OUTPUT_DIR names"
                     : fmt::format("name a member: {}.1", output.id)};
  }
  return output;
}

// All files and links below the directory, sorted by path. What can't be read is left out.
std::vector<OutputFile> files_in(const fs::path& directory) {
  std::vector<OutputFile> files;
  std::error_code failed;
  auto entry = fs::recursive_directory_iterator(
      directory, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    std::error_code unknown;
    if (entry->is_symlink(unknown)) {
      files.push_back({entry->path().lexically_relative(directory).string(), 0, fs::read_symlink(entry->path(), unknown).string()});
      continue;
    }
    if (!entry->is_regular_file(unknown)) continue;
    const uint64_t size_bytes = entry->file_size(unknown);
    if (unknown) continue;  // gone since: what is written may have another name until it is whole
    files.push_back({entry->path().lexically_relative(directory).string(), size_bytes});
  }
  std::sort(files.begin(), files.end(),
            [](const OutputFile& a, const OutputFile& b) { return a.path < b.path; });
  return files;
}

struct Listing {
  std::vector<OutputFile> files;
  std::vector<std::string> left_out;   // is there, and does not travel: why
};

Result<Listing> files_of(Output& output) {
  if (!is_elsewhere()) return Listing{files_in(output.directory), {}};
  TRY(const ListedOutputs listed, list_outputs(output.connection.channel(), output.id));
  Listing listing;
  for (const pb::OutputEntry& entry : listed.entries) {
    if (entry.kind() != pb::Entry::DIRECTORY) listing.files.push_back({entry.path(), entry.size(), entry.target()});
  }
  for (const pb::OutputTrouble& trouble : listed.left_out) listing.left_out.push_back(trouble.why());
  return listing;
}

void tell_left_out(const std::vector<std::string>& whys) {
  for (const std::string& why : whys) fmt::print(stderr, "left out: {}\n", on_one_line(why));
}

void print_files(const std::vector<OutputFile>& files, const std::string& where) {
  uint64_t count = 0, total = 0;
  for (const OutputFile& file : files) {
    const bool is_link = !file.link_to.empty();
    fmt::print("{:>10}  {}{}\n", is_link ? "link" : human_size(file.size_bytes), on_one_line(file.path),
               is_link ? " -> " + on_one_line(file.link_to) : "");
    count += is_link ? 0 : 1;
    total += file.size_bytes;
  }
  fmt::print("{} in {}: {}\n", human_count(count, "file"), where, human_size(total));
}

bool names_replica(const std::string& id) {
  const auto pattern = parse_id_pattern(id);
  return pattern.ok() && pattern->names_replicas();
}

Result<int> list_of_replica(const std::string& id, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const LeftFilesList left, list_left(connection, id));
  if (context.json) {
    fmt::print("{}", output_json(left.replica, "", left.files));
  } else {
    print_files(left.files, fmt::format("the work directory of {} on {}", left.replica, left.host_name));
  }
  return 0;
}

Result<int> list(const OutputOptions& options, const CommandContext& context) {
  if (names_replica(options.id)) return list_of_replica(options.id, context);
  TRY(Output output, find_output(options.id, context));
  TRY(const Listing listing, files_of(output));
  if (context.json) {
    fmt::print("{}", output_json(output.id, output.directory.string(), listing.files));
    return 0;
  }
  print_files(listing.files, output.directory.string());
  tell_left_out(listing.left_out);
  return 0;
}

// The ID may be left out before files: a first word that is no ID, and no name of anything, is a file.
OutputOptions with_id_apart(OutputOptions options, const CommandContext& context) {
  // "model.1" is a file, and no experiment of a user called model.
  const bool may_be_name = without_user(options.id, user_name()) == options.id || !meanings_of(options.id).empty();
  if (may_be_name) (void)replace_names(options.id, context);
  if (!options.id.empty() && !parse_id_pattern(options.id).ok()) {
    options.files.insert(options.files.begin(), std::exchange(options.id, ""));
  }
  return options;
}

// Of the output, and never out of it.
Result<fs::path> path_within(const std::string& name, const std::string& id) {
  fs::path relative = fs::path(name).lexically_normal();
  if (!relative.has_filename()) relative = relative.parent_path();   // "d/"
  if (!relative.is_absolute() && !relative.empty() && *relative.begin() != "..") return relative;
  return Error{Code::InvalidArgument, fmt::format("'{}' is not inside the output", name),
               fmt::format("dtrain output ls {} lists what is", id)};
}

void tell_copied(size_t items, const fs::path& target) {
  fmt::print("{} copied to {}\n", human_count(items, "item"), target.string());
}

Result<int> copy_from_there(Output output, const std::vector<fs::path>& paths, const fs::path& target, bool force, const CommandContext& context) {
  std::optional<Redial> redial;
  OutputsSource source;
  source.channel = [&]() -> RpcChannel& { return output.connection.channel(); };
  source.again = [&](const Signals& signals) {
    if (!redial) redial.emplace(output.connection, context, signals);
    return redial->try_again(output.id);
  };
  TRY(const FetchedOutputs fetched, fetch_outputs(source, output.id, paths, target, force));
  tell_copied(fetched.items, target);
  tell_left_out(fetched.left_out);
  return 0;
}

// All of it, in a folder of its own.
fs::path target_of(const OutputOptions& options, const std::string& id) {
  if (!options.to.empty()) return options.to;
  return options.files.empty() ? "output-" + id : ".";
}

Result<int> copy_of_replica(const OutputOptions& options, const CommandContext& context) {
  std::vector<std::string> paths;
  for (const std::string& name : options.files) {
    TRY(const fs::path path, path_within(name, options.id));
    paths.push_back(path == "." ? "" : path.string());
  }
  if (paths.empty()) paths.emplace_back();
  const fs::path target = target_of(options, options.id);
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  for (const std::string& path : paths) TRY(copy_left(connection, options.id, path, target, options.force));
  fmt::print("copied to {}\n", target.string());
  return 0;
}

Result<int> copy(const OutputOptions& options, const CommandContext& context) {
  if (names_replica(options.id)) return copy_of_replica(options, context);
  TRY(Output output, find_output(options.id, context));
  std::vector<fs::path> paths;
  for (const std::string& name : options.files) {
    TRY(paths.emplace_back(), path_within(name, output.id));
  }
  const fs::path target = target_of(options, output.id);
  if (is_elsewhere()) return copy_from_there(std::move(output), paths, target, options.force, context);
  std::error_code failed;
  std::vector<fs::path> sources;
  if (paths.empty()) paths.push_back(".");
  for (const fs::path& path : paths) {
    if (path != ".") {
      if (!fs::exists(fs::symlink_status(output.directory / path, failed))) {
        return Error{Code::NotFound, fmt::format("{} has no '{}' in its output", output.id, path.string()),
                     fmt::format("dtrain output ls {} lists what is there; of a replica, as dtrain status {} names it, what it left elsewhere", output.id, output.id)};
      }
      sources.push_back(output.directory / path);
      continue;
    }
    for (auto entry = fs::directory_iterator(output.directory, failed); !failed && entry != fs::directory_iterator();
         entry.increment(failed)) {
      sources.push_back(entry->path());
    }
  }
  fs::create_directories(target, failed);
  if (failed) return errno_error("creating " + target.string(), failed.value());
  TRY(const CopiedOutputs copied, copy_outputs(sources, target, options.force));
  tell_left_out(copied.left_out);
  tell_copied(copied.items, target);
  return 0;
}

}  // namespace

Run declare_output(Options& options, CommandContext& context) {
  auto typed = std::make_shared<OutputOptions>();
  const char* which = "an experiment (4) or member (4.2); left out: the newest of this project";
  const char* which_or_replica = "an experiment (4) or member (4.2); a replica (4.worker.1): what it left elsewhere; left out: the newest of this project";
  options.subcommand("path", "print the directory", [&](Options& path) -> Run {
    path.id(typed->id, which);
    path.json(context);
    return [typed, &context]() -> Result<int> {
      TRY(Output output, find_output(typed->id, context));
      Listing listing;
      if (context.json) {
        TRY(listing, files_of(output));
      }
      fmt::print("{}", context.json ? output_json(output.id, output.directory.string(), listing.files) : output.directory.string() + "\n");
      return 0;
    };
  });
  options.subcommand("ls", "list its files", [&](Options& ls) -> Run {
    ls.id(typed->id, which_or_replica);
    ls.json(context);
    return [typed, &context] { return list(*typed, context); };
  });
  options.subcommand("cp", "copy files here", [&](Options& cp) -> Run {
    cp.positional("ID", typed->id, which_or_replica);
    cp.positionals("FILE", typed->files, "files or folders of it; left out: all, into output-ID/");
    cp.text("-t,--to", typed->to, "into this directory instead", "DIR");
    cp.flag("-f,--force", typed->force, "overwrite what is there");
    return [typed, &context] { return copy(with_id_apart(*typed, context), context); };
  });
  return nullptr;
}

}  // namespace dtrain::cli
