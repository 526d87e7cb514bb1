// output path | ls | cp: what an experiment wrote to its OUTPUT_DIR.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/json_output.h"
#include "cli/remote.h"
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
  bool packs = false;   // as an archive on standard output, for a dtrain of another machine
};

struct Output {
  std::string id;
  fs::path directory;
};

Result<Output> find_output(const std::string& id, const CommandContext& context) {
  pb::ShowRequest request;
  request.set_project_dir(project_dir());
  if (!id.empty()) {
    TRY(const ExperimentId experiment, parse_experiment_id(id));
    request.set_id(to_string(experiment));
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::ShowReply reply, connection.show(request));
  Output output{reply.experiment().id(), reply.output_dir()};
  std::error_code failed;
  if (!fs::is_directory(output.directory, failed)) {
    return Error{Code::NotFound,
                 fmt::format("{} has written nothing: {} is not there", output.id,
                             output.directory.string()),
                 reply.experiment().members() == 0
                     ? "programs write to the directory that OUTPUT_DIR names"
                     : fmt::format("name a member: {}.1", output.id)};
  }
  return output;
}

// Everything below the directory, sorted by path. What can't be read is left out.
std::vector<OutputFile> files_below(const fs::path& directory) {
  std::vector<OutputFile> files;
  std::error_code failed;
  auto entry = fs::recursive_directory_iterator(
      directory, fs::directory_options::skip_permission_denied, failed);
  for (; !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    const uint64_t size_bytes = entry->file_size(unknown);
    if (unknown) continue;  // gone since: what is written may have another name until it is whole
    files.push_back({entry->path().lexically_relative(directory).string(), size_bytes});
  }
  std::sort(files.begin(), files.end(),
            [](const OutputFile& a, const OutputFile& b) { return a.path < b.path; });
  return files;
}

Result<int> list(const OutputOptions& options, const CommandContext& context) {
  TRY(const Output output, find_output(options.id, context));
  const std::vector<OutputFile> files = files_below(output.directory);
  if (context.json) {
    fmt::print("{}", output_json(output.id, output.directory.string(), files));
    return 0;
  }
  uint64_t total = 0;
  for (const OutputFile& file : files) {
    fmt::print("{:>10}  {}\n", human_size(file.size_bytes), file.path);
    total += file.size_bytes;
  }
  fmt::print("{} in {}: {}\n", human_count(files.size(), "file"), output.directory.string(),
             human_size(total));
  return 0;
}

// With all that is in it, over what is there. What is neither file, directory nor link is left out.
Status copy_all(const fs::path& from, const fs::path& to, std::vector<std::string>& left_out) {
  std::error_code failed, ignored;
  const fs::file_status what = fs::symlink_status(from, ignored);
  const bool over_link = fs::is_symlink(fs::symlink_status(to, ignored));
  if (fs::is_directory(what)) {
    const bool made = fs::create_directory(to, from, failed);
    // One that nobody may write to gets its mode when all is in it.
    if (made) fs::permissions(to, what.permissions() | fs::perms::owner_all, failed);
    fs::directory_iterator entry;
    if (!failed) entry = fs::directory_iterator(from, failed);
    for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
      TRY(copy_all(entry->path(), to / entry->path().filename(), left_out));
    }
    if (made && !failed) fs::permissions(to, what.permissions(), failed);
  } else if (fs::is_symlink(what)) {
    if (over_link || fs::is_regular_file(to, ignored)) fs::remove(to, failed);
    if (!failed) fs::copy_symlink(from, to, failed);
  } else if (fs::is_regular_file(what)) {
    if (over_link) fs::remove(to, failed);   // not what it leads to
    if (!failed) fs::copy_file(from, to, fs::copy_options::overwrite_existing, failed);
  } else {
    left_out.push_back(from.filename().string());
  }
  if (failed) {
    return errno_error(fmt::format("copying {} to {}", from.string(), to.string()), failed.value());
  }
  return ok();
}

// Copies files and folders of the output into `target`; unless forced none of them, if one is there.
Status copy_into(const fs::path& target, const std::vector<fs::path>& sources, bool force,
                 std::vector<std::string>& left_out) {
  std::set<fs::path> taken;
  for (const fs::path& from : sources) {
    std::error_code failed;
    const fs::path to = target / from.filename();
    if (!taken.insert(to).second) {
      return Error{Code::InvalidArgument, "two of these would be " + to.string(),
                   "take one of them at a time, with -t DIR"};
    }
    if (!force && fs::exists(fs::symlink_status(to, failed))) {
      return Error{Code::AlreadyExists, to.string() + " exists", "-f overwrites"};
    }
  }
  for (const fs::path& from : sources) TRY(copy_all(from, target / from.filename(), left_out));
  return ok();
}

// The ID may be left out before files: a first word that is no ID is a file.
OutputOptions with_id_apart(OutputOptions options) {
  if (!options.id.empty() && !parse_id_pattern(options.id).ok()) {
    options.files.insert(options.files.begin(), std::exchange(options.id, ""));
  }
  return options;
}

// As an archive, each by its own name.
Result<int> pack(const std::vector<fs::path>& sources) {
  std::vector<std::string> words = {"tar", "-c", "-f", "-"};
  for (const fs::path& source : sources) {
    words.insert(words.end(), {"-C", source.parent_path().string(), "./" + source.filename().string()});
  }
  if (sources.empty()) words.insert(words.end(), {"-T", "/dev/null"});
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp("tar", pointers.data());
  return errno_error("start tar", errno);
}

Result<int> copy_from_there(const std::string& machine, const OutputOptions& options) {
  std::vector<std::string> words = {"output", "cp", "--pack"};
  if (!options.id.empty()) words.push_back(options.id);
  for (const std::string& name : options.files) words.push_back(name);
  std::string to = options.to.empty() ? "." : options.to;
  if (options.files.empty() && options.to.empty()) {
    if (options.id.empty()) {
      return Error{Code::InvalidArgument, "of which experiment?", fmt::format("dtrain --on {} output cp 4", machine)};
    }
    to = "output-" + options.id;
  }
  TRY(const StartedThere packing, start_there(machine, words));
  char first = 0;
  ssize_t got = 0;
  do got = ::recv(packing.line.get(), &first, 1, MSG_PEEK);
  while (got < 0 && errno == EINTR);
  if (got <= 0) return exit_code_there(packing.ssh);   // it has said why
  std::error_code failed;
  fs::create_directories(to, failed);
  if (failed) return errno_error("creating " + to, failed.value());
  const pid_t unpacking = fork();
  if (unpacking < 0) return errno_error("start tar", errno);
  if (unpacking == 0) {
    dup2(packing.line.get(), STDIN_FILENO);
    execlp("tar", "tar", "-x", "-f", "-", "-C", to.c_str(), options.force ? "--overwrite" : "--keep-old-files", nullptr);
    _exit(127);
  }
  const int unpacked = exit_code_there(unpacking);
  ::shutdown(packing.line.get(), SHUT_RDWR);
  if (unpacked != 0) {
    return Error{Code::FailedPrecondition, fmt::format("not all of it is in {}", to), options.force ? "" : "-f overwrites what is there"};
  }
  if (exit_code_there(packing.ssh) != 0) return Error{Code::Unavailable, fmt::format("not all of it came from {}", machine), ""};
  fmt::print("Copied to {}\n", to);
  return 0;
}

Result<int> copy(const OutputOptions& options, const CommandContext& context) {
  if (const std::string machine = remote_machine(); !machine.empty()) return copy_from_there(machine, options);
  TRY(const Output output, find_output(options.id, context));
  std::error_code failed;
  std::vector<fs::path> sources;
  const auto add_all = [&] {
    for (auto entry = fs::directory_iterator(output.directory, failed);
         !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
      sources.push_back(entry->path());
    }
  };
  for (const std::string& name : options.files) {
    fs::path relative = fs::path(name).lexically_normal();
    if (!relative.has_filename()) relative = relative.parent_path();   // "d/"
    if (relative.is_absolute() || *relative.begin() == "..") {
      return Error{Code::InvalidArgument, fmt::format("'{}' is not inside the output", name),
                   fmt::format("dtrain output ls {} lists what is", output.id)};
    }
    if (!fs::exists(fs::symlink_status(output.directory / relative, failed))) {
      return Error{Code::NotFound, fmt::format("{} has no '{}' in its output", output.id, name),
                   fmt::format("dtrain output ls {} lists what is there", output.id)};
    }
    if (relative == ".") {
      add_all();
    } else {
      sources.push_back(output.directory / relative);
    }
  }
  if (options.packs && options.files.empty()) add_all();
  if (options.packs) return pack(sources);
  fs::path target = options.to.empty() ? fs::path(".") : fs::path(options.to);
  if (options.files.empty()) {
    // All of it, in a folder of its own.
    if (options.to.empty()) target = "output-" + output.id;
    add_all();
  }
  fs::create_directories(target, failed);
  if (failed) return errno_error("creating " + target.string(), failed.value());
  std::vector<std::string> left_out;
  TRY(copy_into(target, sources, options.force, left_out));
  if (!left_out.empty()) {
    fmt::print(stderr, "left out, being sockets, fifos or devices: {}\n", fmt::join(left_out, ", "));
  }
  fmt::print("{} copied to {}\n", human_count(sources.size(), "item"), target.string());
  return 0;
}

}  // namespace

Run declare_output(Options& options, CommandContext& context) {
  auto typed = std::make_shared<OutputOptions>();
  const char* which = "an experiment (4) or member (4.2); left out: the newest of this project";
  options.subcommand("path", "print the directory", [&](Options& path) -> Run {
    path.positional("ID", typed->id, which);
    path.json(context);
    return [typed, &context]() -> Result<int> {
      TRY(const Output output, find_output(typed->id, context));
      fmt::print("{}", context.json ? output_json(output.id, output.directory.string(),
                                                  files_below(output.directory))
                                    : output.directory.string() + "\n");
      return 0;
    };
  });
  options.subcommand("ls", "list its files", [&](Options& ls) -> Run {
    ls.positional("ID", typed->id, which);
    ls.json(context);
    return [typed, &context] { return list(*typed, context); };
  });
  options.subcommand("cp", "copy files here", [&](Options& cp) -> Run {
    cp.positional("ID", typed->id, which);
    cp.positionals("FILE", typed->files, "files or folders of it; left out: all, into output-ID/");
    cp.text("-t,--to", typed->to, "into this directory instead", "DIR");
    cp.flag("-f,--force", typed->force, "overwrite what is there");
    cp.flag("--pack", typed->packs, "write an archive to standard output instead: | tar -xf -");
    return [typed, &context] { return copy(with_id_apart(*typed), context); };
  });
  return nullptr;
}

}  // namespace dtrain::cli
