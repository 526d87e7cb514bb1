#include "cli/remote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>

#include "cli/connection.h"
#include "cli/dial.h"
#include "cli/tls_wire.h"
#include "cli/words.h"
#include "schema/access_key.h"
#include "schema/endpoint.h"
#include "schema/fd.h"
#include "schema/shell_words.h"

namespace dtrain::cli {

namespace {

constexpr const char* kVariable = "DTRAIN_ON";
constexpr const char* kCalledVariable = "DTRAIN_CALLED";   // to who runs over there: how it was called here
constexpr size_t kNoiseMax = 64 << 10;   // that a shell over there may say before

// $1: SSH with its options; $2: options of ours; $3: the machine; $4: the command.
constexpr const char* kSsh = R"sh(exec $1 $2 "$3" "$4")sh";

bool is_key(const std::string& machine) {
  return !machine.starts_with("ssh://") && (machine.find('/') != machine.npos || machine.ends_with(".key"));
}

Status check_machine(const std::string& machine) {
  if (is_key(machine)) return ok();   // read when it is needed
  if (!machine.empty() && !machine.starts_with('-') && machine.find_first_of(" \t\n") == machine.npos) return ok();
  return Error{Code::InvalidArgument, fmt::format("'{}' is nothing that SSH reaches", machine),
               "user@host, a Host of ~/.ssh/config, or the file of a key"};
}

// As one word for SSH. The login shell over there may be any.
std::string command_there(const std::vector<std::string>& words) {
  std::string command = "sh -c ";
  command += shell_quoted(R"sh(PATH="$PATH:$HOME/.local/bin:/usr/local/bin" DTRAIN_PROJECT="$0" DTRAIN_CALLED="$1"; shift; export PATH DTRAIN_PROJECT DTRAIN_CALLED; unset DTRAIN_ON; command -v dtrain > /dev/null || { echo "dtrain: there is none over there, in PATH, ~/.local/bin or /usr/local/bin" >&2; exit 127; }; exec dtrain "$@")sh");
  command += " " + shell_quoted(project_dir()) + " " + shell_quoted(called());
  for (const std::string& word : words) command += " " + shell_quoted(word);
  return command;
}

[[noreturn]] void become_ssh(const char* options, const std::string& machine, const std::string& command) {
  const std::string ssh = ssh_command();
  execl("/bin/sh", "sh", "-c", kSsh, "sh", ssh.c_str(), options, machine.c_str(), command.c_str(), nullptr);
  _exit(127);
}

// `dtrain` with these words over there, with what it reads and prints at the other end of `line`.
struct StartedThere {
  pid_t ssh;
  Fd line;
};
Result<StartedThere> start_there(const std::string& machine, const std::vector<std::string>& words) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno_error("make a socket", errno);
  Fd here(ends[0]);
  const Fd there(ends[1]);
  const std::string command = command_there(words);
  const pid_t ssh = fork();
  if (ssh < 0) return errno_error("start SSH", errno);
  if (ssh == 0) {
    // Ctrl-C is for this program: it may have something to say over there first.
    for (const int signal : {SIGINT, SIGQUIT, SIGHUP}) ::signal(signal, SIG_IGN);
    dup2(there.get(), STDIN_FILENO);
    dup2(there.get(), STDOUT_FILENO);
    become_ssh("-oLogLevel=ERROR", machine, command);
  }
  return StartedThere{ssh, std::move(here)};
}

// 255: SSH's own.
int exit_code_there(pid_t started) {
  int status = 0;
  while (waitpid(started, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Until it says that the daemon is next; what a shell printed before is dropped.
bool await_word(int fd) {
  std::string said;
  char byte = 0;
  while (said.size() < kNoiseMax) {
    const ssize_t got = ::read(fd, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    said.push_back(byte);
    if (said.ends_with(kDialled)) return true;
  }
  return false;
}

Error not_dialled(const std::string& machine, pid_t ssh) {
  const int code = exit_code_there(ssh);
  if (code == 255) return {Code::Unavailable, fmt::format("SSH does not reach {}", machine), fmt::format("try: {} {} true", ssh_command(), machine)};
  if (code == 127) {
    return {Code::Unavailable, fmt::format("{} has no dtrain that its shell finds", machine),
            "it is looked for in PATH, ~/.local/bin and /usr/local/bin there"};
  }
  return {Code::Unavailable, fmt::format("no daemon can be reached on {}", machine), ""};
}

std::string& called_as() {
  static std::string words = "dtrain";
  return words;
}

}  // namespace

std::string ssh_command() {
  const char* ssh = std::getenv("DTRAIN_SSH");
  return ssh == nullptr ? "ssh" : ssh;
}

std::string remote_machine() {
  const char* machine = std::getenv(kVariable);
  return machine == nullptr ? "" : machine;
}

bool is_by_key() { return is_key(remote_machine()); }

std::string key_user() {
  const auto key = is_by_key() ? read_access_key(remote_machine(), KeyOf::User) : Result<AccessKey>(AccessKey());
  return key.ok() ? key->name : "";
}

std::string name_of_there() {
  const std::string machine = remote_machine();
  if (!is_key(machine)) return machine;
  const auto key = read_access_key(machine, KeyOf::User);
  const auto place = key.ok() ? parse_endpoint(key->daemon) : std::nullopt;
  return place ? place->host : machine;
}

Status check_not_by_key(std::string_view what) {
  if (!is_by_key()) return ok();
  return Error{Code::FailedPrecondition, fmt::format("{} works on the machine where the daemon runs, and not by a key", what),
               "there, or as its account by SSH: dtrain --on me@machine ..."};
}

const std::string& called() {
  return called_as();
}

std::string as_called(std::string text) {
  constexpr std::string_view kOwn = "dtrain ";
  // All that speak to the daemon.
  constexpr std::array kCommands = {"train", "status", "logs", "monitor", "kill", "compare", "why", "wait", "exec", "port-forward", "rerun",
                                    "checkout", "suspend", "resume", "output", "tensorboard", "prune", "export", "hosts", "users", "daemon"};
  const auto is_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_'; };
  if (called() == "dtrain") return text;
  for (size_t at = text.find(kOwn); at != text.npos; at = text.find(kOwn, at + 1)) {
    const std::string_view rest = std::string_view(text).substr(at + kOwn.size());
    const std::string_view word = rest.substr(0, std::ranges::find_if_not(rest, is_of_word) - rest.begin());
    const bool is_whole = at == 0 || (!is_of_word(text[at - 1]) && text[at - 1] != '/' && text[at - 1] != '.');
    const size_t end = rest.find('`');
    const bool is_for_elsewhere = at > 0 && text[at - 1] == '`' && end != rest.npos && rest.substr(end).starts_with("`, where ");
    if (!is_whole || is_for_elsewhere || std::ranges::find(kCommands, word) == kCommands.end()) continue;
    text.replace(at, kOwn.size() - 1, called());
    at += called().size();
  }
  return text;
}

Status take_remote_machine(std::vector<std::string>& words) {
  // By a dtrain of another machine; not for what this one starts.
  if (const char* told = std::getenv(kCalledVariable); told != nullptr) {
    if (*told != '\0') called_as() = told;
    unsetenv(kCalledVariable);
  }
  if (!words.empty() && (words[0] == "--on" || words[0].starts_with("--on="))) {
    const bool is_apart = words[0] == "--on";
    if (is_apart && words.size() < 2) {
      return Error{Code::InvalidArgument, "--on: which machine?", "dtrain --on user@host status"};
    }
    const std::string machine = is_apart ? words[1] : words[0].substr(5);
    words.erase(words.begin(), words.begin() + (is_apart ? 2 : 1));
    TRY(check_machine(machine));
    if (is_key(machine) && !machine.starts_with('/')) {
      called_as() = fmt::format("dtrain --on {}", shell_quoted(machine));
      std::error_code failed;
      setenv(kVariable, std::filesystem::absolute(machine, failed).c_str(), 1);
      return ok();
    }
    if (remote_machine() != machine) called_as() = fmt::format("dtrain --on {}", shell_quoted(machine));
    setenv(kVariable, machine.c_str(), 1);
  }
  return remote_machine().empty() ? ok() : check_machine(remote_machine());
}

bool is_for_there(const std::vector<std::string>& words) {
  constexpr std::array kThere = {"status", "logs", "monitor", "kill", "compare", "why", "prune", "hosts", "daemon"};
  if (words.empty() || remote_machine().empty() || is_by_key()) return false;
  return std::ranges::find(kThere, words[0]) != kThere.end();
}

Error run_there(const std::string& machine, const std::vector<std::string>& words) {
  const bool is_terminal = isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
  // Only a question at a terminal is answered; SSH would take what a loop around us reads.
  if (const Fd nothing(is_terminal ? -1 : ::open("/dev/null", O_RDONLY | O_CLOEXEC)); nothing) dup2(nothing.get(), STDIN_FILENO);
  become_ssh(is_terminal ? "-t -oLogLevel=ERROR" : "-oLogLevel=ERROR", machine, command_there(words));
}

Result<std::unique_ptr<Wire>> dial_there(const std::string& machine, bool starts) {
  if (is_key(machine)) {
    TRY(const AccessKey key, read_access_key(machine, KeyOf::User));
    return dial_by_tls(key);
  }
  std::vector<std::string> words = {"dial"};
  if (starts) words.push_back("--start");
  TRY(StartedThere started, start_there(machine, words));
  if (await_word(started.line.get())) return std::unique_ptr<Wire>(std::make_unique<SocketWire>(std::move(started.line)));
  started.line.reset();
  return not_dialled(machine, started.ssh);
}

std::string name_of_project(const std::filesystem::path& root) {
  if (remote_machine().empty() || root.empty()) return root.string();
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return fmt::format("{}:{}", name, root.string());
}

}  // namespace dtrain::cli
