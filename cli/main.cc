// dtrain: the table of commands, and the three programs that the same executable also is.
//
// Only this file knows cli, daemon and runner at once.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/overview.h"
#include "cli/remote.h"
#include "cli/sink.h"
#include "cli/terminal.h"
#include "daemon/daemon_main.h"
#include "runner/hosts_probe.h"
#include "runner/keeper_nursery.h"
#include "runner/container_image.h"
#include "runner/mpi_agent.h"
#include "runner/mpi_worker.h"
#include "runner/process_title.h"
#include "runner/runner_main.h"
#include "schema/config.h"
#include "schema/home.h"
#include "schema/access_key.h"
#include "schema/small_file.h"
#include "schema/text_formats.h"

namespace dtrain::cli {
namespace {

Run declare_daemon_with_run(Options& options, CommandContext& context) {
  Run none = declare_daemon(options, context);
  options.subcommand("run", "be the daemon, in this terminal", [](Options& run_options) -> Run {
    auto no_runner = std::make_shared<bool>(false);
    run_options.flag("--no-local-runner", *no_runner, "place nothing on this machine");
    return [no_runner]() -> Result<int> {
      runner::set_process_name("dtrain-daemon");
      TRY(const Home home, home_from_environment());
      TRY(daemon::run_daemon({home, !*no_runner}));
      return 0;
    };
  });
  return none;
}

struct RunnerWords {
  std::string join, lasts, home, address, name, labels, mem, ports, cache, daemon_home;
  double cpus = std::numeric_limits<double>::quiet_NaN();   // not said
};

Error refuse_option(std::string_view option, std::string_view value, std::string_view why,
                    std::string hint) {
  return {Code::InvalidArgument, fmt::format("runner run: {} '{}' {}", option, value, why),
          std::move(hint)};
}

Result<std::optional<uint64_t>> read_size(const char* option, const std::string& text) {
  const auto size = parse_memory(text);
  if (size || text.empty()) return size;
  return refuse_option(option, text, "is not a size", "16GiB, 500MB");
}

// Of a program that starts it there: no file needs to hold it.
Result<std::optional<AccessKey>> key_from_input() {
  constexpr size_t kKeyBytesMax = 64 << 10;
  std::string text(kKeyBytesMax, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  TRY(AccessKey key, parse_access_key(text, KeyOf::Host, "what standard input has"));
  return std::optional(std::move(key));
}

// Of the file that --join names. Nothing: it is no such file, but a socket.
Result<std::optional<AccessKey>> read_key(const RunnerWords& words) {
  if (words.join == "-") return key_from_input();
  std::error_code error;
  if (!std::filesystem::is_regular_file(words.join, error)) return std::optional<AccessKey>();
  TRY(AccessKey key, read_access_key(words.join, KeyOf::Host));
  if (!words.name.empty() && words.name != key.name) {
    return refuse_option("--name", words.name, "is not what this host was invited as",
                         fmt::format("leave it out: it joins as {}", key.name));
  }
  return std::optional(std::move(key));
}

// The path of a daemon's socket. Where "unix:" does not say so, it is one only if it is there: a key that is not
// would be dialled for ever.
Result<std::string> read_join(const std::string& join) {
  const bool says_unix = join.starts_with("unix:");
  const std::string path = says_unix ? join.substr(5) : join;
  std::error_code error;
  if (path.empty() || (!says_unix && !std::filesystem::is_socket(path, error))) {
    return refuse_option("--join", join, "is neither a key that is there nor the path of a daemon's Unix socket",
                         "a file that `dtrain hosts invite NAME` wrote, or unix:PATH, as `dtrain daemon status` shows it");
  }
  constexpr size_t kPathMax = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kPathMax) {
    return refuse_option("--join", join,
                         fmt::format("is longer than a socket's path may be: {}", kPathMax),
                         "a shorter path, or a symbolic link to its directory");
  }
  return path;
}

Result<std::vector<std::string>> read_labels(std::string_view words) {
  std::vector<std::string> labels;
  while (!words.empty()) {
    const size_t end = std::min(words.find(','), words.size());
    labels.emplace_back(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
    if (kHostLabel.accepts(labels.back()) && labels.size() <= kHostLabelsMax) continue;
    return refuse_option("--labels", labels.back(), "is not a label", "letters, digits and . _ - = : /, with commas between labels");
  }
  return labels;
}

Result<int> run_runner(const RunnerWords& words) {
  runner::set_process_name("dtrain-runner");
  runner::RunnerOptions options;
  if (words.join.empty() || words.home.empty()) {
    TRY(const Home home, home_from_environment());
    if (words.join.empty()) options.daemon_socket = home.socket().string();
    options.home = home.runner();
  }
  if (!words.join.empty()) {
    TRY(options.key, read_key(words));
    if (!options.key) {
      TRY(options.daemon_socket, read_join(words.join));
    }
  }
  if (!words.home.empty()) options.home = words.home;
  options.daemon_home = words.daemon_home;
  options.address = words.address;
  if (!words.address.empty() && !is_host_address(words.address)) {
    return refuse_option("--address", words.address, "is nothing that another host can dial",
                         "an IP address of this host or its name, without a port: 10.0.0.5");
  }
  options.name = words.name;
  if (!words.name.empty() && !is_host_name(words.name)) {
    return refuse_option("--name", words.name, "is not a name", "letters, digits, '.', '-' and '_'");
  }
  if (!std::isnan(words.cpus)) {
    if (words.cpus < 0.01 || words.cpus > 4096) {
      return refuse_option("--cpus", fmt::format("{}", words.cpus), "is out of range", "0.01 to 4096");
    }
    options.cpus = words.cpus;
  }
  if (!words.lasts.empty()) {
    options.for_ms = parse_duration_ms(words.lasts);
    if (!options.for_ms || *options.for_ms < 1) return refuse_option("--for", words.lasts, "is not a duration", "4h, 90m");
  }
  TRY(options.labels, read_labels(words.labels));
  TRY(options.memory_bytes, read_size("--mem", words.mem));
  TRY(options.cache_bytes, read_size("--cache", words.cache));
  if (!words.ports.empty()) {
    const auto range = parse_port_range(words.ports);
    if (!range) {
      return refuse_option("--ports", words.ports, "is not a range", "20000-29999");
    }
    options.port_first = range->first;
    options.port_last = range->last;
  }
  TRY(runner::run_runner(options));
  return 0;
}

Run declare_runner(Options& options, CommandContext&) {
  options.subcommand(
      "run", "be this host's runner, in this terminal", [](Options& run_options) -> Run {
        auto words = std::make_shared<RunnerWords>();
        run_options.text("--join", words->join, "a key from dtrain hosts invite, or a daemon's socket; left out: the local daemon's",
                         "FILE");
        run_options.text("--for", words->lasts, "how long this host is there, as a job of Slurm or another batch system",
                         "DURATION");
        run_options.text("--home", words->home, "the runner's own directory", "DIR");
        run_options.text("--daemon-home", words->daemon_home,
                         "start the daemon of this DTRAIN_HOME again when it dies", "DIR");
        run_options.text("--address", words->address,
                         "how other hosts reach replicas here; left out: with a key, as this one reaches the daemon", "ADDRESS");
        run_options.text("--name", words->name, "shown in dtrain hosts; left out: the host's name");
        run_options.real("--cpus", words->cpus, "offer this many", "N");
        run_options.text("--labels", words->labels, "what --host may say instead of its name", "LABEL,...");
        run_options.text("--mem", words->mem, "offer this much: 16GiB, 500MB", "SIZE");
        run_options.text("--cache", words->cache,
                         "keep this much of sent files for later; left out: 20GiB", "SIZE");
        run_options.text("--ports", words->ports, "replicas may listen on these; left out: 20000-29999",
                         "FIRST-LAST");
        return [words] { return run_runner(*words); };
      });
  return nullptr;
}

Run declare_keeper(Options& options, CommandContext&) {
  auto blanks = std::make_shared<std::string>();
  options.positional("BLANKS", *blanks, "room for what ps shows", false);
  return [blanks]() -> Result<int> {
    runner::set_process_name("dtrain-nursery");
    return runner::run_keeper_nursery();
  };
}

Run declare_in_image(Options& options, CommandContext&) {
  const auto environment = std::make_shared<std::string>();
  const auto script = std::make_shared<std::string>();
  options.positional("ENVIRONMENT", *environment, "what is being made");
  options.positional("SCRIPT", *script, "for /bin/sh in there");
  return [environment, script] { return runner::run_in_image(*environment, *script); };
}

Run declare_mpi_worker(Options&, CommandContext&) {
  return []() -> Result<int> {
    TRY(runner::run_mpi_worker());
    return 0;
  };
}

Run declare_hosts_probe(Options&, CommandContext&) {
  return []() -> Result<int> {
    TRY(runner::run_hosts_probe());
    return 0;
  };
}

Run declare_mpi_agent(Options& options, CommandContext&) {
  auto workers = std::make_shared<std::string>();
  auto words = std::make_shared<std::vector<std::string>>();
  options.positional("WORKERS", *workers, "who they are", true);
  options.rest(*words, "WORKER COMMAND", "what ssh would be given");
  return [workers, words] { return runner::run_mpi_agent(*workers, *words); };
}

constexpr Command kCommands[] = {
    {"train", "Every day", "sync this directory and run it, with its logs", declare_train},
    {"status", "Every day", "what runs; with an ID everything about it", declare_status},
    {"logs", "Every day", "the output of an experiment, -f to follow", declare_logs},
    {"monitor", "Every day", "processors, memory and GPUs, live", declare_monitor},
    {"kill", "Every day", "end experiments", declare_kill},
    {"compare", "Experiments", "members of a set, or several, side by side", declare_compare},
    {"why", "Experiments", "the one reason it waits or ended", declare_why},
    {"wait", "Experiments", "block until they end, with their exit code", declare_wait},
    {"exec", "Experiments", "a shell or a command beside a replica that runs", declare_exec},
    {"port-forward", "Experiments", "ports of a replica's host, on this machine", declare_port_forward},
    {"rerun", "Experiments", "submit one again, parameters changed or not", declare_rerun},
    {"checkout", "Experiments", "the files that one was sent with, in a directory", declare_checkout},
    {"suspend", "Experiments", "give back what experiments have, until resume", declare_suspend},
    {"resume", "Experiments", "let them go on", declare_resume},
    {"output", "Experiments", "list and copy what one wrote to OUTPUT_DIR", declare_output},
    {"tensorboard", "Experiments", "where its curves are shown; starts one where none runs",
     declare_tensorboard},
    {"prune", "Experiments", "forget ended ones, and free their disk space", declare_prune},
    {"init", "Files", "write a first dtrain.yml", declare_init},
    {"check", "Files", "look for mistakes in dtrain.yml", declare_check},
    {"export", "Files", "an experiment as a job of Kubeflow or Slurm", declare_export},
    {"schema", "Files", "print the JSON Schema of dtrain.yml, for editors", declare_schema},
    {"hosts", "Machines", "what each host has and has free", declare_hosts},
    {"users", "Machines", "whose keys let them in from other machines", declare_users},
    {"daemon", "Machines", "start, stop and look at the daemon", declare_daemon_with_run},
    {"runner", "Machines", "be a host of a daemon by hand", declare_runner},
    {"completion", "Shell", "print completions for bash, zsh or fish", declare_completion},
    {"version", "Shell", "print the version", declare_version},
    {"keeper", "", "where the keepers of launches come from; started by the runner", declare_keeper},
    {"in-image", "", "a step of making an image's environment", declare_in_image},
    {"hosts-probe", "", "what hosts test runs on each host", declare_hosts_probe},
    {"mpi-worker", "", "what workers of framework: mpi run", declare_mpi_worker},
    {"mpi-agent", "", "what mpirun calls in place of ssh", declare_mpi_agent},
    {"dial", "", "the daemon on standard input and output, for a dtrain that comes by SSH", declare_dial},
    {"__ids", "", "IDs for completion", declare_ids},
    {"__words", "", "options of a command for completion", declare_words},
};

// Started with one of the three closed (`dtrain logs >&-`), what is opened next would take its number
// and receive what is printed. Before anything else is: a library opens one before main.
[[gnu::constructor(101)]] void fill_standard_descriptors() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

int finish(Result<int> result, bool json) {
  if (!result.ok()) {
    print_error(result.error(), json);
    return exit_code_of(result.error());
  }
  // A full disk behind a redirection must not look like success.
  if (std::fflush(stdout) != 0) {
    print_error(output_error(errno), json);
    return 1;
  }
  return result.value();
}

int dispatch(std::vector<std::string> words) {
  if (const Status machine = take_remote_machine(words); !machine.ok()) return finish(machine.error(), false);
  if (is_for_there(words)) return finish(run_there(remote_machine(), words), false);
  const bool asks_for_help = !words.empty() && (words[0] == "--help" || words[0] == "-h" || words[0] == "help");
  if (words.empty() || (asks_for_help && words.size() == 1)) {
    fmt::print("{}", render_overview(kCommands, screen_of(STDOUT_FILENO).width));
    return finish(0, false);
  }
  if (words[0] == "--version" || words[0] == "-V") words[0] = "version";
  if (asks_for_help) words = {words[1], "--help"};

  CommandContext context;
  context.program = "/proc/self/exe";
  context.commands = kCommands;
  // Known before parsing, so that a mistake in the options is told in JSON too.
  const auto end = std::find(words.begin(), words.end(), "--");
  const bool json = std::find(words.begin(), end, "--json") != end;
  const auto found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                  [&](const Command& command) { return command.name == words[0]; });
  if (found == std::end(kCommands)) return finish(unknown_command(words[0], kCommands), json);
  words.erase(words.begin());
  auto run = parse_command(*found, context, std::move(words));
  if (!run.ok()) return finish(std::move(run).error(), json);
  try {
    return finish(run.value()(), json);
  } catch (const std::system_error& failed) {
    // fmt::print throws when standard output takes no more than what is buffered.
    return finish(output_error(failed.code().value()), json);
  }
}

}  // namespace
}  // namespace dtrain::cli

int main(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  // Started by one of us, so as to be the same executable even if another was installed meanwhile:
  // `ps` shows what a person would have typed.
  if (!words.empty() && words[0] == "/proc/self/exe") {
    words[0] = "dtrain";
    dtrain::runner::set_process_title(words);
  }
  if (!words.empty()) words.erase(words.begin());
  return dtrain::cli::dispatch(std::move(words));
}
